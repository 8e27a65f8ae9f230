from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from payload.training.checkpoints import CheckpointStore, DamagedCheckpointError, read_checkpoint
from payload.training.progress import Progress

ARRAYS: dict[str, npt.NDArray[Any]] = {
    "model/a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/n": np.array(7, np.int64),
}


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


def store(tmp_path: Path, keep: int = 3) -> CheckpointStore:
    return CheckpointStore(directory=tmp_path / "checkpoints", keep=keep)


def test_what_was_saved_is_read_bit_for_bit(tmp_path: Path) -> None:
    path = store(tmp_path).save(progress(10), ARRAYS)
    found = read_checkpoint(path)
    assert found.progress == progress(10)
    assert found.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()


def test_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = store(tmp_path, keep=2)
    for step in (5, 100, 20, 120):
        checkpoints.save(progress(step), ARRAYS)
    assert [path.name for path in checkpoints.paths()] == ["step-00000120", "step-00000100"]


def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    checkpoints.save(progress(1), ARRAYS)
    newest = checkpoints.save(progress(2), ARRAYS)
    content = bytearray((newest / "arrays.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "arrays.npz").write_bytes(content)
    found, faults = checkpoints.newest_valid()
    assert found is not None
    assert found.progress.total_steps == 1
    (fault,) = faults
    assert fault.path == newest
    assert "SHA-256" in str(fault)


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("arrays.npz", b"", "has 0 bytes; its manifest says"),
        ("arrays.npz", None, "No such file"),
        ("manifest.json", None, "No such file"),
        ("manifest.json", b"{", "manifest cannot be read"),
        ("manifest.json", b"[]", "manifest cannot be read"),
        ("manifest.json", b'{"progress": {"who": 1}}', "manifest cannot be read"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, content: bytes | None, fault: str) -> None:
    path = store(tmp_path).save(progress(1), ARRAYS)
    if content is None:
        (path / file).unlink()
    else:
        (path / file).write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=fault):
        read_checkpoint(path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = store(tmp_path).save(progress(1), ARRAYS)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(DamagedCheckpointError, match="format 99"):
        read_checkpoint(path)


def test_what_a_crash_left_half_written_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    (checkpoints.directory / ".partial-step-00000009").mkdir(parents=True)
    assert checkpoints.newest_valid() == (None, [])


def test_the_same_step_may_be_saved_again(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    checkpoints.save(progress(4), {"model/a": np.zeros(2)})
    checkpoints.save(progress(4), ARRAYS)
    found, _ = checkpoints.newest_valid()
    assert found is not None
    assert found.arrays.keys() == ARRAYS.keys()
