"""The input pipeline of a benchmark: generated images, repeated passes, and removal at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.files.atomic_write import StorageError
from payload.bench.input_pipeline import InputBench
from payload.settings.bench import INPUT, Cell


@pytest.mark.tensorflow
def test_each_pass_reads_all_images_in_new_order_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from payload.data.pipeline import batches

    taken: list[tuple[int, int]] = []
    whole = batches.training_batches

    def counted(split: object, view: object, **given: int) -> object:
        images = 0
        for batch in whole(split, view, **given):  # type: ignore[arg-type]
            images += int(batch.weights.numpy().sum())
            yield batch
        taken.append((given["epoch"], images))

    monkeypatch.setattr(batches, "training_batches", counted)
    bench = InputBench(tmp_path)
    cell = Cell(kind=INPUT, batch_per_rank=64, image_size=32, nodes=1)
    assert min(bench.seconds(cell) for _ in range(2)) > 0
    assert taken == [(1, 64), (2, 64), (3, 64)], "the first pass is not timed"
    assert len(list(tmp_path.iterdir())) == 1
    bench.remove()
    assert not list(tmp_path.iterdir())


def test_disk_that_cannot_store_images_is_reported(tmp_path: Path) -> None:
    bench = InputBench(tmp_path / "missing")
    with pytest.raises(StorageError, match=r"cannot write .*missing"):
        bench.seconds(Cell(kind=INPUT, batch_per_rank=1, image_size=32, nodes=1))
    bench.remove()
