"""Facts about what earlier runs leave on a node: it is found whatever it calls itself, and other work goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.remote import rank_leftovers
from agent.remote.secret_files import TAKEN
from agent.spec.nodes import RANK_UID

RUNS = "/mnt/efs/runs"
STATUS = "Name:\tpython\tUid:\t7\nUmask:\t0022\nPid:\t{}\nPPid:\t{}\nUid:\t{}\t0\t0\t0\nGid:\t0\t0\t0\t0\n"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def lay_out(proc: Path, *processes: tuple[int, int, int], of_run: tuple[int, ...] = ()) -> Path:
    """Write what /proc says of processes, each by its number, its parent's and its user; some are of a run."""
    for pid, parent, uid in processes:
        (proc / str(pid)).mkdir()
        (proc / str(pid) / "status").write_text(STATUS.format(pid, parent, uid))
        marks = f"DEEPCDK_RUNS={RUNS}\0DEEPCDK_RUN=one\0" if pid in of_run else ""
        (proc / str(pid) / "environ").write_text(f"{marks}PATH=/usr/bin\0")
        (proc / str(pid) / "stat").write_text(f"{pid} (a b) S {parent} 0 0")
    return proc


def test_whoever_asks_learns_whether_the_user_of_ranks_has_processes(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "10").mkdir()  # it ended while it was looked for
    lay_out(tmp_path, (7, 1, 0), (8, 7, 1000))
    assert not rank_leftovers.are_there(tmp_path)
    lay_out(tmp_path, (9, 7, RANK_UID))
    assert rank_leftovers.are_there(tmp_path)


def test_what_no_connection_started_is_left_over_and_what_belongs_to_a_run(tmp_path: Path) -> None:
    own, root = os.getuid(), os.getuid() + 1
    proc = lay_out(
        tmp_path,
        *((1, 0, root), (10, 1, root), (11, 10, root)),
        *((20, 11, own), (21, 20, own)),  # a command over SSH that is no run's
        *((30, 11, own), (31, 30, own)),  # ranks whose master was cut off
        *((40, 1, own), (41, 40, own)),  # what has left its connection, and its child
        (50, 99, own),  # its parent has ended since
        of_run=(30, 31),
    )
    assert sorted(rank_leftovers.find(RUNS, proc)) == [30, 31, 40, 41, 50]
    assert sorted(rank_leftovers.find("/elsewhere", proc)) == [40, 41, 50]


def test_the_users_own_systemd_is_no_leftover(tmp_path: Path) -> None:
    proc = lay_out(tmp_path, (7, 1, os.getuid()), (8, 1, os.getuid()))
    (proc / "7" / "exe").symlink_to("/usr/lib/systemd/systemd")
    (proc / "8" / "exe").symlink_to("/usr/bin/python3")
    assert rank_leftovers.find(RUNS, proc) == [8]


def test_what_is_left_over_is_ended_and_its_secrets_are_removed(
    sleeper: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is on the machine of the tests besides them has no part in this.
    monkeypatch.setattr(rank_leftovers, "find", lambda runs: [sleeper.pid] if sleeper.poll() is None else [])
    monkeypatch.setattr(rank_leftovers, "home", lambda: tmp_path)
    (tmp_path / TAKEN).mkdir(parents=True)
    (tmp_path / TAKEN / "an-earlier-run").write_text("{}")
    assert rank_leftovers.clear(RUNS, 10.0) == []
    assert sleeper.wait(timeout=10) == -9
    assert not (tmp_path / TAKEN).exists()


def test_what_stays_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_leftovers, "find", lambda runs: [7])
    monkeypatch.setattr(rank_leftovers, "home", lambda: tmp_path)
    monkeypatch.setattr(rank_leftovers, "CLEARING_S", 0.0)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    assert rank_leftovers.main([RUNS]) == 1
    assert capsys.readouterr().err == "processes of an earlier run stay: 7\n"
