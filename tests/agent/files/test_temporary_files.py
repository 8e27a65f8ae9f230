"""Facts about a build's temporary files: beside what is built, and gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.files.temporary_files import temporary_directory_of, temporary_files_beside, with_temporary_files


def test_programs_put_their_temporary_files_beside_what_is_built(tmp_path: Path) -> None:
    built = tmp_path / "runtime" / "0123abcd"
    with temporary_files_beside(built) as temporary:
        assert temporary.parent == built.parent
        code = "import tempfile; print(tempfile.gettempdir())"
        env = with_temporary_files({"TMPDIR": "/tmp", "PATH": "/bin"}, temporary)
        assert env["PATH"] == "/bin"
        said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
        assert said.strip() == str(temporary)


def test_nothing_stays_after_a_build_that_fails(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), temporary_files_beside(tmp_path / "built") as temporary:
        (temporary / "pip-unpack").mkdir()
        raise OSError("full")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = temporary_directory_of(tmp_path / "built") / "left"
    left.mkdir(parents=True)
    with temporary_files_beside(tmp_path / "built") as temporary:
        assert list(temporary.iterdir()) == []


def test_without_the_directory_programs_keep_their_choice(tmp_path: Path) -> None:
    assert with_temporary_files({"TMPDIR": "/scratch"}, tmp_path / "none") == {"TMPDIR": "/scratch"}
