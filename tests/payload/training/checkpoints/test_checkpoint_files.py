from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pytest

from payload.training.checkpoints.checkpoint_files import (
    CheckpointStore,
    DamagedCheckpointError,
    SupersededError,
    read_checkpoint,
)
from payload.training.checkpoints.checkpoint_storage import WRITER, DirectoryStorage, Fill
from payload.training.checkpoints.save_policy import Retention
from payload.training.progress import Progress

ARRAYS: dict[str, npt.NDArray[Any]] = {
    "model/a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/n": np.array(7, np.int64),
}
FILE = "arrays.safetensors"


def progress(total_steps: int) -> Progress:
    return Progress(
        recipe="digits",
        seed=1,
        global_batch=64,
        epoch=2,
        step=3,
        loss_sum=0.1 + 0.2,
        correct=5,
        seen=9,
        total_steps=total_steps,
    )


def store(tmp_path: Path, keep: int = 3, best: bool = False) -> CheckpointStore:
    return CheckpointStore(DirectoryStorage(tmp_path / "checkpoints"), Retention(newest=keep, best=best))


def path_of(store: CheckpointStore, name: str) -> Path:
    return Path(store.storage.address(name))


def test_what_was_saved_is_read_bit_for_bit(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    name, size = checkpoints.save(progress(10), ARRAYS, settings={"momentum": 0.1 + 0.2}, accuracy=0.75)
    found = read_checkpoint(checkpoints.storage, name)
    assert found.progress == progress(10)
    assert (found.header.settings, found.header.accuracy) == ({"momentum": 0.1 + 0.2}, 0.75)
    assert found.header.bytes == size == (path_of(checkpoints, name) / FILE).stat().st_size
    assert found.arrays.keys() == ARRAYS.keys()
    for array_name, array in ARRAYS.items():
        assert found.arrays[array_name].dtype == array.dtype
        assert found.arrays[array_name].shape == array.shape
        assert found.arrays[array_name].tobytes() == array.tobytes()


def test_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = store(tmp_path, keep=2)
    for step in (5, 20, 100, 120):
        checkpoints.save(progress(step), ARRAYS)
    assert checkpoints.names() == ["step-00000120", "step-00000100"]


def test_best_checkpoint_is_kept_after_resume(tmp_path: Path) -> None:
    for step, accuracy in ((1, 0.5), (2, 0.9), (3, None), (4, 0.7), (5, None)):
        checkpoints = store(tmp_path, keep=1, best=True)
        checkpoints.save(progress(step), ARRAYS, accuracy=accuracy)
    assert checkpoints.names() == ["step-00000005", "step-00000002"]
    assert store(tmp_path, best=True).best_accuracy() == 0.9


def test_damaged_checkpoint_does_not_displace_valid_ones(tmp_path: Path) -> None:
    checkpoints = store(tmp_path, keep=2)
    checkpoints.save(progress(4), ARRAYS)
    checkpoints.save(progress(9), ARRAYS)
    damaged = path_of(checkpoints, "step-00000009") / FILE
    damaged.write_bytes(damaged.read_bytes()[:-1])
    again = store(tmp_path, keep=1)
    found, _ = again.newest_valid()
    assert found is not None and found.name == "step-00000004"
    again.save(progress(6), ARRAYS)
    assert again.names() == ["step-00000009", "step-00000006"]
    again.save(progress(11), ARRAYS)
    assert again.names() == ["step-00000011"]


def test_mid_epoch_checkpoints_of_earlier_process_are_removed_later(tmp_path: Path) -> None:
    for step in (5, 6, 7):
        store(tmp_path, keep=9).save(progress(step), ARRAYS)
    checkpoints = store(tmp_path, keep=1)
    checkpoints.save(dataclasses.replace(progress(8), step=0), ARRAYS)
    checkpoints.save(progress(9), ARRAYS)
    assert checkpoints.names() == ["step-00000009", "step-00000008"]


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        (FILE, b"", "ends after 0 bytes"),
        (FILE, None, "No such file"),
        ("manifest.json", None, "No such file"),
        ("manifest.json", b"{", "the manifest is malformed: Expecting property name"),
        ("manifest.json", b"[]", "the manifest is malformed: a value has the wrong type"),
        ("manifest.json", b'{"progress": {}}', "the manifest is malformed: 'format' is missing"),
        ("manifest.json", b'{"format": 2, "progress": {"who": 1}}', "missing or unknown fields"),
    ],
)
def test_damage_is_reported(tmp_path: Path, file: str, content: bytes | None, fault: str) -> None:
    checkpoints = store(tmp_path)
    name, _ = checkpoints.save(progress(1), ARRAYS)
    path = path_of(checkpoints, name) / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=fault):
        read_checkpoint(checkpoints.storage, name)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    name, size = checkpoints.save(progress(1), ARRAYS)
    file = path_of(checkpoints, name) / FILE
    content = file.read_bytes()
    for place in range(size):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        with pytest.raises(DamagedCheckpointError):
            read_checkpoint(checkpoints.storage, name)
    file.write_bytes(content + b"x")
    with pytest.raises(DamagedCheckpointError, match="more bytes than"):
        read_checkpoint(checkpoints.storage, name)


