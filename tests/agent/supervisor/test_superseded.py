"""Two writers of one run: a supervisor that was presumed dead, and concurrent calls from two laptops."""

from __future__ import annotations

import dataclasses
import io
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.runs import database, liveness
from agent.runs.directory import RunDirectory
from agent.runs.run_queue import RunQueue
from agent.runs.state import SupersededError
from agent.runs.store import LiveRunError, Runs
from agent.spec.states import QUEUED
from agent.supervisor import cli, rank_files
from agent.supervisor.resume import remove
from tests.agent.supervisor.live_runs import Call, live_state, run_processes, spec
from tests.factories import abandon, make_state
from tests.waiting import eventually


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(path=tmp_path / "one")
    found.path.mkdir()
    return found


OTHER = "a-new-master-0123456789abcdef"


def test_a_supervisor_whose_run_another_has_taken_writes_no_state(directory: RunDirectory) -> None:
    mine = make_state()
    directory.write_state(mine)
    directory.write_own_state(dataclasses.replace(mine, reason="goes on"))
    directory.write_state(make_state(owner=OTHER))
    with pytest.raises(SupersededError, match=f"owner: {OTHER}"):
        directory.write_own_state(dataclasses.replace(mine, reason="still there"))
    assert directory.stored_state().owner == OTHER


def test_a_supervisor_whose_run_another_has_taken_leaves_its_files_open_to_the_ranks(directory: RunDirectory) -> None:
    rank_files.open_to_ranks(directory)
    directory.write_state(make_state(owner=OTHER))
    with pytest.raises(SupersededError):
        directory.write_own_state(make_state(state="failed"))
    assert directory.path.stat().st_mode & 0o7777 == 0o1770


def test_a_supervisor_whose_run_was_marked_as_failed_does_not_bring_it_back(directory: RunDirectory) -> None:
    mine = make_state()
    directory.write_state(mine)
    assert directory.mark_failed("supervisor died: the master was replaced", of=mine.owner)
    with pytest.raises(SupersededError, match="which is now failed"):
        directory.write_own_state(mine)
    assert directory.stored_state().state == "failed"


def test_a_state_that_a_rank_has_spoilt_keeps_no_supervisor_from_writing(directory: RunDirectory) -> None:
    (directory.path / "state.json").write_text("{")
    directory.write_own_state(make_state())
    assert directory.stored_state() == make_state()


