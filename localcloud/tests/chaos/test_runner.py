from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from chaos.stage import Stage
from localcloud import control_socket, lifecycle
from localcloud.chaos import runner
from localcloud.chaos.attempt import Cloud, Patterns
from localcloud.chaos.schedule import Fault
from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError, NotRunningError

ROOT: Final = Path(__file__).resolve().parents[1]


class Play:
    """A run of a schedule with a fake clock, and its reports with their times."""

    def __init__(self, tmp_path: Path, *pids: int, ends_at_s: float = 1e9) -> None:
        self.stage, self.now, self.told = Stage(tmp_path, *pids), 50.0, list[tuple[float, str]]()
        self.ends_at_s, self.patterns = ends_at_s, Patterns()
        self.on_wait: Callable[[float], None] = lambda now_s: None
        self.on_report: Callable[[str], None] = lambda text: None

    def interrupted(self, seconds: float) -> bool:
        # A real clock advances even if `seconds` is too small to change its value.
        self.now = min(self.now + max(seconds, 1e-6), 50 + self.ends_at_s)
        self.on_wait(self.now - 50)
        return self.now >= 50 + self.ends_at_s

    def run(self, *faults: Fault) -> runner.Outcome:
        def report(text: str, values: dict[str, Any]) -> None:
            json.dumps(values)
            self.told.append((round(self.now - 50, 1), text))
            self.on_report(text)

        return runner.run(
            self.stage, faults, self.patterns, report, clock=lambda: self.now, interrupted=self.interrupted
        )


def ended(done: int, *left: str, interrupted: bool = False) -> runner.Outcome:
    return runner.Outcome(done=done, left=left, interrupted=interrupted)


CUT = Fault(at_s=10.0, kind="cut", place=0.0, lasts_s=30.0)
REBOOT = Fault(at_s=20.0, kind="reboot", place=0.9)


def test_temporary_faults_are_undone_in_time(tmp_path: Path) -> None:
    play = Play(tmp_path, 1, 1)
    late = Fault(at_s=60.0, kind="cut", place=0.9, lasts_s=5.0)
    assert play.run(late, REBOOT, CUT) == ended(3)
    assert play.told == [
        (10.0, "cut the network of w1 (i-1)"),
        (20.0, "rebooted w2 (i-2)"),
        (40.0, "undone: cut the network of w1 (i-1)"),
        (60.0, "cut the network of w2 (i-2)"),
        (65.0, "undone: cut the network of w2 (i-2)"),
    ]


NOTICE = Fault(at_s=20.0, kind="spot-notice", place=0.0)


def writing(tmp_path: Path, begins_at_s: float, **changes: float) -> Play:
    """Return a play with an incomplete checkpoint at the start and another one after `begins_at_s`."""
    (tmp_path / "run/checkpoints/.partial-1").mkdir(parents=True)
    play = Play(tmp_path, 1, **changes)
    play.stage.hosts()[0]["spot"] = True
    play.patterns = Patterns(writing="run/checkpoints/.partial-*")

    def write(now_s: float) -> None:
        if now_s >= begins_at_s:
            (tmp_path / "run/checkpoints/.partial-2").mkdir(exist_ok=True)

    play.on_wait = write
    return play


def test_notice_waits_for_a_checkpoint_while_temporary_faults_are_undone(tmp_path: Path) -> None:
    play = writing(tmp_path, begins_at_s=44.5)
    assert play.run(CUT, NOTICE) == ended(2)
    assert [text for _, text in play.told] == [
        "cut the network of w1 (i-1)",
        "undone: cut the network of w1 (i-1)",
        "sent w1 (i-1) a spot interruption notice: it is terminated in 120 s",
    ]
    assert [at_s for at_s, _ in play.told] == pytest.approx([10.0, 40.0, 44.5], abs=0.1)


def test_notice_without_checkpoint_is_skipped_with_reason(tmp_path: Path) -> None:
    play = writing(tmp_path, begins_at_s=1e9)
    assert play.run(NOTICE, dataclasses.replace(REBOOT, at_s=30.0)) == ended(1)
    skipped, rebooted = play.told
    assert (
        skipped[1]
        == "spot-notice skipped: no file that matches --writing 'run/checkpoints/.partial-*' was created within 60 s"
    )
    assert skipped[0] == pytest.approx(80.0, abs=0.1)
    assert rebooted[1] == "rebooted w1 (i-1)"
    assert [each for each in play.stage.asked if "do" in each] == []


def test_failed_faults_and_faults_that_cannot_be_undone_are_reported(tmp_path: Path) -> None:
    play = Play(tmp_path, 1)
    ask = play.stage.ask

    def failing(message: dict[str, str]) -> dict[str, Any]:
        if message["do"] == "mend":
            raise LocalCloudError("the daemon is busy")
        return ask(message)

    def call(operation: str, instance_id: str) -> None:
        raise LocalCloudError("UnauthorizedOperation")

    play.stage.ask, play.stage.call = failing, call  # type: ignore[method-assign]
    assert play.run(CUT, REBOOT) == ended(1, "cut the network of w1 (i-1)")
    assert [text for _, text in play.told] == [
        "cut the network of w1 (i-1)",
        "reboot failed: UnauthorizedOperation",
        *(["not undone: cut the network of w1 (i-1): the daemon is busy"] * 2),  # repeated once at the end
    ]


