"""Random draws that a seed repeats, and that one concern does not shift for another.

One generator for all would give other draws to everything after one more poll of a client. Each draw here has a
generator of its own, made of the seed, the concern, and how many draws that concern had before.
"""

from __future__ import annotations

import random
import threading
from collections import Counter


class Draws:
    """Make a generator for each draw; safe to share between threads."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def draw(self, concern: str) -> random.Random:
        """Return the generator of a concern's next draw."""
        with self._lock:
            count = self._counts[concern]
            self._counts[concern] += 1
        return random.Random(f"{self.seed}/{concern}/{count}")  # noqa: S311  # of text, which Python hashes the same everywhere
