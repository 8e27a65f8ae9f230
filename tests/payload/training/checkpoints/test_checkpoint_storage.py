"""Checkpoints in a directory and in a bucket."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.files.atomic_write import StorageError
from agent.staging.s3_streams import BucketClient, BucketError
from payload.settings import SettingError
from payload.training.checkpoints.checkpoint_files import (
    CheckpointStore,
    DamagedCheckpointError,
    SupersededError,
    storage_for,
)
from payload.training.checkpoints.checkpoint_storage import ATTEMPTS, DirectoryStorage, S3Storage
from payload.training.checkpoints.save_policy import Retention
from payload.training.progress import Progress


def storage(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "checkpoints")


def put(storage: DirectoryStorage, name: str, content: bytes = b"arrays") -> None:
    def fill(file: IO[bytes]) -> bytes:
        file.write(content)
        return b"manifest of " + content

    storage.put(name, len(content), fill)


def test_stored_checkpoints_are_listed_newest_first(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    assert directory.names() == []
    for name in ("step-00000005", "step-00000100", "step-00000020"):
        put(directory, name, name.encode())
    assert directory.names() == ["step-00000100", "step-00000020", "step-00000005"]
    assert directory.manifest("step-00000020") == b"manifest of step-00000020"
    with directory.arrays("step-00000020") as file:
        assert file.read() == b"step-00000020"
    assert directory.address("step-00000005") == str(tmp_path / "checkpoints" / "step-00000005")


def test_other_names_are_not_checkpoints(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000005")
    for name in ("step-5", "step-latest", ".partial-step-00000009", "notes"):
        (directory.path / name).mkdir()
    assert directory.names() == ["step-00000005"]


def test_same_name_gets_the_new_content(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000004", b"old")
    put(directory, "step-00000004", b"new")
    assert directory.manifest("step-00000004") == b"manifest of new"
    assert [path.name for path in directory.path.iterdir()] == ["step-00000004"]


def test_failed_write_keeps_earlier_content_and_frees_space(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000004", b"old")

    def fill(file: IO[bytes]) -> bytes:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        StorageError,
        match=r"step-00000004: No space left on device .* to continue training: `fab resume`, or add --resume",
    ):
        directory.put("step-00000004", 9, fill)
    assert directory.manifest("step-00000004") == b"manifest of old"
    assert [path.name for path in directory.path.iterdir()] == ["step-00000004"]


def test_removed_checkpoints_are_gone_and_missing_ones_cause_no_error(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    put(directory, "step-00000004")
    directory.remove("step-00000004")
    directory.remove("step-00000004")
    assert list(directory.path.iterdir()) == []


def test_cleanup_removes_only_remains_of_killed_writers(tmp_path: Path) -> None:
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


def test_last_recorded_writer_is_read(tmp_path: Path) -> None:
    directory = storage(tmp_path)
    assert directory.writer() is None
    directory.set_writer(b"one")
    directory.set_writer(b"other")
    put(directory, "step-00000004")
    assert (storage(tmp_path).writer(), directory.names()) == (b"other", ["step-00000004"])


def test_unwritable_directory_is_reported_before_training(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the directory should be")
    with pytest.raises(StorageError, match="checkpoints: File exists"):
        storage(tmp_path).set_writer(b"one")


class Killed(BaseException):
    """Stop the writer as SIGKILL does: it executes no more code."""


class Memory(BucketClient):
    """Objects in this process, with calls that fail or die on request."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.failing: set[int] = set()
        self.killed_at: int | None = None

    def address(self, path: str = "") -> str:
        return f"s3://bucket/{path}"

    def _call(self, name: str) -> None:
        number = len(self.calls)
        self.calls.append(name)
        if number in self.failing:
            raise BucketError("use", self.address(), "no answer")
        if number == self.killed_at:
            raise Killed

    def paths(self) -> list[str]:
        self._call("paths")
        return sorted(self.objects)

    def put(self, path: str, size: int, write: Callable[[IO[bytes]], None]) -> None:
        file = io.BytesIO()
        write(file)
        assert len(file.getvalue()) == size
        try:
            self._call(f"put {path}")
        except Killed:
            # The stream ends with its writer, and the CLI mistakes this for the end of the object.
            self.objects[path] = file.getvalue()[: size // 2]
            raise
        self.objects[path] = file.getvalue()

    @contextlib.contextmanager
    def get(self, path: str) -> Iterator[IO[bytes]]:
        self._call(f"get {path}")
        if path not in self.objects:
            raise FileNotFoundError(2, "No such object", self.address(path))
        yield io.BytesIO(self.objects[path])

    def delete(self, paths: Sequence[str]) -> None:
        self._call(f"delete {' '.join(paths)}")
        for path in paths:
            self.objects.pop(path, None)


def progress(step: int) -> Progress:
    return Progress(recipe="digits", seed=1, global_batch=1, total_steps=step)


def store(objects: Memory, keep: int = 2) -> CheckpointStore:
    return CheckpointStore(S3Storage(objects, sleep=lambda _: None), Retention(newest=keep))


def save(checkpoints: CheckpointStore, step: int, value: float) -> None:
    checkpoints.save(progress(step), {"a": np.full(9, value)})


def newest(checkpoints: CheckpointStore) -> tuple[int, float]:
    found, faults = checkpoints.newest_valid()
    assert found is not None and not faults
    return found.progress.total_steps, found.arrays["a"][0]


def test_checkpoints_are_kept_and_removed_as_in_a_directory() -> None:
    objects = Memory()
    checkpoints = store(objects)
    for step in (1, 2, 3):
        save(checkpoints, step, step)
    assert newest(checkpoints) == (3, 3.0)
    assert checkpoints.names() == ["step-00000003", "step-00000002"]
    files = ("arrays.safetensors", "manifest.json")
    assert sorted(objects.objects) == [f"step-0000000{step}/{file}" for step in (2, 3) for file in files]


def test_manifest_is_written_last_and_deleted_first() -> None:
    objects = Memory()
    checkpoints = store(objects, keep=1)
    save(checkpoints, 1, 1)
    save(checkpoints, 2, 2)
    changes = [call for call in objects.calls if call.startswith(("put", "delete step"))]
    assert changes[-3:] == [
        "put step-00000002/arrays.safetensors",
        "put step-00000002/manifest.json",
        "delete step-00000001/manifest.json step-00000001/arrays.safetensors",
    ]


@given(step=st.sampled_from([2, 3]), data=st.data())
def test_writer_killed_at_any_request_leaves_a_valid_checkpoint(step: int, data: st.DataObject) -> None:
    objects = Memory()
    checkpoints = store(objects)
    save(checkpoints, 1, 1)
    save(checkpoints, 2, 2)
    objects.calls.clear()
    objects.killed_at = data.draw(st.integers(0, 9))
    killed = False
    try:
        save(checkpoints, step, 10)
    except Killed:
        killed = True
    objects.killed_at = None
    # A truncated write leaves a damaged checkpoint, or one without a manifest.
    found, _ = checkpoints.newest_valid()
    assert found is not None
    value = float(found.arrays["a"][0])
    assert value == 10 or (killed and value == found.progress.total_steps)
    checkpoints.storage.tidy()
    save(checkpoints, 4, 4)
    save(checkpoints, 5, 5)
    assert newest(checkpoints) == (5, 5.0)
    assert {path.split("/")[0] for path in objects.objects} == {"step-00000004", "step-00000005"}


def test_upload_is_retried_and_an_unreachable_bucket_is_reported() -> None:
    objects = Memory()
    checkpoints = store(objects)
    objects.failing = {0, 2}
    save(checkpoints, 1, 1)
    assert newest(checkpoints) == (1, 1.0)
    objects.failing = set(range(99))
    waits: list[float] = []
    bucket = S3Storage(objects, sleep=waits.append)
    with pytest.raises(BucketError, match="no answer"):
        bucket.put("step-00000002", 0, lambda file: b"")
    assert len(waits) == ATTEMPTS - 1


def test_files_without_manifest_are_removed() -> None:
    objects = Memory()
    save(store(objects), 1, 1)
    objects.objects |= {"step-00000002/arrays.safetensors": b"", "notes/x": b"", "step-00000003": b""}
    store(objects).storage.tidy()
    assert sorted(objects.objects) == [
        "notes/x",
        "step-00000001/arrays.safetensors",
        "step-00000001/manifest.json",
        "step-00000003",
    ]


def test_unreachable_bucket_is_not_a_damaged_checkpoint() -> None:
    objects = Memory()
    checkpoints = store(objects)
    save(checkpoints, 1, 1)
    save(checkpoints, 2, 2)
    objects.failing = {len(objects.calls) + 1}
    with pytest.raises(BucketError):
        checkpoints.newest_valid()


def test_missing_object_is_a_damaged_checkpoint() -> None:
    objects = Memory()
    checkpoints = store(objects)
    save(checkpoints, 1, 1)
    del objects.objects["step-00000001/arrays.safetensors"]
    found, (fault,) = checkpoints.newest_valid()
    assert found is None
    assert isinstance(fault, DamagedCheckpointError)
    assert str(fault) == (
        "s3://bucket/step-00000001: damaged checkpoint: s3://bucket/step-00000001/arrays.safetensors: No such object"
    )


def test_last_recorded_writer_is_read_and_not_a_checkpoint() -> None:
    bucket = S3Storage(Memory(), sleep=lambda _: None)
    assert bucket.writer() is None
    for writer in (b"one", b"other"):
        bucket.set_writer(writer)
    bucket.tidy()
    assert (bucket.writer(), bucket.names()) == (b"other", [])


def test_superseded_writer_does_not_change_checkpoints() -> None:
    objects = Memory()
    before, after = store(objects), store(objects)
    before.claim()
    save(before, 1, 1)
    after.claim()
    save(after, 2, 2)
    with pytest.raises(SupersededError, match="has started to write checkpoints to s3://bucket/, so this process"):
        save(before, 2, 9)
    assert newest(after) == (2, 2.0)


RUN = Path("/runs/one")


@pytest.mark.parametrize(
    ("place", "address"),
    [
        ("", "/runs/one/checkpoints"),
        ("/mnt/fsx/one", "/mnt/fsx/one"),
        ("s3://my-runs/one/checkpoints/", "s3://my-runs/one/checkpoints"),
    ],
)
def test_location_is_a_directory_or_a_bucket_prefix(place: str, address: str) -> None:
    found = storage_for(place, RUN)
    assert found.address() == address
    assert isinstance(found, S3Storage if place.startswith("s3") else DirectoryStorage)


def test_bucket_without_prefix_or_name_is_rejected() -> None:
    with pytest.raises(SettingError, match="--checkpoint-dir s3://my-runs: must have a prefix for this run"):
        storage_for("s3://my-runs", RUN)
    with pytest.raises(SettingError, match="--checkpoint-dir: 's3://My/x': must be s3://BUCKET/PREFIX"):
        storage_for("s3://My/x", RUN)
