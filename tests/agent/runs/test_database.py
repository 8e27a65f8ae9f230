"""The run database: permissions, migrations, crashes, full disks, corruption, claims and the queue."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.runs import database, run_queue, trusted_spec
from agent.runs import stored_state as states
from agent.runs.database import DatabaseError
from agent.runs.node_claims import LiveRunError, Runs
from tests.factories import make_node, make_spec, make_state

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(home: Path) -> Path:
    """Return the path of the database."""
    return home / database.FILE


def rows() -> list[tuple[object, ...]]:
    return database.rows("SELECT run_id FROM states ORDER BY rowid")


def insert(run_id: str) -> None:
    with database.transaction() as changing:
        changing.execute("INSERT INTO states (run_id, state, document) VALUES (?, 'stopped', '{}')", (run_id,))


def test_database_is_private_and_not_created_by_reading(path: Path) -> None:
    assert (rows(), path.exists()) == ([], False)
    before = os.umask(0)
    try:
        insert("one")
        database.backup()
    finally:
        os.umask(before)
    assert {each.name: each.stat().st_mode & 0o777 for each in path.parent.glob("runs.*")} == {
        "runs.sqlite": 0o600, "runs.sqlite.backup": 0o600, "runs.lock": 0o600,
    }  # fmt: skip


def test_database_of_a_newer_version_is_left_alone(path: Path) -> None:
    insert("one")
    with contextlib.closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 1000")
    with pytest.raises(DatabaseError, match=r"with schema 1000; .* update deepcdk where you run `fab`, then repeat"):
        rows()
    assert not list(path.parent.glob("*.damaged-*"))


def test_concurrent_first_uses_wait_for_each_other(path: Path) -> None:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        committing = threading.Timer(0.3, other.rollback)
        committing.start()
        insert("one")
        committing.join()
    assert rows() == [("one",)]


def test_error_rolls_back_whole_transaction_even_if_nested(path: Path) -> None:
    with pytest.raises(ValueError, match="no"), database.transaction():
        insert("one")
        raise ValueError("no")
    assert rows() == []


def test_database_rejects_node_of_another_claim(path: Path) -> None:
    runs = Runs(root=path.parent)
    runs.claim("one", [make_node(1)])
    with pytest.raises(DatabaseError, match="UNIQUE constraint failed"), database.transaction() as changing:
        changing.execute("INSERT INTO claims (run_id, task, every_node) VALUES ('two', '', 0)")
        changing.execute("INSERT INTO claimed_nodes VALUES ('two', 'deeplearning-worker1', 'i-0000000b')")
    assert [claim.run_id for claim in runs.claims()] == ["one"]


def test_full_disk_is_reported_and_changes_nothing(path: Path) -> None:
    insert("one")
    with (
        pytest.raises(DatabaseError, match="full; free space on the master's disk"),
        database.transaction() as changing,
    ):
        changing.execute("PRAGMA max_page_count = 1")
        changing.execute("INSERT INTO specs VALUES ('one', ?)", ("x" * 1_000_000,))
    assert (rows(), database.rows("SELECT * FROM specs")) == ([("one",)], [])


@pytest.mark.parametrize("has_backup", [True, False])
def test_damaged_database_is_replaced_by_its_backup_with_a_warning(
    path: Path, capsys: pytest.CaptureFixture[str], has_backup: bool
) -> None:
    insert("one")
    if has_backup:
        database.backup()
    path.write_bytes(b"x" * 10_000)
    assert rows() == ([("one",)] if has_backup else [])
    said = capsys.readouterr().err
    assert "the database of runs is damaged (file is not a database)" in said
    assert ("the backup of " if has_backup else "there is no backup, so no run is queued: ") in said
    (kept,) = path.parent.glob("*.damaged-*")
    assert (kept.read_bytes(), f"The damaged file is kept as {kept}" in said) == (b"x" * 10_000, True)
    insert("two")
    assert rows()[-1] == ("two",)


def test_database_replaced_by_another_process_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    insert("one")
    database.backup()
    path.write_bytes(b"x" * 10_000)
    found, replaced, replace = threading.Event(), threading.Event(), database._replace_damaged

    def late(*words: Any) -> None:
        found.set()
        replaced.wait(1.0)  # The other thread waits for the lock of this one, so it replaces nothing before.
        replace(*words)

    monkeypatch.setattr(database, "_replace_damaged", late)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(rows)
        assert found.wait(30)
        monkeypatch.setattr(database, "_replace_damaged", replace)
        insert("two")
        replaced.set()
        assert first.result() in ([("one",)], [("one",), ("two",)])
    assert rows() == [("one",), ("two",)]
    assert len(list(path.parent.glob("*.damaged-*"))) == 1


def test_live_run_claims_its_nodes_again_after_its_claim_was_lost(path: Path) -> None:
    runs, spec = Runs(root=path.parent / "runs"), make_spec(run_id="one", hosts=(make_node(1),))
    runs.claim("one", spec.hosts)
    path.write_bytes(b"x" * 10_000)
    assert runs.live() == []
    for _ in range(2):
        runs.reclaim(spec, make_state())
        assert (runs.live(), trusted_spec.read("one")) == (["one"], spec)
        assert runs["one"].stored_state() == make_state()
    with pytest.raises(LiveRunError, match="run one is live"):
        runs.claim("two", spec.hosts)


def test_damage_found_in_query_is_repaired_and_never_backed_up(path: Path) -> None:
    insert("one")
    database.backup()
    with database.transaction() as changing:
        changing.executemany("INSERT INTO specs VALUES (?, ?)", [(f"{n}", "x" * 500) for n in range(200)])
    with contextlib.closing(sqlite3.connect(path)) as flushed:
        flushed.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xff" * (len(content) - 8192))
    with pytest.raises(DatabaseError, match=r"malformed; it was replaced, as a warning reports; repeat the command$"):
        database.backup()
    assert rows() == [("one",)]
    assert len(list(path.parent.glob("*.damaged-*"))) == 1


def test_only_master_without_runs_imports_database_of_another(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert("one")
    trusted_spec.accept(make_spec(run_id="one"))
    copy = tmp_path / "left"
    copy.write_bytes(database.backup())
    insert("later")
    database.restore(copy)
    assert rows() == [("one",), ("later",)], "the disk is newer than the backup"
    monkeypatch.setenv("HOME", str(tmp_path / "next"))
    database.restore(copy)
    assert (rows(), trusted_spec.read("one").run_id) == ([("one",)], "one")
    monkeypatch.setenv("HOME", str(tmp_path / "third"))
    copy.write_bytes(b"no database")
    with pytest.raises(DatabaseError, match="file is not a database; this backup cannot be used"):
        database.restore(copy)
    assert rows() == []


CHANGES = """
import sys
from agent.runs import database, run_queue, trusted_spec
from agent.runs.node_claims import Runs
from tests.factories import make_node, make_spec, make_state
from pathlib import Path
runs = Runs(root=Path(sys.argv[1]))
for number in range(int(sys.argv[2]), 100_000):
    name = f"run{number}"
    directory = runs[name]
    with database.transaction():
        directory.path.mkdir(parents=True)
        directory.write_state(make_state(run_id=name, state="queued"))
        trusted_spec.accept(make_spec(run_id=name))
    print("queued", name, flush=True)
    runs.claim(name, [make_node(1)])
    assert run_queue.dequeue(directory, make_state(run_id=name, state="starting"), "spec")
    print("started", name, flush=True)
    directory.mark_failed("over")
    runs.release(name)
    print("ended", name, flush=True)
