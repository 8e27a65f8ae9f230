"""Facts about files that another node writes, on a shared file system as NFS is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent.files.listing import is_listed, listed_below, read_listed
from tests.nfs import nfs_client


def test_a_file_is_looked_for_in_its_directorys_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS may say for a while that a new file is not there, and lists it nevertheless."""
    (tmp_path / "file").touch()

    def stat(path: Path, **_: bool) -> os.stat_result:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    monkeypatch.setattr(Path, "stat", stat)
    assert not (tmp_path / "file").exists()
    assert is_listed(tmp_path / "file")
    assert not is_listed(tmp_path / "other")
    assert not is_listed(tmp_path / "absent" / "file")
    assert not is_listed(tmp_path / "file" / "below")


def test_a_file_is_read_once_it_is_listed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        read_listed(tmp_path / "absent")
    (tmp_path / "file").write_bytes(b"here")
    assert read_listed(tmp_path / "file") == b"here"


def test_files_below_a_directory_are_looked_for_in_every_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "set/a/b").mkdir(parents=True)
    for name in ("top", "a/one", "a/b/two"):
        (tmp_path / "set" / name).touch()
    wanted = ["top", "a/one", "a/b/two", "a/b/three", "c/d/four", "top/below", "a"]
    assert listed_below(tmp_path / "set", wanted) == {"top", "a/one", "a/b/two", "a"}
    assert listed_below(tmp_path / "absent", wanted) == frozenset()


@pytest.mark.root
def test_what_another_node_wrote_is_seen_though_it_was_looked_for_before(tmp_path: Path) -> None:
    (tmp_path / "server/set").mkdir(parents=True)
    with nfs_client(tmp_path / "server", tmp_path / "client") as shared:
        looked_for = ["file", "folder/file"]
        assert not is_listed(shared / "set/file")
        assert listed_below(shared / "set", looked_for) == frozenset()
        (tmp_path / "server/set/folder").mkdir()
        for name in looked_for:
            (tmp_path / "server/set" / name).write_bytes(b"here")
        assert read_listed(shared / "set/file") == b"here"
        assert listed_below(shared / "set", looked_for) == set(looked_for)
