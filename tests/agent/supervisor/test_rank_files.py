"""Facts about the files of ranks: the login user reads and removes all of them, and goes on with none of its own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.remote.command import SSH, Completed, execute
from agent.runs.directory import RunDirectory
from agent.supervisor import rank_files


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    path = tmp_path / "runs" / "one run"
    (path / "work" / "deep").mkdir(parents=True)
    (path / "work" / "deep" / "model").write_text("weights")
    return RunDirectory(path=path)


class Master:
    """A master on which `find` lists, each time, the next of these answers."""

    def __init__(self, *found: str) -> None:
        self.found = list(found)
        self.as_rank: list[str] = []

    def __call__(self, command: Sequence[str], timeout_s: float) -> Completed:
        if command[0] == "find":
            return Completed(status=0, output=self.found.pop(0))
        assert list(command[:4]) == [SSH, "-l", "deepcdk-rank", "deeplearning-master"]
        self.as_rank.append(command[4])
        return Completed(status=0, output="")


def test_where_all_can_be_read_nobody_logs_in(directory: RunDirectory) -> None:
    master = Master("")
    assert rank_files.make_readable(directory, master) == ""
    assert master.as_rank == []


def test_what_ranks_alone_can_read_they_are_made_to_show(directory: RunDirectory) -> None:
    hidden = f"{directory.path}/work/deep"
    master = Master(f"find: '{hidden}': Permission denied\n{hidden}\n", "")
    assert rank_files.make_readable(directory, master) == ""
    assert master.as_rank == [f"chmod -fR u+rX,a+rX -- '{directory.path}'"]
    assert rank_files.make_readable(directory, Master(f"{hidden}\n", f"{hidden}\n")) == f"{hidden} cannot be read"


def test_the_search_for_unreadable_files_is_one_that_find_understands(directory: RunDirectory) -> None:
    assert rank_files.make_readable(directory, execute) == ""


def test_what_the_login_user_cannot_remove_ranks_remove_first(
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
    rank_files.remove(directory.path, master)
    quoted = f"'{directory.path}'"
    assert master.as_rank == [f"chmod -fR u+rwX -- {quoted}; find {quoted} -mindepth 1 -delete"]
    assert not directory.path.exists()
