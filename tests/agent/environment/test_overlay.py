"""A program's own packages: an overlay on the runtime, the same on all nodes, and built once per content."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.overlay import LockedOverlay, Overlay, parse_report, refers_to_files
from agent.environment.virtual_environment import RuntimeSetupError
from tests.agent.environment.wheels import write_wheel

pytestmark = pytest.mark.usefixtures("installer")

REPORT = {
    "install": [
        {"metadata": {"name": "toy", "version": "1.2"}, "download_info": {"url": "https://example.org/toy.whl"}},
        {
            "metadata": {"name": "own", "version": "0.1"},
            "download_info": {
                "url": "https://example.org/own.git",
                "vcs_info": {"vcs": "git", "commit_id": "c0ffee", "requested_revision": "main"},
            },
        },
    ]
}


def make(tmp_path: Path, requirements: str, **changes: object) -> Overlay:
    """Return the overlay of a program with these requirements."""
    program = tmp_path / "payloads" / "fedcba9876543210" / "program"
    program.mkdir(parents=True, exist_ok=True)
    (program / "requirements.txt").write_text(requirements)
    overlay = Overlay(
        runtime=Path(sys.executable),
        program=program,
        requirements="requirements.txt",
        further=(),
        root=tmp_path / "layers",
        wheelhouse=tmp_path / "wheelhouse",
        report=lambda line: None,
    )
    return dataclasses.replace(overlay, **changes)  # type: ignore[arg-type]  # the tests give what fits


def test_a_report_becomes_sources_with_the_commit_that_was_resolved() -> None:
    assert parse_report(REPORT) == ["toy @ https://example.org/toy.whl", "own @ git+https://example.org/own.git@c0ffee"]


@pytest.mark.parametrize(
    "line", ["-r more.txt", "--find-links wheels", "-e ./lib", "./lib", "wheels/toy-1.0.whl", "toy @ file:///there"]
)
def test_requirements_that_name_files_depend_on_the_whole_tree(tmp_path: Path, line: str) -> None:
    assert refers_to_files(line)
    for plain in ("toy>=1", "toy @ https://example.org/toy.tar.gz", "--pre"):
        assert not refers_to_files(plain)
    here = make(tmp_path, "toy\n")
    before = here.fingerprint
    tree = here.program.parent.rename(tmp_path / "0123456789abcdef") / "program"
    assert dataclasses.replace(here, program=tree).fingerprint == before
    (tree / "requirements.txt").write_bytes(b"\xef\xbb\xbf" + line.encode())  # a byte order mark hides nothing
    before = dataclasses.replace(here, program=tree).fingerprint
    tree = tree.parent.rename(tmp_path / "fedcba9876543210") / "program"
    assert dataclasses.replace(here, program=tree).fingerprint != before


def test_another_runtime_or_further_packages_make_another_layer(tmp_path: Path) -> None:
    overlay = make(tmp_path, "toy\n")
    others = [dataclasses.replace(overlay, runtime=Path("/other")), dataclasses.replace(overlay, further=("tf-keras",))]
    assert len({overlay.fingerprint, *(other.fingerprint for other in others)}) == 3


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a runtime from wheels with the relevant names."""
    place = tmp_path_factory.mktemp("runtime")
    for name, version in (("tensorflow_cpu", "2.21.0"), ("horovod", "0.28.1"), ("numpy", "2.4.6"), ("toy", "1.0")):
        write_wheel(place / "wheels", name, version)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    packages = next((place / "env" / "lib").glob("python3*/site-packages"))
    for wheel in (place / "wheels").iterdir():
        shutil.unpack_archive(wheel, packages, "zip")
    return place / "env" / "bin" / "python"


