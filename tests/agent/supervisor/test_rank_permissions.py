"""Files of ranks: the login user can read and remove all of them, and each live run has a separate group."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.remote.ssh import SSH, Completed, execute
from agent.runs import database
from agent.runs.run_directory import RunDirectory
from agent.supervisor import rank_permissions


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    path = tmp_path / "runs" / "one run"
    (path / "work" / "deep").mkdir(parents=True)
    (path / "work" / "deep" / "model").write_text("weights")
    return RunDirectory(path=path)


class Master:
    """A master with given answers to `find`, one after the other."""

    def __init__(self, *found: str) -> None:
        self.found = list(found)
        self.as_rank: list[str] = []

    def __call__(self, command: Sequence[str], timeout_s: float) -> Completed:
        if command[0] == "find":
            return Completed(status=0, output=self.found.pop(0))
        assert list(command[:4]) == [SSH, "-l", "deepcdk-rank", "deeplearning-master"]
        self.as_rank.append(command[4])
        return Completed(status=0, output="")


def test_readable_files_need_no_login(directory: RunDirectory) -> None:
    master = Master("")
    assert rank_permissions.make_readable(directory, master) == ""
    assert master.as_rank == []


def test_ranks_make_their_unreadable_files_readable(directory: RunDirectory) -> None:
    hidden = f"{directory.path}/work/deep"
    os.chown(directory.path, -1, os.getgid())
    master = Master(f"find: '{hidden}': Permission denied\n{hidden}\n", "")
    assert rank_permissions.make_readable(directory, master) == ""
    assert master.as_rank == [f"chmod -fR u+rX,a+rX -- '{directory.path}'"]
    assert rank_permissions.make_readable(directory, Master(f"{hidden}\n", f"{hidden}\n")) == f"cannot read {hidden}"


def test_find_accepts_the_search_for_unreadable_files(directory: RunDirectory) -> None:
    assert rank_permissions.make_readable(directory, execute) == ""


def test_ranks_remove_files_that_the_login_user_cannot(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, tries = shutil.rmtree, []

    def refused_once(path: Path) -> None:
        tries.append(path)
        if len(tries) == 1:
            raise PermissionError(13, "Permission denied", str(path))
        removing(path)

    monkeypatch.setattr(shutil, "rmtree", refused_once)
    master = Master()
    rank_permissions.remove(directory.path, master)
    (command,) = master.as_rank
    quoted = f"'{directory.path}'"
    script = f"chmod -fR u+rwX -- {quoted}; find {quoted} -mindepth 1 -delete"
    assert shlex.split(command) == ["sg", "deepcdk-run99", "-c", script], "a group that no run gets"
    assert not directory.path.exists()


def opened(directory: RunDirectory) -> tuple[int, int]:
    found = directory.path.stat()
    return found.st_gid, found.st_mode & 0o7777


@pytest.mark.root
def test_each_live_run_has_its_own_group(tmp_path: Path) -> None:
    one, two, three = (RunDirectory(path=tmp_path / name) for name in ("one", "two", "three"))
    for each in (one, two, three):
        each.path.mkdir()
    rank_permissions.open_to_ranks(one, lambda: ["one"])
    rank_permissions.open_to_ranks(two, lambda: ["one", "two"])
    assert (opened(one), opened(two)) == ((60901, 0o1770), (60902, 0o1770))
    rank_permissions.open_to_ranks(two, lambda: ["one", "two"])
    assert opened(two) == (60902, 0o1770), "a new supervisor finds the ranks of the lost one"
    one.close_to_ranks()
    rank_permissions.open_to_ranks(three, lambda: ["two", "three"])
    assert (opened(one), opened(three)) == ((60901, 0o700), (60901, 0o1770))
    rank_permissions.open_to_ranks(one, lambda: ["one", "two", "three"])
    assert opened(one) == (60903, 0o1770), "another run has its former group"


def test_live_runs_are_listed_while_no_other_run_can_choose_a_group(directory: RunDirectory) -> None:
    seen = []

    def live() -> list[str]:
        other = sqlite3.connect(Path.home() / database.FILE, timeout=0)
        with contextlib.closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        seen.append(directory.run_id)
        return seen

    rank_permissions.open_to_ranks(directory, live)
    assert seen == [directory.run_id]


@pytest.mark.root
def test_no_two_live_runs_share_a_group_when_all_are_taken(tmp_path: Path) -> None:
    names = [f"run{number}" for number in range(1, 100)]
    for name in names:
        (tmp_path / name).mkdir()
    for name in names[:-1]:
        rank_permissions.open_to_ranks(RunDirectory(path=tmp_path / name), lambda: names)
    with pytest.raises(OSError, match="98 runs are live, the maximum; wait until a run ends"):
        rank_permissions.open_to_ranks(RunDirectory(path=tmp_path / names[-1]), lambda: names)
    assert len({opened(RunDirectory(path=tmp_path / name)) for name in names[:-1]}) == 98


def test_directory_stays_closed_without_groups_for_runs(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, uid: int, gid: int, *, follow_symlinks: bool) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "chown", refused)
    directory.close_to_ranks()
    rank_permissions.open_to_ranks(directory)
    assert opened(directory)[1] == 0o700
