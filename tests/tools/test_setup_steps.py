"""The steps of `make setup`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.setup_steps import Log, Step, StepError, key_of, run_lanes, run_steps


def run_in(state: Path, *steps: Step) -> list[str]:
    """Execute the steps; return their output."""
    told: list[str] = []
    run_steps(steps, state, {"PATH": "/usr/bin:/bin"}, out=told.append)
    return told


def a_step(result: Path, key: str = "1", name: str = "python packages") -> Step:
    """Return a step that writes a file."""

    def write(log: Log) -> None:
        result.write_text(log.run([sys.executable, "-c", f"print({key!r})"], result.parent))

    return Step(name=name, key=key, present=result.exists, run=write)


def test_step_runs_once_for_its_inputs(tmp_path: Path) -> None:
    result = tmp_path / "result"
    started = time.monotonic()
    first = run_in(tmp_path / "state", a_step(result))
    assert first[0].startswith("python packages")
    *_, seconds, unit = first[1].split()
    assert unit == "s" and 0 <= float(seconds) <= time.monotonic() - started + 0.05  # rounded to tenths
    other = a_step(tmp_path / "other", name="other")
    assert run_in(tmp_path / "state", a_step(result), other)[:2] == [
        "python packages    up to date",
        "other              ...",
    ]
    assert (tmp_path / "state" / "python-packages.stamp").read_text() == "1"


def test_step_runs_again_for_changed_inputs_or_removed_result(tmp_path: Path) -> None:
    result = tmp_path / "result"
    run_in(tmp_path / "state", a_step(result))
    assert len(run_in(tmp_path / "state", a_step(result, key="2"))) == 2
    assert result.read_text() == "2\n"
    result.unlink()
    assert len(run_in(tmp_path / "state", a_step(result, key="2"))) == 2


def test_key_depends_on_texts_files_and_their_order(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("one")
    keys = {key_of("a", "b"), key_of("b", "a"), key_of("ab"), key_of("a", tmp_path / "lock")}
    (tmp_path / "lock").write_text("two")
    keys.add(key_of("a", tmp_path / "lock"))
    assert len(keys) == 5


def test_command_gets_only_given_environment_and_its_output_is_logged(tmp_path: Path) -> None:
    log = Log(step="one", path=tmp_path / "log", environ={"ONLY": "this"})
    program = "import os; print(os.environ['ONLY'], 'HOME' in os.environ, os.getcwd())"
    (tmp_path / "within").mkdir()
    assert log.run([sys.executable, "-c", program], tmp_path / "within") == f"this False {tmp_path / 'within'}\n"
    log.run([sys.executable, "-c", "import sys; print('warned', file=sys.stderr)"], tmp_path)
    logged = (tmp_path / "log").read_text()
    assert logged.startswith(f"$ {sys.executable} -c import os")
    assert "this False" in logged and logged.endswith("warned\n")


def test_failed_step_shows_end_of_log_and_is_repeated_with_new_log(tmp_path: Path) -> None:
    program = "import sys; sys.exit('\\n'.join(f'line {n}' for n in range(100)))"

    def fail(log: Log) -> None:
        log.run([sys.executable, "-c", program], tmp_path)

    step = Step(name="one", key="1", present=lambda: True, run=fail)
    for _ in range(2):
        with pytest.raises(StepError) as failed:
            run_in(tmp_path / "state", step)
    log = tmp_path / "state" / "logs" / "one.log"
    last = "\n".join(f"    line {number}" for number in range(80, 100))
    assert str(failed.value) == f"one: {sys.executable} failed with exit status 1\n{last}\nthe full log: {log}"
    assert log.read_text().count("line 50") == 1


def test_lanes_run_in_parallel_and_stop_after_a_failure(tmp_path: Path) -> None:
    both, failed = threading.Barrier(2, timeout=60), threading.Event()

    def step(name: str, run: Callable[[], object]) -> Step:
        return Step(name=name, key="1", present=lambda: True, run=lambda log: void(run()))

    def void(result: object) -> None:
        """Discard a result."""

    def fail() -> None:
        both.wait()
        failed.set()
        raise StepError("one failed")

    def outlast() -> None:
        both.wait()
        assert failed.wait(60)

    told: list[str] = []
    lanes = [[step("one", fail), step("next", both.wait)], [step("two", outlast), step("last", both.wait)]]
    with pytest.raises(StepError, match="one failed"):
        run_lanes(lanes, tmp_path / "state", {}, out=told.append)
    assert {line.split()[0] for line in told} == {"one", "two"}


def test_step_is_announced_without_trailing_blanks(tmp_path: Path) -> None:
    step = Step(name="one", key="1", present=lambda: True, run=lambda log: None, note="a minute")
    assert run_in(tmp_path / "a", step)[0] == "one                ... a minute"
    assert run_in(tmp_path / "b", a_step(tmp_path / "result", name="two"))[0] == "two                ..."


def test_undecodable_log_is_shown_as_far_as_possible(tmp_path: Path) -> None:
    log = Log(step="one", path=tmp_path / "log", environ={})
    program = "import os, sys; os.write(2, b'caf\\xe9\\n'); sys.exit(3)"
    with pytest.raises(StepError, match=r"failed with exit status 3\n.*\n    caf\ufffd\n"):
        log.run([sys.executable, "-c", program], tmp_path)