def said(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_wheels_of_an_interrupted_fill_are_removed(tmp_path: Path, runtime: Path) -> None:
    overlay = make(tmp_path, "--no-index\n--find-links wheels\nextra\n", runtime=runtime)
    write_wheel(overlay.program / "wheels", "extra", "0.2")
    left = tmp_path / "wheelhouse" / overlay.fingerprint
    write_wheel(left, "extra", "0.1")
    overlay.ensure()
    assert [path.name for path in left.glob("*.whl")] == ["extra-0.2-py3-none-any.whl"]


def test_a_layer_adds_what_the_runtime_lacks_and_leaves_the_runtime_alone(tmp_path: Path, runtime: Path) -> None:
    text = "--no-index\n--find-links wheels\nnewer\ntoy>=1.2\nhorovod\ntensorflow>=2.4\n"
    overlay = make(tmp_path, text, runtime=runtime)
    write_wheel(overlay.program / "wheels", "newer", "3.0", "tensorflow>=2.20", "numpy", "extra")
    write_wheel(overlay.program / "wheels", "extra", "0.1")
    write_wheel(overlay.program / "wheels", "toy", "1.2")
    python = overlay.ensure()
    code = "import toy, newer, extra, horovod; print(toy.VERSION, newer.VERSION, extra.VERSION, horovod.__file__)"
    versions, _, where = said(python, code).rpartition(" ")
    assert versions == "1.2 3.0 0.1"
    assert where.startswith(str(runtime.parent.parent))
    assert said(runtime, "import toy; print(toy.VERSION)") == "1.0"
    # The second node has only the shared file system: no package index, and not the first node's overlay.
    (overlay.program / "wheels").rename(tmp_path / "gone")
    second = dataclasses.replace(overlay, root=tmp_path / "second")
    assert said(second.ensure(), code).startswith("1.2 3.0 0.1")
    assert dataclasses.replace(second, report=pytest.fail).ensure() == second.python


def test_a_locked_layer_has_the_laptops_wheels_alone(tmp_path: Path, runtime: Path) -> None:
    program = tmp_path / "payloads" / "fedcba9876543210" / "program"
    program.mkdir(parents=True)
    line = write_wheel(tmp_path / "payloads" / "0123456789abcdef" / "wheels", "newer", "3.0")
    lock = f"--find-links ../../0123456789abcdef/wheels\n--no-index\n--only-binary :all:\n{line}"
    layer = LockedOverlay(runtime=runtime, program=program, lock=lock, root=tmp_path / "layers", log=tmp_path / "log")
    code = "import newer, toy, importlib.metadata as m; print(newer.VERSION, toy.VERSION, m.version('tensorflow'))"
    assert said(layer.ensure(), code) == "3.0 1.0 2.21.0"
    missing = dataclasses.replace(layer, lock=lock.replace("newer==3.0", "newer==4.0"))
    with pytest.raises(RuntimeSetupError, match=r"(?s)newer==4\.0.*full log is install-NODE\.log"):
        missing.ensure()
    assert "newer==4.0" in (tmp_path / "log").read_text()


def test_the_laptops_wheel_is_chosen_before_another_file_of_the_same_version(tmp_path: Path, runtime: Path) -> None:
    """A fork with the version of the release failed, because pip chose the release and rejected its hash."""
    program = tmp_path / "payloads" / "fedcba9876543210" / "program"
    program.mkdir(parents=True)
    line = write_wheel(tmp_path / "payloads" / "0123456789abcdef" / "wheels", "some_fork", "3.0")
    write_wheel(tmp_path / "index", "some_fork", "3.0", build="-1")
    line = line.replace("some_fork", "some-fork")
    lock = f"--find-links ../../0123456789abcdef/wheels\n--find-links {tmp_path}/index\n--no-index\n{line}"
    layer = LockedOverlay(runtime=runtime, program=program, lock=lock, root=tmp_path / "layers")
    assert said(layer.ensure(), "import some_fork; print(some_fork.VERSION, some_fork.BUILD)") == "3.0"


def test_requirements_against_the_runtime_are_refused_with_what_it_has(tmp_path: Path, runtime: Path) -> None:
    overlay = make(tmp_path, "--no-index\ntensorflow==2.10\n", runtime=runtime)
    with pytest.raises(
        RuntimeSetupError, match=r"cannot change: horovod 0\.28\.1, numpy 2\.4\.6, tensorflow 2\.21\.0"
    ) as caught:
        overlay.ensure()
    assert "tensorflow==2.10" in str(caught.value)
    assert not (overlay.directory / ".complete").exists()
