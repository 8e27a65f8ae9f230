"""A user program on the shared file system: each run works in its own copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.spec.run import RunSpec
from agent.supervisor.attempts.program import stage
from tests.factories import make_program_spec, make_spec


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    """Write a pushed program and a run of it."""
    spec = make_program_spec(efs_mount=str(tmp_path))
    pushed = Path(spec.program_directory)
    (pushed / "lib").mkdir(parents=True)
    (pushed / "train.py").write_text("print()")
    (pushed / "lib" / "start.sh").touch(mode=0o755)
    Path(spec.run_directory).mkdir(parents=True)
    return spec


def test_the_run_works_in_a_copy_with_the_same_modes(spec: RunSpec) -> None:
    stage(spec)
    work = Path(spec.working_directory)
    assert (work / "train.py").read_text() == "print()"
    assert (work / "lib" / "start.sh").stat().st_mode & 0o111
    (work / "train.py").write_text("changed")
    assert (Path(spec.program_directory) / "train.py").read_text() == "print()"


def test_the_ranks_may_change_all_of_the_copy_and_execute_what_was_executable(spec: RunSpec) -> None:
    stage(spec)
    work = Path(spec.working_directory)
    modes = {each.name: each.stat().st_mode & 0o7777 for each in (work, *work.rglob("*"))}
    assert modes == {"work": 0o777, "lib": 0o777, "train.py": 0o666, "start.sh": 0o777}


def test_a_second_attempt_goes_on_in_what_the_first_one_left(spec: RunSpec) -> None:
    stage(spec)
    (Path(spec.working_directory) / "checkpoint").write_text("7")
    stage(spec)
    assert (Path(spec.working_directory) / "checkpoint").read_text() == "7"


def test_a_copy_that_was_cut_short_is_made_anew(spec: RunSpec) -> None:
    partial = Path(spec.run_directory) / ".work.partial"
    partial.mkdir()
    (partial / "half").touch()
    stage(spec)
    assert not (Path(spec.working_directory) / "half").exists()


def test_a_run_of_the_payload_needs_no_copy(tmp_path: Path) -> None:
    stage(make_spec(efs_mount=str(tmp_path)))
    assert [each.name for each in tmp_path.iterdir()] == ["home"]


def test_a_program_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"the uploaded program of run .* is missing: "):
        stage(make_program_spec(efs_mount=str(tmp_path)))
