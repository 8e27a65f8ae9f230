from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from payload.training.checkpoints.policy import Retention
from payload.training.checkpoints.storage import WRITER, DirectoryStorage, Fill
from payload.training.checkpoints.store import CheckpointStore, Claim, SupersededError, read_checkpoint
from payload.training.progress import Progress


def store(path: Path) -> CheckpointStore:
    return CheckpointStore(DirectoryStorage(path), Retention(newest=3))


def save(checkpoints: CheckpointStore, step: int, value: float) -> None:
    progress = Progress(recipe="digits", seed=1, global_batch=1, total_steps=step)
    checkpoints.save(progress, {"a": np.full(9, value)})


def test_the_last_that_claims_may_write_and_all_before_stop_with_its_name(tmp_path: Path) -> None:
    before, after = store(tmp_path), store(tmp_path)
    before.claim.take()
    save(before, 1, 1)
    after.claim.take()
    with pytest.raises(SupersededError) as caught:
        save(before, 2, 2)
    assert str(caught.value).startswith(
        f"process {os.getpid()} on {socket.gethostname()!r} has begun to write checkpoints to {tmp_path}: this process"
    )
    save(after, 2, 3)
    assert after.names() == ["step-00000002", "step-00000001"]
    assert read_checkpoint(after.storage, "step-00000002").arrays["a"][0] == 3


def test_one_that_was_superseded_while_it_wrote_leaves_nothing(tmp_path: Path) -> None:
    class Slow(DirectoryStorage):
        def put(self, name: str, size: int, fill: Fill) -> None:
            def late(file: IO[bytes]) -> bytes:
                store(tmp_path).claim.take()
                return fill(file)

            super().put(name, size, late)

    before = CheckpointStore(Slow(tmp_path), Retention(newest=3))
    before.claim.take()
    with pytest.raises(SupersededError):
        save(before, 1, 1)
    assert [path.name for path in tmp_path.iterdir()] == [WRITER]


def test_who_only_reads_claims_nothing_and_a_claim_that_was_removed_hinders_none(tmp_path: Path) -> None:
    reader, writer = store(tmp_path), store(tmp_path)
    writer.claim.take()
    save(writer, 1, 1)
    assert reader.newest_valid()[0] is not None
    (tmp_path / WRITER).unlink()
    save(writer, 2, 2)
    assert writer.names()[0] == "step-00000002"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}', b'{"pid": 1}', b"\xff"])
def test_a_claim_that_cannot_be_read_is_one_of_another(tmp_path: Path, content: bytes) -> None:
    claim = Claim(DirectoryStorage(tmp_path))
    claim.take()
    (tmp_path / WRITER).write_bytes(content)
    with pytest.raises(SupersededError, match=r"^another process has begun"):
        claim.check()
