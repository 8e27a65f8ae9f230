"""Load the Japanese vowels: 640 utterances of /ae/ by nine men, included here (Kudo, Toyama and Shimbo 1999).

A sequence has 7 to 29 frames of 6.4 ms; a frame has 12 cepstrum coefficients of linear prediction. The task is to
identify the speaker. There are 270 training sequences (30 for each speaker) and 370 test sequences from other
recordings. Each is stored as a gray image of 29 x 12 with one row for each frame. Rows after its end are zero.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.idx import IdxError, read_idx_pair

DIRECTORY: Final = Path(__file__).parent / "japanese-vowels"
"""Contains IDX files, written by tools/japanese_vowels.py."""
CLASSES: Final = 9
FRAMES: Final = 29
COEFFICIENTS: Final = 12
LOWEST: Final = -2.0
"""Lower bound for coefficients; the data range from -1.86 to 2.21."""
STEPS: Final = 60
"""Byte values for a difference of 1. Rounding changes a coefficient by at most 0.008."""


def load_japanese_vowels() -> tuple[ArraySplit, ArraySplit]:
    """Load training and test sequences with the published split. Raises IdxError if a file is missing or damaged."""
    return _part("train", "training"), _part("t10k", "test")


def bytes_of(coefficients: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Encode coefficients as bytes, 1 to 255. Coefficients beyond this range are clipped.

    The value 0 marks padding after a sequence's end.
    """
    steps: npt.NDArray[np.uint8] = np.clip(np.rint((coefficients - LOWEST) * STEPS) + 1, 1, 255).astype(np.uint8)
    return steps


def _part(prefix: str, word: str) -> ArraySplit:
    try:
        images, labels = read_idx_pair(DIRECTORY, prefix, classes=CLASSES)
        if images.shape[1:3] != (FRAMES, COEFFICIENTS):
            shape = f"{images.shape[1:3]}, but must have {(FRAMES, COEFFICIENTS)}"
            raise IdxError(DIRECTORY, f"the sequences have (frames, coefficients) {shape}")
    except IdxError as error:
        raise IdxError(error.path, error.fault, "install deepcdk again, which includes this file") from error
    return ArraySplit(name=f"{word} sequences of Japanese vowels", images=images, labels=labels, classes=CLASSES)
