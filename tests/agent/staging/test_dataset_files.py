"""Facts about files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.staging.dataset_files import thread_token, unique_token, write_verified
from agent.staging.errors import CorruptingDiskError, DatasetError, DiskFullError, dataset_error


def test_a_file_appears_in_a_new_directory_and_takes_anothers_place(tmp_path: Path) -> None:
    target = tmp_path / "new" / "deep" / "file"
    for blocks in ((b"one", b"and", b"two again"), (), (b"three",)):
        write_verified(str(tmp_path / "temporary"), str(target), blocks)
        assert target.read_bytes() == b"".join(blocks)
    assert target.stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / "temporary").exists()


def test_what_a_killed_process_left_at_the_temporary_path_does_not_remain_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "temporary").write_bytes(b"left by another")
    (tmp_path / "temporary").chmod(0o600)
    write_verified(str(tmp_path / "temporary"), str(tmp_path / "file"), (b"new",))
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_source_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"new"
        raise ValueError("no more")

    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(ValueError, match="no more"):
        write_verified(str(tmp_path / "temporary"), str(target), failing())
    assert ([path.name for path in tmp_path.iterdir()], target.read_bytes()) == (["file"], b"old")


def test_a_disk_that_gives_back_other_bytes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pread", lambda *_: b"other")
    with pytest.raises(CorruptingDiskError, match="reads back other bytes"):
        write_verified(str(tmp_path / "temporary"), str(tmp_path / "file"), (b"these",))
    assert not list(tmp_path.iterdir())


def test_what_the_system_refuses_is_told_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "in the way").mkdir()
    with pytest.raises(DatasetError, match=r"in the way.*Is a directory"):
        write_verified(str(tmp_path / "temporary"), str(tmp_path / "in the way"), (b"new",))


def test_a_full_disk_is_told_as_one_and_other_errors_by_their_words() -> None:
    assert isinstance(dataset_error(OSError(28, "No space left on device"), "/x"), DiskFullError)
    assert isinstance(dataset_error(OSError(13, "Permission denied"), "/x"), DatasetError)


def test_every_token_is_fresh_and_a_threads_is_its_own() -> None:
    assert unique_token() != unique_token()
    assert thread_token() == thread_token()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(thread_token).result() != thread_token()
    for token in (unique_token(), thread_token()):
        assert token.startswith(f"{os.uname().nodename}-{os.getpid()}-"), "on a shared file system, nodes differ too"


def test_a_directory_that_another_thread_makes_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, replace = tmp_path / "new" / "file", os.replace

    def beaten(source: str, destination: str) -> None:
        if not target.parent.exists():
            target.parent.mkdir()
            raise FileNotFoundError(2, "No such file or directory")
        replace(source, destination)

    monkeypatch.setattr(os, "replace", beaten)
    write_verified(str(tmp_path / "temporary"), str(target), (b"content",))
    assert target.read_bytes() == b"content"
