"""The pipeline over images in memory. `test_record_batches.py` tests record files against the same laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from payload.data.dataset import View
from payload.data.datasets.arrays import ArraySplit
from tests.payload.data.drawings import drawing

pytestmark = pytest.mark.tensorflow

COUNT = 23
PART = ArraySplit(
    name="drawings",
    images=np.stack([drawing(n % 4, height=20, width=16, seed=n) for n in range(COUNT)]),
    labels=np.arange(COUNT, dtype=np.int32),  # the label identifies the image
    classes=COUNT,
)
PLAIN = View(size=(20, 16))
RANDOM = View(size=(12, 12), smallest_crop=0.3, flip=True, rotation_deg=10, shift_fraction=0.1, zoom_fraction=0.1)


def training(view: View, *, ranks: int = 1, first_step: int = 0, **values: Any) -> list[list[Any]]:
    """Return the batches of each rank."""
    from payload.data.pipeline.batches import training_batches

    given = {"seed": 1, "epoch": 0, "global_batch": 8, "threads": 1, **values}
    return [
        list(training_batches(PART, view, rank=rank, ranks=ranks, first_step=first_step, **given))
        for rank in range(ranks)
    ]


def seen(batches: list[Any]) -> dict[int, npt.NDArray[Any]]:
    """Map each example to its image."""
    return {
        int(label): image
        for batch in batches
        for label, image, weight in zip(batch.labels.numpy(), batch.images.numpy(), batch.weights.numpy(), strict=True)
        if weight
    }


def test_images_in_original_size_are_unchanged() -> None:
    (batches,) = training(PLAIN)
    found = seen(batches)
    assert found.keys() == set(range(COUNT))
    assert all(np.array_equal(image, PART.images[label]) for label, image in found.items())
    assert batches[0].images.dtype == np.uint8
    assert [batch.batch_size for batch in batches] == [8, 8, 7]


@pytest.mark.parametrize("ranks", [2, 5])
def test_steps_and_images_are_the_same_on_any_number_of_ranks(ranks: int) -> None:
    (alone,) = training(RANDOM)
    shared = training(RANDOM, ranks=ranks)
    assert {len(batches) for batches in shared} == {len(alone)}
    for step, whole in enumerate(alone):
        parts = [seen([batches[step]]) for batches in shared]
        together = {label: image for part in parts for label, image in part.items()}
        assert sum(map(len, parts)) == len(together) == whole.batch_size
        expected = seen([whole])
        assert together.keys() == expected.keys()
        assert all(np.array_equal(together[label], expected[label]) for label in together)
        assert {batches[step].images.shape[0] for batches in shared} == {-(-8 // ranks)}


def test_epoch_resumed_at_a_step_continues_identically() -> None:
    (whole,), (rest,) = training(RANDOM), training(RANDOM, first_step=2)
    assert len(rest) == 1
    assert np.array_equal(whole[2].images, rest[0].images)
    assert np.array_equal(whole[2].labels, rest[0].labels)
    assert training(RANDOM, first_step=3) == [[]]


def test_images_change_with_seed_and_epoch_and_stay_within_bytes() -> None:
    (first,), (second,), (other,) = training(RANDOM), training(RANDOM, epoch=1), training(RANDOM, seed=2)
    images = seen(first)
    for changed in (seen(second), seen(other)):
        assert not any(np.array_equal(images[label], changed[label]) for label in images)
    assert all(image.min() >= 0 and 255 >= image.max() > 90 for image in images.values())
    assert first[0].images.shape == (8, 12, 12, 3)


def test_mirrored_images_are_originals_read_backwards() -> None:
    found = seen(training(View(size=(20, 16), flip=True))[0])
    mirrored = [label for label in found if np.allclose(found[label], PART.images[label][:, ::-1], atol=1e-3)]
    same = [label for label in found if np.allclose(found[label], PART.images[label], atol=1e-3)]
    assert len(mirrored) + len(same) == COUNT
    assert mirrored and same


@pytest.mark.parametrize(("ranks", "slots"), [(1, 4), (2, 1), (3, 100)])
def test_each_test_image_is_seen_once_over_all_ranks(ranks: int, slots: int) -> None:
    from payload.data.pipeline.batches import test_batches

    shared = [list(test_batches(PART, PLAIN, slots=slots, rank=rank, ranks=ranks)) for rank in range(ranks)]
    counted = [label for batches in shared for batch in batches for label in seen([batch])]
    assert sorted(counted) == list(range(COUNT))
    assert len({len(batches) for batches in shared}) == 1
    assert all(batch.images.shape[0] <= slots for batches in shared for batch in batches)


def test_test_images_take_the_size_of_the_view() -> None:
    from payload.data.pipeline.batches import test_batches

    flat = ArraySplit(
        name="flat", images=np.full((2, 10, 20, 1), 77, np.uint8), labels=np.zeros(2, np.int32), classes=1
    )
    (batch,) = test_batches(flat, View(size=(30, 30), smallest_crop=0.1, flip=True), slots=2, rank=0, ranks=1)
    assert batch.images.shape == (2, 30, 30, 1)
    assert np.allclose(batch.images[:, 2:-2, 2:-2], 77), "the middle, enlarged"