@pytest.mark.parametrize("cut", ["arrays.safetensors", "manifest.json"])
def test_truncated_file_is_skipped_for_the_previous_one(tmp_path: Path, cut: str) -> None:
    checkpoints = store(tmp_path)
    checkpoints.save(progress(1), ARRAYS)
    name, _ = checkpoints.save(progress(2), ARRAYS)
    file = path_of(checkpoints, name) / cut
    content = file.read_bytes()
    for length in range(0, len(content), 5):
        file.write_bytes(content[:length])
        found, faults = checkpoints.newest_valid()
        assert found is not None and found.name == "step-00000001"
        assert [fault.address for fault in faults] == [checkpoints.storage.address(name)]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"format": 99}, "format 99"),
        ({"bytes": -1}, "bytes is -1"),
        ({"bytes": "many"}, "bytes is 'many'"),
        ({"settings": None}, "settings is not a JSON object"),
        ({"surplus": 1}, "missing or unknown fields"),
    ],
)
def test_manifest_of_another_kind_is_rejected(tmp_path: Path, change: dict[str, object], fault: str) -> None:
    checkpoints = store(tmp_path)
    name, _ = checkpoints.save(progress(1), ARRAYS)
    manifest = path_of(checkpoints, name) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    with pytest.raises(DamagedCheckpointError, match=fault):
        read_checkpoint(checkpoints.storage, name)


def test_same_step_can_be_saved_again(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    checkpoints.save(progress(4), {"model/a": np.zeros(2)})
    checkpoints.save(progress(4), ARRAYS)
    found, _ = checkpoints.newest_valid()
    assert found is not None
    assert found.arrays.keys() == ARRAYS.keys()


def killed_at(event: int, action: Callable[[], object]) -> bool:
    """Run an action in a process that dies silently at its n-th file system step; return whether it died.

    Steps are the interpreter's audit events: opening, renaming, removing, making directories and the like.
    """
    child = os.fork()
    if not child:
        left = event

        def hook(name: str, _: tuple[Any, ...]) -> None:
            nonlocal left
            if name.startswith(("os.", "open", "shutil.")):
                if not left:
                    os._exit(9)
                left -= 1

        sys.addaudithook(hook)
        try:
            action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 9


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("step", [2, 3], ids=["the same step again", "a new step"])
def test_writer_killed_at_any_point_leaves_a_valid_checkpoint(tmp_path: Path, step: int) -> None:
    event = 0
    while True:
        checkpoints = store(tmp_path / str(event), keep=2)
        for before in (1, 2):
            checkpoints.save(progress(before), {"a": np.full(9, before)})

        def save(checkpoints: CheckpointStore = checkpoints) -> None:
            checkpoints.save(progress(step), {"a": np.full(9, 10)})

        killed = killed_at(event, save)
        found, faults = checkpoints.newest_valid()
        assert found is not None and not faults
        value = found.arrays["a"][0]
        assert value == 10 or (killed and value == found.progress.total_steps)
        checkpoints.storage.tidy()
        checkpoints.save(progress(4), {"a": np.full(9, 4)})
        assert sorted(path.name for path in path_of(checkpoints, "").iterdir()) == sorted(checkpoints.names())
        assert checkpoints.names()[0] == "step-00000004"
        if not killed:
            break
        event += 1
    assert event > 15


def test_newest_claim_wins_and_earlier_writers_fail(tmp_path: Path) -> None:
    before, after = store(tmp_path), store(tmp_path)
    before.claim()
    before.save(progress(1), ARRAYS)
    after.claim()
    with pytest.raises(SupersededError) as caught:
        before.save(progress(2), ARRAYS)
    assert str(caught.value).startswith(
        f"process {os.getpid()} on {socket.gethostname()!r} has started to write checkpoints to {path_of(after, '')}"
    )
    after.save(progress(2), {"a": np.full(9, 3)})
    assert after.names() == ["step-00000002", "step-00000001"]
    assert read_checkpoint(after.storage, "step-00000002").arrays["a"][0] == 3


def test_process_superseded_during_write_leaves_nothing(tmp_path: Path) -> None:
    class Slow(DirectoryStorage):
        def put(self, name: str, size: int, fill: Fill) -> None:
            def late(file: IO[bytes]) -> bytes:
                CheckpointStore(DirectoryStorage(tmp_path), Retention(newest=3)).claim()
                return fill(file)

            super().put(name, size, late)

    before = CheckpointStore(Slow(tmp_path), Retention(newest=3))
    before.claim()
    with pytest.raises(SupersededError):
        before.save(progress(1), ARRAYS)
    assert [path.name for path in tmp_path.iterdir()] == [WRITER]


def test_reader_claims_nothing_and_removed_claim_blocks_nothing(tmp_path: Path) -> None:
    reader, writer = store(tmp_path), store(tmp_path)
    writer.claim()
    writer.save(progress(1), ARRAYS)
    assert reader.newest_valid()[0] is not None
    (path_of(writer, "") / WRITER).unlink()
    writer.save(progress(2), ARRAYS)
    assert writer.names()[0] == "step-00000002"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"pid": "x"}', b'{"pid": 1}', b"\xff"])
def test_unreadable_claim_belongs_to_another_process(tmp_path: Path, content: bytes) -> None:
    checkpoints = store(tmp_path)
    checkpoints.claim()
    (path_of(checkpoints, "") / WRITER).write_bytes(content)
    with pytest.raises(SupersededError, match=r"^another process has started"):
        checkpoints.check_claim()
