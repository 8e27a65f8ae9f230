from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.hardware import memory
from agent.hardware.memory import Sample
from payload.data.dataset import View
from payload.data.records.record_split import RecordReader, RecordSplit, open_record_splits
from tests.payload.data.drawings import drawing, encoded, record, write_records

pytestmark = pytest.mark.tensorflow

COUNT = 19


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records")
    write_records(path, training=1, test=COUNT, files=1)
    return path


def opened(directory: Path, cache: str = "none") -> RecordSplit:
    _, part = open_record_splits(directory, name="drawings", classes=4, skip=False, cache=cache)
    assert part is not None
    return dataclasses.replace(part, labels=np.arange(part.examples, dtype=np.int32), classes=part.examples)


def evaluated(part: RecordSplit, view: View, *, slots: int = 4, ranks: int = 1) -> list[list[Any]]:
    from payload.data.pipeline.batches import test_batches

    return [list(test_batches(part, view, slots=slots, rank=rank, ranks=ranks, threads=1)) for rank in range(ranks)]


def labels(batches: list[Any]) -> list[int]:
    return [
        int(label)
        for batch in batches
        for label, weight in zip(batch.labels.numpy(), batch.weights.numpy(), strict=True)
        if weight
    ]


@pytest.mark.parametrize("rectangular", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_test_image_is_seen_once_over_all_ranks(directory: Path, ranks: int, rectangular: bool) -> None:
    shared = evaluated(opened(directory), View(size=(32, 32), rectangular=rectangular), ranks=ranks)
    assert sorted(label for batches in shared for label in labels(batches)) == list(range(COUNT))
    assert len({len(batches) for batches in shared}) == 1
    assert {sum(batch.batch_size for batch in batches) for batches in shared} == {COUNT}
    for steps in zip(*shared, strict=True):
        assert len({tuple(batch.images.shape) for batch in steps}) == 1


def test_rectangular_images_have_few_shapes_near_their_own(directory: Path) -> None:
    part = opened(directory)
    (batches,) = evaluated(part, View(size=(32, 32), rectangular=True))
    table = part.sets[0].table
    found = {tuple(batch.images.shape[1:3]) for batch in batches}
    assert found == {(32, 32), (40, 32), (48, 32), (32, 40), (32, 48)}
    for batch in batches:
        height, width = batch.images.shape[1:3]
        for label in labels([batch]):
            ratio = table["width"][label] / table["height"][label]
            assert 0.8 < ratio / (width / height) < 1.25


def test_there_are_nine_shapes_with_requested_shorter_side() -> None:
    from payload.data.pipeline.evaluation_batches import shapes

    sizes = np.array([[1000 + 37 * n, 3000 - 53 * n] for n in range(55)] + [[100, 1], [1, 100]])
    found = shapes(sizes, 224)
    assert len(np.unique(found, axis=0)) == 9
    assert (found.min(axis=1) == 224).all()
    assert (found % 8 == 0).all()
    assert found[-2].tolist() == [448, 224] and found[-1].tolist() == [224, 448]


def test_center_of_image_is_used(tmp_path: Path) -> None:
    image = drawing(0, height=64, width=128, seed=1)
    for name in ("train", "validation"):
        (tmp_path / f"{name}-00000-of-00001").write_bytes(record(encoded(image, "PNG"), 0))
    ((batch,),) = evaluated(opened(tmp_path), View(size=(56, 56), smallest_crop=0.1, flip=True))
    assert np.array_equal(batch.images[0], image[4:60, 36:92])


@pytest.mark.parametrize(("cache", "kept"), [("test", True), ("auto", True), ("none", False)])
def test_cached_images_are_decoded_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, cache: str, kept: bool
) -> None:
    part = opened(directory, cache)
    (first,) = evaluated(part, View(size=(32, 32)))
    reads: list[int] = []
    read = RecordReader.read

    def counted(reader: RecordReader, positions: Any) -> list[bytes]:
        reads.append(len(positions))
        return read(reader, positions)

    monkeypatch.setattr(RecordReader, "read", counted)
    (second,) = evaluated(part, View(size=(32, 32)))
    assert bool(reads) is not kept
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one.images, other.images)
    evaluated(part, View(size=(24, 24)))
    assert len(part.kept) == kept, "one way to look at a time"


def test_images_that_need_too_much_memory_are_not_cached(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "read_sample", lambda: Sample(available=0, size=4 * 32 * 32 * 3 * 20 - 1))
    part = opened(directory, "auto")
    evaluated(part, View(size=(32, 32)))
    assert not part.kept
