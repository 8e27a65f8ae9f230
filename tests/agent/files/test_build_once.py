"""Concurrent processes build something only once. Temporary files are in the same directory as the result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.files.build_once import (
    COMPLETE,
    build_directory_once,
    build_once,
    is_complete,
    temporary_directory_of,
    temporary_files_beside,
    with_temporary_files,
)
from tests.nfs import nfs_client

ROOT = Path(__file__).parents[3]
BUILDER = """
import os, sys, time
from pathlib import Path
from agent.files.build_once import build_directory_once

directory, crash = Path(sys.argv[1]), sys.argv[2:] == ["crash"]

def build():
    directory.mkdir(exist_ok=True)
    (directory / f"part-{os.getpid()}").touch()
    print("building", flush=True)
    sys.stdin.readline()
    if crash:
        os._exit(9)
    return "built"

lock = directory.with_suffix(".lock")
on_wait = lambda: print("waiting", flush=True)
print(build_directory_once(directory, build, lock=lock, on_wait=on_wait), flush=True)
"""


def builder(directory: Path, *words: str) -> subprocess.Popen[str]:
    """Start a process that builds `directory` and waits for a line of input during the build."""
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(directory), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_one_process_builds_and_the_other_waits(tmp_path: Path) -> None:
    directory = tmp_path / "built"
    with builder(directory) as first:
        assert line(first) == "building"
        with builder(directory) as second:
            assert line(second) == "waiting"
            assert first.communicate("\n", timeout=60)[0] == "True\n"
            assert second.communicate(timeout=60)[0] == "False\n"
    parts = sorted(path.name for path in directory.iterdir())
    assert parts == [COMPLETE, f"part-{first.pid}"]
    assert (directory / COMPLETE).read_text() == "built"


def test_build_without_marker_is_repeated(tmp_path: Path) -> None:
    directory = tmp_path / "built"
    with builder(directory, "crash") as first:
        assert line(first) == "building"
        first.communicate("\n", timeout=60)
    assert first.returncode == 9
    assert [path.name for path in directory.iterdir()] == [f"part-{first.pid}"]
    assert not is_complete(directory)
    with builder(directory) as second:
        assert second.communicate("\n", timeout=60)[0] == "building\nTrue\n"
    assert sorted(path.name for path in directory.iterdir()) == [COMPLETE, f"part-{second.pid}"]


def test_build_can_continue_after_interruption(tmp_path: Path) -> None:
    directory = tmp_path / "wheels"
    directory.mkdir()
    (directory / "first.whl").touch()
    assert build_directory_once(directory, lambda: "", lock=tmp_path / "lock", keep_partial=True)
    assert (directory / "first.whl").exists() and is_complete(directory)


def test_failed_build_has_no_result_and_releases_lock(tmp_path: Path) -> None:
    directory = tmp_path / "built"

    def fail() -> str:
        directory.mkdir()
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        build_directory_once(directory, fail, lock=tmp_path / "lock")
    assert not is_complete(directory)

    def succeed() -> str:
        directory.mkdir()
        return ""

    assert build_directory_once(directory, succeed, lock=tmp_path / "lock", on_wait=pytest.fail)
    assert is_complete(directory)


def test_existing_result_needs_no_lock(tmp_path: Path) -> None:
    assert build_once(lambda: "found", pytest.fail, lock=tmp_path / "absent" / "lock") == "found"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_result_of_another_node_is_not_built_again(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with nfs_client(tmp_path / "server", tmp_path / "client") as shared:
        assert not is_complete(shared / "wheels")
        (tmp_path / "server/wheels").mkdir()
        (tmp_path / "server/wheels" / COMPLETE).touch()
        assert build_directory_once(shared / "wheels", pytest.fail, lock=shared / "wheels.lock") is False


def test_temporary_files_are_next_to_build(tmp_path: Path) -> None:
    built = tmp_path / "runtime" / "0123abcd"
    with temporary_files_beside(built) as temporary:
        assert temporary.parent == built.parent
        code = "import tempfile; print(tempfile.gettempdir())"
        env = with_temporary_files({"TMPDIR": "/tmp", "PATH": "/bin"}, temporary)
        assert env["PATH"] == "/bin"
        said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
        assert said.strip() == str(temporary)
    assert with_temporary_files({"TMPDIR": "/scratch"}, tmp_path / "none") == {"TMPDIR": "/scratch"}


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), temporary_files_beside(tmp_path / "built") as temporary:
        (temporary / "pip-unpack").mkdir()
        raise OSError("full")
    assert list(tmp_path.iterdir()) == []


def test_remains_of_killed_build_are_removed_by_next_build(tmp_path: Path) -> None:
    left = temporary_directory_of(tmp_path / "built") / "left"
    left.mkdir(parents=True)
    with temporary_files_beside(tmp_path / "built") as temporary:
        assert list(temporary.iterdir()) == []
