"""Building and caching the custom TensorFlow op."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment import custom_op
from agent.environment.custom_op import CustomOpError, build, cached_path, file_name, identity, main
from agent.environment.toolchain import installed_tensorflow
from payload.data.records.record_split import open_record_splits

ROOT = Path(__file__).parents[3]
TENSORFLOW = ("2.21.0", Path("/tf/include"))
COMPILER = """#!/bin/sh
echo run >> {count}
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""


def compiler(directory: Path, script: str) -> str:
    """Put a compiler in a folder; return the PATH to find it."""
    directory.mkdir(exist_ok=True)
    (directory / "c++").write_text(script)
    (directory / "c++").chmod(0o755)
    return f"{directory}:/usr/bin:/bin"


def test_custom_op_is_compiled_once_and_kept(tmp_path: Path) -> None:
    count = tmp_path / "count"
    path = compiler(tmp_path / "bin", COMPILER.format(count=count))
    for _ in range(2):
        made = build(*TENSORFLOW, cache=tmp_path / "cache", search_path=path, report=lambda line: None)
        assert made == cached_path("2.21.0", tmp_path / "cache")
        assert made.read_text() == "library\n"
    assert count.read_text() == "run\n"
    assert sorted(file.suffix for file in made.parent.iterdir()) == [".lock", ".so"]


def test_node_without_compiler_uses_library_of_another_node(tmp_path: Path) -> None:
    kept = cached_path("2.21.0", tmp_path)
    kept.parent.mkdir()
    kept.write_text("library\n")
    assert build(*TENSORFLOW, cache=tmp_path, search_path="/nowhere", report=lambda line: None) == kept


def test_failed_compilation_shows_errors_and_leaves_no_files(tmp_path: Path) -> None:
    path = compiler(tmp_path / "bin", "#!/bin/sh\necho 'image_view.cc:7: error: no such thing' >&2\nexit 1\n")
    with pytest.raises(
        CustomOpError, match=r"(?s)cannot compile .* with TensorFlow 2\.21\.0:.*7: error: no such thing"
    ):
        build(*TENSORFLOW, cache=tmp_path, search_path=path, report=lambda line: None)
    assert not list(tmp_path.glob("custom_op/*.so"))


def test_another_source_is_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(), file_name(), cached_path("2.21.0", tmp_path)
    changed = tmp_path / "image_view.cc"
    changed.write_text(custom_op.SOURCE.read_text() + "\n")
    monkeypatch.setattr(custom_op, "SOURCE", changed)
    after = identity(), file_name(), cached_path("2.21.0", tmp_path)
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_resizing_without_custom_op_is_rejected_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_op, "installed_path", lambda: Path("/nowhere/op.so"))
    with pytest.raises(CustomOpError, match=r"custom TensorFlow op for images .* -m agent\.environment\.custom_op"):
        open_record_splits(Path("/data"), name="drawings", classes=0, skip=False, cache="none")


def test_environment_over_runtime_finds_custom_op_of_runtime(tmp_path: Path) -> None:
    """A program's own packages are in such an overlay, while TensorFlow is in the environment below it."""
    packages = tmp_path / "runtime" / "site-packages"
    (packages / "tensorflow").mkdir(parents=True)
    (packages / "tensorflow" / "__init__.py").touch()
    program = "from agent.environment import custom_op; print(custom_op.installed_path())"
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = ['.', {str(packages)!r}]; {program}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found) == packages / file_name()


def test_command_reports_error_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(custom_op, "installed_tensorflow", lambda: TENSORFLOW)
    assert main(["install", "--cache", str(tmp_path)]) == 1
    assert "no C++ compiler" in capsys.readouterr().err


@pytest.mark.tensorflow
def test_source_compiles_without_a_warning(tmp_path: Path) -> None:
    warnings = tmp_path / "c++.log"
    path = compiler(tmp_path / "bin", f'#!/bin/sh\nexec /usr/bin/c++ "$@" -Werror 2>{warnings}\n')
    assert build(
        *installed_tensorflow(), cache=tmp_path / "cache", search_path=path, report=lambda line: None
    ).is_file()
    assert warnings.read_text() == ""
