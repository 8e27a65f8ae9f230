"""Processes and files that ranks leave on a node: preparing the node finds all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.remote import rank_leftovers
from agent.spec.nodes import RANK_HOME, RANK_UID

STATUS = "Name:\tpython\tUid:\t7\nUmask:\t0022\nPid:\t{0}\nUid:\t{1}\t{2}\t{2}\t{2}\nGid:\t0\t0\t0\t0\n"
IPC = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return the root of a node that has staged data but has never run a rank."""
    for folder in (f"{RANK_HOME}/data/mnist", f"{RANK_HOME}/.cache/deepcdk/records/x", "/tmp/open", "/proc/sysvipc"):
        (tmp_path / folder[1:]).mkdir(parents=True)
    (tmp_path / "tmp/of-another-user").touch()
    (tmp_path / "tmp/open").chmod(0o1777)
    (tmp_path / "proc/sysvipc/sem").write_text(f"{IPC}0 0 600 1 0 0 0 0 {RANK_UID} 0\n")
    return tmp_path


def test_processes_of_rank_user_are_found_by_any_of_their_uids(tmp_path: Path) -> None:
    def add(pid: int, real: int, others: int) -> None:
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "status").write_text(STATUS.format(pid, real, others))

    add(7, 0, 0)
    add(8, 1000, 1000)
    (tmp_path / "proc/sys").mkdir()
    (tmp_path / "proc/10").mkdir()  # it exited during the search
    assert not rank_leftovers.processes_are_there(tmp_path)
    add(9, RANK_UID, 0)
    assert rank_leftovers.processes_are_there(tmp_path)
    (tmp_path / "proc/9/status").write_text(STATUS.format(9, 0, RANK_UID))
    assert rank_leftovers.processes_are_there(tmp_path)


def test_data_copies_and_record_indexes_are_not_leftovers(node: Path) -> None:
    assert not rank_leftovers.files_are_there(node)


@pytest.mark.parametrize(
    "path", [".bashrc", ".config/systemd/user/x.service", ".cache/torch/x", ".cache/deepcdk/taken/run", "database"]
)
def test_any_other_file_in_the_home_of_ranks_is_found(node: Path, path: str) -> None:
    left = node / RANK_HOME[1:] / path
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    assert rank_leftovers.files_are_there(node)


@pytest.mark.parametrize("name", ["data", ".cache", ".cache/deepcdk", ".cache/deepcdk/records"])
def test_link_in_place_of_kept_file_is_found(node: Path, name: str) -> None:
    place = node / RANK_HOME[1:] / name
    place.rename(node / "elsewhere")
    place.symlink_to(node / "elsewhere")
    assert rank_leftovers.files_are_there(node)


@pytest.mark.root
@pytest.mark.parametrize("path", ["tmp/x", "tmp/open/x", "dev/shm/sem.x", "dev/mqueue/x"])
def test_files_of_rank_user_are_found_in_world_writable_directories(node: Path, path: str) -> None:
    left = node / path
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    assert not rank_leftovers.files_are_there(node)
    os.chown(left, RANK_UID, RANK_UID)
    assert rank_leftovers.files_are_there(node)


@pytest.mark.parametrize("owners", [f"{RANK_UID} 0 0 0", f"0 0 {RANK_UID} 0"])
def test_shared_memory_that_ranks_own_or_have_given_away_is_found(node: Path, owners: str) -> None:
    (node / "proc/sysvipc/sem").write_text(f"{IPC}0 0 600 1 0 0 0 0 0 0\n1 1 600 1 {owners} 0 0\n")
    assert rank_leftovers.files_are_there(node)


def test_home_that_cannot_be_listed_counts_as_not_clean(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(list_of: Callable[..., object], path: Path) -> object:
        if path == node / RANK_HOME[1:]:
            raise PermissionError(path)
        return list_of(path)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: closed(scandir, path))
    assert rank_leftovers.files_are_there(node)