"""
"""A master that queues, starts and ends runs, and reports each step once it is done."""


def test_database_survives_200_kills_without_losing_reported_data(tmp_path: Path, home: Path) -> None:
    choose, runs, first = random.Random(1), Runs(root=tmp_path / "runs"), 0
    kills = int(os.environ.get("DEEPCDK_KILLS", "10"))
    started: list[str] = []
    for _ in range(kills):
        command = [sys.executable, "-c", CHANGES, str(runs.root), str(first)]
        with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as master:
            assert master.stdout is not None
            master.stdout.readline()
            time.sleep(choose.random() * 0.2)
            master.send_signal(signal.SIGKILL)
            said = [line.split() for line in master.stdout.read().splitlines()]
        (found,) = database.rows("PRAGMA integrity_check")[0]
        assert found == "ok"
        started += [name for step, name in said if step == "started"]
        waiting = run_queue.ids()
        assert len(started) == len(set(started)) and not set(started) & set(waiting)
        last: dict[str, str] = {name: step for step, name in said}
        for name, step in last.items():
            state = runs[name].effective_state().state
            assert step != "queued" or name in waiting or state in ("starting", "failed")
            assert step != "ended" or (state == "failed" and name not in waiting)
        assert runs.live() == [], "whatever the killed process had can be taken"
        assert len(runs.claims()) <= 1
        for run_id in runs.lost():
            assert runs.release_lost(run_id)
        for run_id in waiting:
            assert run_queue.finish(runs[run_id], "stopped", "out")
        first = 1 + max([first, *(int(each.name[3:]) for each in runs.root.glob("run*"))])
    before = states.every()
    shutil.rmtree(home / ".deepcdk")
    states.import_copies(runs.root)
    ended = {state.run_id for state in states.every() if state.has_ended}
    assert {state.run_id for state in before if state.has_ended} <= ended, "a new master knows them from their copies"
