"""Building and caching Horovod's wheel."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from agent.environment import horovod_build, horovod_source
from agent.environment.horovod_build import (
    BuildError,
    build,
    default_cache,
    error_lines,
    link_nccl,
    main,
    packaged_nccl,
    write_compiler,
)
from agent.environment.horovod_build_settings import Settings, fingerprint
from agent.environment.horovod_source import EDITS
from agent.environment.toolchain import HorovodError, NotCoveredError
from tests.agent.environment.test_horovod_build_settings import TOOLCHAIN

WHEEL = "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"


def build_into(cache: Path, sdist: Path | None = None) -> tuple[Path, list[str]]:
    """Build with TOOLCHAIN; return the wheel and the progress messages."""
    told: list[str] = []
    base = {"PATH": "/usr/bin:/bin"}
    made = build(Settings(), TOOLCHAIN, cache=cache, base=base, report=told.append, sdist=sdist)
    return made, told


def fake_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setup_py: str) -> None:
    """Replace Horovod's source distribution by one with the given setup.py."""
    source = tmp_path / "horovod-0.28.1"
    source.mkdir()
    (source / "setup.py").write_text(setup_py)
    for file in {edit.file for edit in EDITS}:
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_text("".join(edit.old for edit in EDITS if edit.file == file))
    archive = tmp_path / "release.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, arcname="horovod-0.28.1")
    # A fake Python: `-m venv DIR` creates DIR/bin/python, which then acts as pip and downloads the release.
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\nif [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi\n'
        f'for last; do :; done; mkdir "$last"; cp {archive} "$last/horovod-0.28.1.tar.gz"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(horovod_build, "base_python", lambda: str(python))
    monkeypatch.setattr(horovod_source, "HOROVOD_SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())


MAKES_A_WHEEL = f"""
import os, pathlib, sys
assert os.environ["HOROVOD_WITH_GLOO"] == "1"
# On the volume of the build itself, which runs in its directory.
temporary = pathlib.Path(os.environ["TMPDIR"])
assert temporary.is_dir() and temporary.parent == pathlib.Path.cwd().parent
(pathlib.Path(sys.argv[-1]) / "{WHEEL}").write_text("wheel")
"""


def test_wheel_is_built_once_and_then_taken_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_release(monkeypatch, tmp_path, MAKES_A_WHEEL)
    first, told = build_into(tmp_path / "cache")
    assert first.name == WHEEL
    assert first.parent.name == fingerprint(Settings(), TOOLCHAIN)
    assert len(told) == 1
    assert "1 to 3 minutes" in told[0]
    monkeypatch.setattr(horovod_build, "base_python", None)
    assert build_into(tmp_path / "cache") == (first, [])


def test_uploaded_source_distribution_is_built_without_a_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_release(monkeypatch, tmp_path, MAKES_A_WHEEL)
    monkeypatch.setattr(horovod_build, "base_python", None)
    built, _ = build_into(tmp_path / "cache", tmp_path / "release.tar.gz")
    assert built.name == WHEEL


def test_wheel_is_built_into_a_cache_with_a_relative_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_release(monkeypatch, tmp_path, MAKES_A_WHEEL)
    monkeypatch.chdir(tmp_path)
    built, _ = build_into(Path("cache"))
    assert (built.parent.parent, built.read_text()) == (tmp_path / "cache" / "horovod", "wheel")


def test_failed_build_shows_the_compilers_last_errors_and_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_release(
        monkeypatch, tmp_path, "print('x.cc:1:2: error: no such thing\\nnoise', flush=True); raise SystemExit(1)"
    )
    with pytest.raises(BuildError, match=r"x\.cc:1:2: error: no such thing") as failed:
        build_into(tmp_path / "cache")
    assert "noise" in failed.value.log.read_text()
    assert str(failed.value.log) in str(failed.value)
    assert list((tmp_path / "cache").glob("**/*.whl")) == []


def test_source_distribution_with_another_hash_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_release(monkeypatch, tmp_path, MAKES_A_WHEEL)
    monkeypatch.setattr(horovod_source, "HOROVOD_SHA256", "0" * 64)
    with pytest.raises(HorovodError, match="so it is not the file that PyPI has for Horovod"):
        build_into(tmp_path / "cache")


def test_errors_are_picked_from_a_long_log() -> None:
    log = "\n".join(["[ 10%] Building"] * 500 + ["a.cc:3:1: error: bad", "c++: fatal error: Killed signal terminated"])
    log += "\n" + "\n".join(["make: *** Waiting"] * 50)
    assert error_lines(log) == ["a.cc:3:1: error: bad", "c++: fatal error: Killed signal terminated"]


def test_nccl_of_python_package_gets_link_for_linker(tmp_path: Path) -> None:
    home = tmp_path / "nvidia" / "nccl"
    (home / "lib").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include" / "nccl.h").touch()
    (home / "lib" / "libnccl.so.2").write_text("library")
    linked = link_nccl(packaged_nccl(["/nowhere", str(tmp_path)]), tmp_path / "scratch")
    assert (linked / "lib" / "libnccl.so").read_text() == "library"
    assert (linked / "include" / "nccl.h").exists()
    with pytest.raises(NotCoveredError, match="Reinstall NVIDIA's package"):
        link_nccl(tmp_path, tmp_path)
    with pytest.raises(NotCoveredError, match="NCCL is not installed"):
        packaged_nccl(["/nowhere"])


def test_cache_is_outside_of_the_tree() -> None:
    assert default_cache({"XDG_CACHE_HOME": "/var/cache"}) == Path("/var/cache/deepcdk")
    assert default_cache({}) == Path.home() / ".cache" / "deepcdk"
    assert default_cache({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "deepcdk"


def test_command_line_reports_missing_compiler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["build", "--cache", str(tmp_path)]) == 1
    assert "no C++ compiler found" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("cxx17", "standard"), [(True, "201703L"), (False, "201402L")])
def test_pytorch_build_uses_cxx17_and_includes_logic_error(tmp_path: Path, cxx17: bool, standard: str) -> None:
    compiler = write_compiler(tmp_path, os.environ["PATH"], cxx17=cxx17)
    source = tmp_path / "main.cc"
    source.write_text(f'static_assert(__cplusplus == {standard});\nint main() {{ std::logic_error known(""); }}\n')
    command = [str(compiler), "-std=c++14", "-c", str(source), "-o", str(tmp_path / "main.o")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
    linked = [str(compiler), str(tmp_path / "main.o"), "-o", str(tmp_path / "main")]
    assert subprocess.run(linked, capture_output=True, text=True, check=False).stderr == ""


def test_nvcc_preprocesses_and_compiles_with_the_same_standard(tmp_path: Path) -> None:
    # The calls, their order and their distinguishing arguments are from `nvcc --verbose`, 13.0.
    compiler = write_compiler(tmp_path, os.environ["PATH"], cxx17=True)
    source, preprocessed = tmp_path / "kernels.cu", tmp_path / "kernels.cpp4.ii"
    source.write_text('static_assert(__cplusplus == 201402L);\nvoid known() { throw std::logic_error(""); }\n')
    nvccs = [str(compiler), "-std=c++14", "-D__CUDA_ARCH__=900", "-D__CUDA_ARCH_LIST__=900"]
    first = ["-E", "-x", "c++", "-D__CUDACC__", "-D__NVCC__", str(source), "-o", str(preprocessed)]
    assert subprocess.run([*nvccs, *first], capture_output=True, text=True, check=False).stderr == ""
    # The output of cudafe++ still contains the text of all headers.
    split = preprocessed.rename(tmp_path / "kernels.cudafe1.cpp")
    second = ["-c", "-x", "c++", str(split), "-o", str(tmp_path / "kernels.o")]
    assert subprocess.run([*nvccs, *second], capture_output=True, text=True, check=False).stderr == ""
