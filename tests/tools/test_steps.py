"""Facts about the steps of the set-up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.steps import Log, Step, StepError, key_of, run_steps


def run_in(state: Path, *steps: Step) -> list[str]:
    """Carry out the steps; return what was printed."""
    told: list[str] = []
    run_steps(steps, state, {"PATH": "/usr/bin:/bin"}, out=told.append)
    return told


def a_step(result: Path, key: str = "1", name: str = "python packages") -> Step:
    """Return a step that writes a file."""

    def write(log: Log) -> None:
        result.write_text(log.run([sys.executable, "-c", f"print({key!r})"], result.parent))

    return Step(name=name, key=key, present=result.exists, run=write)


def test_a_step_runs_once_for_its_inputs(tmp_path: Path) -> None:
    result = tmp_path / "result"
    first = run_in(tmp_path / "state", a_step(result))
    assert first[0].startswith("python packages")
    assert first[1].endswith(" s")
    assert run_in(tmp_path / "state", a_step(result)) == ["python packages    up to date"]


def test_changed_inputs_or_a_removed_result_run_a_step_again(tmp_path: Path) -> None:
    result = tmp_path / "result"
    run_in(tmp_path / "state", a_step(result))
    assert len(run_in(tmp_path / "state", a_step(result, key="2"))) == 2
    assert result.read_text() == "2\n"
    result.unlink()
    assert len(run_in(tmp_path / "state", a_step(result, key="2"))) == 2


def test_a_failed_step_shows_its_last_lines_and_runs_again(tmp_path: Path) -> None:
    def fail(log: Log) -> None:
        log.run([sys.executable, "-c", "import sys; sys.exit('disk full')"], tmp_path)

    step = Step(name="horovod", key="1", present=lambda: True, run=fail)
    for _ in range(2):
        with pytest.raises(StepError, match=r"horovod: .* ended with status 1") as failed:
            run_in(tmp_path / "state", step)
        assert "disk full" in str(failed.value)
        assert str(tmp_path / "state" / "logs" / "horovod.log") in str(failed.value)


def test_a_key_changes_with_texts_files_and_their_order(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("one")
    keys = {key_of("a", "b"), key_of("b", "a"), key_of("ab"), key_of("a", tmp_path / "lock")}
    (tmp_path / "lock").write_text("two")
    keys.add(key_of("a", tmp_path / "lock"))
    assert len(keys) == 5
