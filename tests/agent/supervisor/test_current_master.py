"""Two masters at the same time: the replaced one starts nothing more, and its supervisors leave their runs alone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agent.runs import liveness
from agent.runs.node_claims import Runs
from agent.supervisor import cli, current_master, scheduler
from tests.agent.supervisor.live_runs import Call, live_state, run_processes, spec, supervisors
from tests.waiting import eventually

OTHER = "i-0fffffffffffffff0"


def replace_master(root: Path) -> None:
    """Write what a new master writes, as this user on another machine."""
    (root / current_master.FILE).write_text(f"{OTHER}\n")


def test_new_master_stores_once_that_it_is_the_current_one(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    current_master.take(root)
    assert not root.exists(), "a command that fails leaves no directory"
    root.mkdir()
    current_master.take(root)
    assert (root / current_master.FILE).read_text() == f"{socket.gethostname()}\n"
    assert (root / current_master.FILE).stat().st_mode & 0o777 == 0o644
    assert current_master.successor(root) is None
    replace_master(root)
    current_master.take(root)
    assert current_master.successor(root) == OTHER, "it does not take the runs back"


def test_new_master_replaces_an_earlier_one(tmp_path: Path, home: Path) -> None:
    replace_master(tmp_path)
    assert current_master.successor(tmp_path) is None, "the file is of its predecessor"
    current_master.take(tmp_path)
    assert current_master.successor(tmp_path) is None
    assert (tmp_path / current_master.FILE).read_text() == f"{socket.gethostname()}\n"
    (home / current_master.TAKEN).write_text("i-0123456789abcdef0\n")  # in an image of the other master's disk
    replace_master(tmp_path)
    assert current_master.successor(tmp_path) is None


@pytest.mark.parametrize("damage", ["missing", "empty", "link", "pipe", "large"])
def test_damaged_file_does_not_stop_the_master(tmp_path: Path, damage: str) -> None:
    current_master.take(tmp_path)
    path = tmp_path / current_master.FILE
    path.unlink()
    match damage:
        case "empty":
            path.touch()
        case "link":
            (tmp_path / "elsewhere").write_text(OTHER)
            path.symlink_to(tmp_path / "elsewhere")
        case "pipe":
            os.mkfifo(path)
        case "large":
            path.write_text(OTHER * 100)
    assert current_master.successor(tmp_path) is None


def test_supervisor_of_a_replaced_master_stops_its_launcher_and_changes_nothing(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    launched = set(eventually(lambda: run_processes(efs)))
    runs = Runs(root=efs / "runs")
    before = runs["one"].stored_state()
    replace_master(runs.root)
    eventually(lambda: not supervisors(efs))
    assert not launched & set(run_processes(efs))
    assert runs["one"].stored_state() == before, "the state belongs to the new master"
    assert not liveness.is_held("one")
    assert b"failed" not in runs["one"].log.read_bytes()


@pytest.mark.parametrize("words", [("status", "--list"), ("stop", "one"), ("start",), ("schedule",)])
def test_commands_on_a_replaced_master_fail_with_the_reason(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    current_master.take(root)
    replace_master(root)
    assert cli.main(["--root", str(root), *words]) == cli.FAILED
    shown = capsys.readouterr().err
    assert f"{OTHER} has replaced this master, {socket.gethostname()}; repeat the command" in shown


def test_scheduler_exits_when_its_master_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(root=tmp_path / "runs")
    runs.claim("one", None)
    current_master.take(runs.root)
    monkeypatch.setattr(Runs, "watched", lambda self: ["one"])  # so that it has a reason to continue
    monkeypatch.setattr("agent.supervisor.scheduler.time.sleep", lambda _: replace_master(runs.root))
    scheduler.run(runs)
    assert runs.live() == ["one"]
