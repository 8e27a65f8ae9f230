"""Japanese vowels: 640 utterances of /ae/ by nine men, which ship with this project (Kudo, Toyama and Shimbo 1999).

A sequence has 7 to 29 frames of 6.4 ms, and a frame the 12 cepstrum coefficients of a linear prediction. The task is
to tell the speaker: 270 sequences, 30 of each, are for training, and 370 of other recordings for testing. They are
grey images of 29 x 12, a row a frame; rows of zeros follow the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.idx import IdxError, read_idx_pair

DIRECTORY: Final = Path(__file__).parent / "japanese-vowels"
"""tools/japanese_vowels.py writes it."""
CLASSES: Final = 9
FRAMES: Final = 29
COEFFICIENTS: Final = 12
LOWEST: Final = -2.0
"""The coefficients lie between -1.86 and 2.21."""
STEPS: Final = 60
"""Bytes for a difference of 1: rounding changes a coefficient by 0.008 at most."""


def load_japanese_vowels() -> tuple[ArraySplit, ArraySplit]:
    """Load training and test sequences as published. Raises IdxError for a file that is missing or damaged."""
    return _part("train", "training"), _part("t10k", "test")


def bytes_of(coefficients: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Return coefficients as bytes, 1 to 255: 0 is no value, but what follows a sequence's end."""
    steps: npt.NDArray[np.uint8] = np.clip(np.rint((coefficients - LOWEST) * STEPS) + 1, 1, 255).astype(np.uint8)
    return steps


def _part(prefix: str, word: str) -> ArraySplit:
    images, labels = read_idx_pair(DIRECTORY, prefix, classes=CLASSES)
    if images.shape[1:3] != (FRAMES, COEFFICIENTS):
        raise IdxError(DIRECTORY, f"sequences of {images.shape[1:3]}; expected {(FRAMES, COEFFICIENTS)}")
    return ArraySplit(name=f"{word} sequences of Japanese vowels", images=images, labels=labels, classes=CLASSES)
