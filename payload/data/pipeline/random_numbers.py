"""Random numbers by position: a function of seed, epoch, stream and example alone, whatever the order of calls.

A generator's state would depend on what was drawn before. Here each number is a hash of its coordinates (the finaliser
of SplitMix64, Steele, Lea and Flood 2014, over a counter), so a rank computes those of its own examples alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

CROP: Final = 2
FLIP: Final = 3
MOVE: Final = 4
"""Streams, which make different kinds of random numbers of one example independent."""

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


def uniforms(
    examples: npt.NDArray[np.integer], *, seed: int, epoch: int, stream: int, count: int
) -> npt.NDArray[np.float64]:
    """Return `count` random numbers for each example: float64 [examples, count], from 0 to below 1."""
    (key,) = np.random.SeedSequence([seed, epoch, stream]).generate_state(1, np.uint64)
    numbers = examples.astype(np.uint64)[:, np.newaxis] * np.uint64(count) + np.arange(1, count + 1, dtype=np.uint64)
    hashed = key + numbers * _STEP  # modulo 2**64, which is meant
    hashed = (hashed ^ (hashed >> np.uint64(30))) * _FIRST
    hashed = (hashed ^ (hashed >> np.uint64(27))) * _SECOND
    hashed ^= hashed >> np.uint64(31)
    bits: npt.NDArray[np.uint64] = hashed >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
