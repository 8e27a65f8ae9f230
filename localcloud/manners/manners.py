"""All manners of one account, drawn from one seed."""

from __future__ import annotations

from localcloud.manners.draws import Draws
from localcloud.manners.throttling import Throttle


class Manners:
    """Behave as a real account does, in the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        draws = Draws(seed)
        self.throttle = Throttle(draws)
