from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO

import pytest

from agent.files.atomic_write import StorageError
from payload.training.checkpoints.storage import DirectoryStorage


def storage(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "checkpoints")


def put(storage: DirectoryStorage, name: str, content: bytes = b"arrays") -> None:
    def fill(file: IO[bytes]) -> bytes:
        file.write(content)
        return b"manifest of " + content

    storage.put(name, len(content), fill)


def test_what_was_put_is_there_under_its_name_the_newest_first(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    assert directory.names() == []
    for name in ("step-00000005", "step-00000100", "step-00000020"):
        put(directory, name, name.encode())
    assert directory.names() == ["step-00000100", "step-00000020", "step-00000005"]
    assert directory.manifest("step-00000020") == b"manifest of step-00000020"
    with directory.arrays("step-00000020") as file:
        assert file.read() == b"step-00000020"
    assert directory.address("step-00000005") == str(tmp_path / "checkpoints" / "step-00000005")


def test_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000005")
    for name in ("step-5", "step-latest", ".partial-step-00000009", "notes"):
        (directory.path / name).mkdir()
    assert directory.names() == ["step-00000005"]


def test_the_same_name_takes_the_new_content(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000004", b"old")
    put(directory, "step-00000004", b"new")
    assert directory.manifest("step-00000004") == b"manifest of new"
    assert [path.name for path in directory.path.iterdir()] == ["step-00000004"]


def test_a_write_that_fails_leaves_what_was_there_and_its_room(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000004", b"old")

    def fill(file: IO[bytes]) -> bytes:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageError, match=r"step-00000004: No space left on device .* go on with --resume"):
        directory.put("step-00000004", 9, fill)
    assert directory.manifest("step-00000004") == b"manifest of old"
    assert [path.name for path in directory.path.iterdir()] == ["step-00000004"]


def test_what_was_removed_is_gone_and_what_is_not_there_is_no_matter(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000004")
    directory.remove("step-00000004")
    directory.remove("step-00000004")
    assert list(directory.path.iterdir()) == []


def test_tidying_removes_what_killed_writers_left_and_nothing_else(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000004")
    for name in (".partial-step-00000005", ".removed-step-00000003", "notes"):
        (directory.path / name).mkdir()
        (directory.path / name / "file").touch()
    directory.tidy()
    assert sorted(path.name for path in directory.path.iterdir()) == ["notes", "step-00000004"]


def test_two_writers_of_the_same_name_at_once_do_not_mix_their_files(tmp_path: Path) -> None:
    one, other = storage(tmp_path), storage(tmp_path)

    def fill(file: IO[bytes]) -> bytes:
        file.write(b"one")
        put(other, "step-00000004", b"other")
        file.write(b", the rest")
        return b"manifest of one"

    one.put("step-00000004", 13, fill)
    with one.arrays("step-00000004") as file:
        assert (file.read(), one.manifest("step-00000004")) == (b"one, the rest", b"manifest of one")
    assert [path.name for path in one.path.iterdir()] == ["step-00000004"]


def test_the_writer_that_was_recorded_last_is_read(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    assert directory.writer() is None
    directory.set_writer(b"one")
    directory.set_writer(b"other")
    put(directory, "step-00000004")
    assert (storage(tmp_path).writer(), directory.names()) == (b"other", ["step-00000004"])


def test_a_place_that_cannot_be_written_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the directory should be")
    with pytest.raises(StorageError, match="checkpoints: File exists"):
        storage(tmp_path).set_writer(b"one")