def test_failed_undo_is_retried_at_the_end(tmp_path: Path) -> None:
    play = Play(tmp_path, 1)
    ask, refused = play.stage.ask, [True]

    def busy_once(message: dict[str, str]) -> dict[str, Any]:
        if message["do"] == "mend" and refused.pop():
            refused.append(False)
            raise LocalCloudError("the daemon is busy")
        return ask(message)

    play.stage.ask = busy_once  # type: ignore[method-assign]
    assert play.run(CUT, REBOOT) == ended(2)
    assert play.told[2:] == [
        (40.0, "not undone: cut the network of w1 (i-1): the daemon is busy"),
        (40.0, "undone: cut the network of w1 (i-1)"),
    ]


def test_interruption_undoes_temporary_faults(tmp_path: Path) -> None:
    for ends_at_s in (15.0, 25.0):
        play = Play(tmp_path, 1, ends_at_s=ends_at_s)
        assert play.run(CUT, REBOOT) == ended(int(ends_at_s // 10), interrupted=True)
        assert play.stage.asked[-1] == {"do": "mend", "instance": "i-1"}
        assert play.told[-1] == (ends_at_s, "undone: cut the network of w1 (i-1)")


def test_schedule_stops_with_its_cloud(tmp_path: Path) -> None:
    play = Play(tmp_path, 1, 1)
    ask = play.stage.ask

    def ended_after_15_s(message: dict[str, str]) -> dict[str, Any]:
        if play.now > 65:
            raise NotRunningError("lc0")
        return ask(message)

    play.stage.ask = ended_after_15_s  # type: ignore[method-assign]
    with pytest.raises(NotRunningError):
        play.run(CUT, dataclasses.replace(CUT, at_s=20.0), dataclasses.replace(CUT, at_s=30.0))
    assert play.told == [(10.0, "cut the network of w1 (i-1)"), (20.0, "undone: cut the network of w1 (i-1)")]


def test_only_one_runner_is_allowed_and_killed_runner_does_not_block(tmp_path: Path) -> None:
    layout = Layout(name="x", run_root=tmp_path)
    with pytest.raises(NotRunningError), runner.locked(layout):
        pass
    layout.run.mkdir()
    code = (
        "import os; from localcloud.chaos.runner import *; from pathlib import Path\n"
        f"with locked(Layout(name='x', run_root=Path({str(tmp_path)!r}))): print(1, flush=True); os.read(0, 1)"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True) as other:
        assert other.stdout and other.stdout.readline() == "1\n"
        told = f"another `chaos` runs on the embedded cloud x; wait until it exits, or stop it with: kill {other.pid}"
        with pytest.raises(LocalCloudError, match=told), runner.locked(layout):
            pass
        other.kill()
    with runner.locked(layout):
        assert layout.chaos_lock.read_text() == str(os.getpid())


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> tuple[Cloud, dict[str, Any], list[dict[str, Any]]]:
    """Return a cloud with the state and hosts of a daemon."""
    state, hosts = {"started": 1.0, "pid": 7}, list[dict[str, Any]]()
    monkeypatch.setattr(lifecycle, "read_state", lambda layout: dict(state))
    monkeypatch.setattr(control_socket, "request", lambda layout, message: {"hosts": hosts})
    return Cloud(Layout(name="x"), "worker|i-9"), state, hosts


def test_hosts_that_match_are_sorted_by_name_and_address(
    cloud: tuple[Cloud, dict[str, Any], list[dict[str, Any]]],
) -> None:
    made, _, hosts = cloud
    for name, id, address in (("worker", "i-1", "10.0.0.10"), ("worker", "i-2", "10.0.0.9"), ("a", "i-9", "10.0.0.8")):
        hosts.append({"name": name, "instance_id": id, "private_ip": address})
    hosts.append({"name": "master", "instance_id": "i-3", "private_ip": "10.0.0.5"})
    assert [host["instance_id"] for host in made.hosts()] == ["i-9", "i-2", "i-1"]
    assert len(made.all_hosts()) == 4


def test_later_cloud_with_same_name_is_not_affected(
    cloud: tuple[Cloud, dict[str, Any], list[dict[str, Any]]],
) -> None:
    made, state, _ = cloud
    made.ask({"do": "cut", "instance": "i-1"})
    state["started"] = 2.0
    for call in (made.all_hosts, lambda: made.ask({"do": "cut", "instance": "i-1"})):
        with pytest.raises(NotRunningError, match="x was stopped, and another cloud with this name"):
            call()


@pytest.mark.parametrize(
    "last", ["cut the network of w1 (i-1)", "cut the network of w2 (i-2)", "undone: cut the network of w1 (i-1)"]
)
def test_faults_are_undone_once_if_events_cannot_be_recorded(tmp_path: Path, last: str) -> None:
    play, failing = Play(tmp_path, 1, 1), [False]

    def fail_from(text: str) -> None:
        failing[0] |= text == last
        if failing[0]:
            raise BrokenPipeError

    play.on_report = fail_from
    with pytest.raises(BrokenPipeError):
        play.run(CUT, Fault(at_s=12.0, kind="cut", place=0.9, lasts_s=40.0))
    cuts = sorted(message["instance"] for message in play.stage.asked if message["do"] == "cut")
    mends = sorted(message["instance"] for message in play.stage.asked if message["do"] == "mend")
    assert cuts == mends == (["i-1"] if last == "cut the network of w1 (i-1)" else ["i-1", "i-2"])


def test_active_fault_affects_only_other_hosts(tmp_path: Path) -> None:
    again = [Fault(at_s=at_s, kind="cut", place=0.0, lasts_s=5.0) for at_s in (20.0, 45.0)]
    play = Play(tmp_path, 1, 1)
    assert play.run(CUT, *again) == ended(3)
    assert [text for _, text in play.told if "undone" not in text] == [
        *("cut the network of w1 (i-1)", "cut the network of w2 (i-2)", "cut the network of w1 (i-1)")
    ]
