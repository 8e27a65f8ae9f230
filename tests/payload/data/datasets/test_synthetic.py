from __future__ import annotations

import numpy as np

from payload.data.datasets.synthetic import POOL_BYTES, SyntheticSplit


def part(examples: int = 100, seed: int = 0) -> SyntheticSplit:
    return SyntheticSplit(examples=examples, classes=7, size=(12, 10), channels=3, seed=seed)


def test_same_description_makes_the_same_images() -> None:
    one, other = part(), part()
    positions = np.array([5, 0, 99])
    assert np.array_equal(one.gather(positions), other.gather(positions))
    assert np.array_equal(one.labels, other.labels)
    assert one.digest() == other.digest()
    assert one.digest() != part(seed=1).digest()
    assert not np.array_equal(one.gather(positions), part(seed=1).gather(positions))


def test_images_and_labels_have_the_size_and_classes_asked_for() -> None:
    images = part().gather(np.arange(100))
    assert images.shape == (100, 12, 10, 3)
    assert images.dtype == np.uint8
    assert set(part().labels) == set(range(7))


def test_many_images_use_the_memory_of_a_few() -> None:
    many = part(examples=10_000_000)
    many.gather(np.array([0, 9_999_999]))
    assert many._pool.nbytes <= POOL_BYTES


def test_picked_part_has_as_many_images_as_were_picked() -> None:
    assert part().pick(np.arange(10)).examples == 10
