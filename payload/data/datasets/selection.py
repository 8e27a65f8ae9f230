"""Select the training examples to use, and those to hold back for validation."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.dataset import DataError, Split

SPLIT_SEED: Final = 0
"""Seed for holding back images. It does not depend on the run's seed, so that runs can be compared."""


def stratified(
    labels: npt.NDArray[np.integer], fraction: float, *, seed: int = SPLIT_SEED
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw `fraction` of the positions of each class at random; return the other positions, then those drawn.

    Both arrays are sorted. The number drawn from a class is rounded, and may be 0.
    """
    random = np.random.default_rng(seed)
    held = [np.zeros(0, np.int64)]
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        random.shuffle(members)
        held.append(members[: round(len(members) * fraction)])
    second = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), second), second


def limited(split: Split, limit: int) -> Split:
    """Return a split with the first `limit` examples, or `split` itself if `limit` is 0.

    Raises DataError if the split has fewer examples.
    """
    if limit == 0 or limit == split.examples:
        return split
    if limit > split.examples:
        raise DataError(f"--train-limit {limit}: must be at most {split.examples}, the number of training images")
    return split.pick(np.arange(limit))


def held_back(split: Split, fraction: float) -> tuple[Split, Split]:
    """Return two splits: the images left for training, and `fraction` of each class for validation.

    Raises DataError if one of the splits would be empty.
    """
    first, second = stratified(split.labels, fraction)
    if not len(first) or not len(second):
        rule = f"of {split.examples} images it leaves {len(first)} for training and {len(second)} for validation"
        raise DataError(f"--validation-fraction {fraction:g}: {rule}; both need at least one")
    return split.pick(first), split.pick(second)