def test_a_run_that_was_resumed_since_one_looked_is_not_marked_as_failed(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop` finds a lost supervisor, `resume` starts a new attempt, then `stop` stores its finding."""
    directory.write_state(make_state(owner="gone"))
    abandon("one")
    again, looked = make_state(state="starting"), RunDirectory.lost_state

    def interleaved(self: RunDirectory) -> object:
        found = looked(self)
        if found is not None:
            self.write_state(again)
        return found

    monkeypatch.setattr(RunDirectory, "lost_state", interleaved)
    Runs(root=directory.path.parent).mark_lost("one")
    assert directory.stored_state() == again


def test_old_supervisor_never_overwrites_the_new_state(
    directory: RunDirectory,
) -> None:
    before, after = make_state(), make_state(owner=OTHER)
    directory.write_state(before)
    seen, written = [], threading.Event()

    def old() -> None:
        while True:
            try:
                directory.write_own_state(before)
            except SupersededError:
                return
            written.set()

    with ThreadPoolExecutor(4) as pool:
        olds = [pool.submit(old) for _ in range(3)]
        written.wait(timeout=30)
        directory.write_state(after)
        for _ in range(50):
            seen.append(directory.stored_state().owner)
        for each in olds:
            each.result(timeout=30)
    assert set(seen) == {OTHER}


def test_a_supervisor_that_outlives_its_master_ends_its_launcher_and_touches_nothing_more(
    efs: Path, supervisor: Call
) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    old = liveness.supervisor_pid("one")
    assert old is not None
    runs = Runs(root=efs / "runs")
    launched = set(eventually(lambda: run_processes(efs)))
    # `resume` on another master does this: it stores the state of a new attempt.
    taken = make_state(state="starting", owner=OTHER, started=time.time(), updated=time.time())
    runs["one"].write_state(taken)
    eventually(lambda: not _is_running(old))
    files = {path.name: path.read_bytes() for path in runs["one"].path.iterdir() if path.is_file()}
    assert not launched & set(run_processes(efs))
    assert runs["one"].stored_state() == taken
    assert runs.claims() == (), "this master's scheduler must not take it up"
    assert b"failed" not in files["launcher.log"]


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_run_that_was_resumed_since_one_found_it_lost_keeps_its_nodes(tmp_path: Path) -> None:
    runs = Runs(root=tmp_path)
    runs.claim("one", None)
    abandon("one")
    assert runs.lost() == ["one"]
    runs.claim("one", None)
    assert not runs.release_lost("one")
    assert runs.live() == ["one"]
    runs.release("one")
    runs.claim("one", None)
    abandon("one")
    assert runs.release_lost("one")
    assert runs.claims() == ()


@pytest.fixture
def ended(tmp_path: Path) -> Runs:
    """Return the runs; `one` has ended."""
    runs = Runs(root=tmp_path / "runs")
    runs["one"].path.mkdir(parents=True)
    runs["one"].write_state(make_state(state="stopped"))
    return runs


def test_a_run_that_cannot_be_stored_takes_no_place_in_the_queue(ended: Runs) -> None:
    queue = RunQueue(runs=ended)

    def fails() -> None:
        raise LiveRunError("one", "running")

    with pytest.raises(LiveRunError):
        queue.add("one", fails)
    with pytest.raises(OSError, match="nothing is there"):
        queue.add("two", lambda: (_ for _ in ()).throw(OSError("nothing is there")))
    assert queue.ids() == []


def test_a_run_that_was_queued_since_one_looked_is_not_removed(ended: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[bool] = []
    transaction = database.transaction

    def queue_first() -> object:
        if not queued:
            queued.append(True)
            RunQueue(runs=ended).add("one", lambda: ended["one"].write_state(make_state(state=QUEUED)))
        return transaction()

    monkeypatch.setattr(database, "transaction", queue_first)
    with pytest.raises(LiveRunError, match="queued"):
        remove(ended, ended["one"])
    assert ended["one"].stored_state().state == QUEUED


@pytest.mark.parametrize("command", ["resume", "remove", "stop", "show", "status"])
def test_a_run_that_another_laptop_removed_since_one_looked_is_no_such_run(
    efs: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(root=efs / "runs")
    runs["one"].path.mkdir(parents=True)
    runs["one"].write_state(make_state(state="stopped"))
    runs["one"].spec.write_text(spec(efs, "one", "exit 0"))
    look = cli.resolve

    def look_before_it_is_removed(there: Runs, run_id: str) -> RunDirectory:
        directory = look(there, run_id)
        remove(there, directory)
        return directory

    monkeypatch.setattr(cli, "resolve", look_before_it_is_removed)
    monkeypatch.setattr("sys.stdin", io.StringIO(spec(efs, "one", "exit 0")))
    assert cli.main(["--root", str(runs.root), command, *(["one"] if command != "resume" else [])]) == cli.NO_SUCH_RUN
    assert "unknown run one; " in capsys.readouterr().err
    assert (runs.live(), RunQueue(runs=runs).ids()) == ([], [])


def test_of_two_laptops_that_queue_an_ended_run_again_at_once_one_is_refused(efs: Path, supervisor: Call) -> None:
    assert supervisor("start", stdin=spec(efs, "one", "exit 3")).returncode == 0
    eventually(lambda: json.loads((efs / "runs/one/state.json").read_text())["state"] == "failed")
    eventually(lambda: not Runs(root=efs / "runs").claims())
    supervisor("start", stdin=spec(efs, "two", "sleep 6000"))
    live_state(efs, "two")
    again = spec(efs, "one", "exit 0")
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: supervisor("resume", "--queue", stdin=again), range(2)))
    assert sorted(each.returncode for each in done) == [0, 3]
    assert len(list((efs / "runs/one").glob("spec-*.json"))) == 1
    assert RunQueue(runs=Runs(root=efs / "runs")).ids() == ["one"]
    supervisor("stop", "one")
    supervisor("stop", "two", "--grace", "0")
