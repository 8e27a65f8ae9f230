"""Throttling: now and then a call is refused because the account makes too many, as another client may have made them.

AWS counts calls by account, region and action, so that a client is throttled for what others do (EC2 developer guide,
"Request throttling for the Amazon EC2 API"). Here a burst of refusals begins at some calls of an action and ends after
a drawn number of them, or when it is old; the number is mostly below the retries of an SDK, and sometimes not.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from localcloud.api import error_replies


class Draws:
    """Make a random generator for each draw; safe to share between threads.

    A generator depends on the seed, the concern, and how many draws that concern had before. So one more call of a
    client does not change the draws of other concerns.
    """

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


_QUERY: Final = ("Throttling", "Rate exceeded", 400)
ANSWERS: Final[Mapping[str, tuple[str, str, int]]] = {
    "ec2": ("RequestLimitExceeded", "Request limit exceeded.", 503),
    "autoscaling": _QUERY,
    "cloudformation": _QUERY,
    "iam": _QUERY,
    "sts": _QUERY,
    "monitoring": _QUERY,
    "ssm": ("ThrottlingException", "Rate exceeded", 400),
}
"""Code, message and status by signing name, from the pages "Common errors"; other services are not throttled."""
PROBABILITY: Final = 1 / 20
"""That a call begins a burst, where its action has none."""
LENGTHS: Final[Mapping[int, int]] = {1: 8, 2: 4, 3: 2, 5: 1}
"""Calls that a burst refuses, with weights. An SDK makes three to five attempts of a call."""
BURST_S: Final = 20.0
"""After which a burst is over, however many calls it still had to refuse: the bucket of tokens has been filled."""


class Throttle:
    """Decide which calls are throttled; safe to share between threads."""

    def __init__(self, draws: Draws, clock: Callable[[], float] = time.monotonic) -> None:
        self._draws, self._clock = draws, clock
        self._bursts: dict[tuple[str, str], tuple[int, float]] = {}
        """Calls that a burst still refuses, and when it ends, by service and action."""
        self._lock = threading.Lock()

    def refusal(self, environ: Mapping[str, Any], service: str, action: str) -> error_replies.Reply | None:
        """Return the answer to a request that is throttled; None where it is not."""
        answer = ANSWERS.get(service)
        if answer is None or not self._refuses(service, action):
            return None
        return error_replies.reply(environ, *answer)

    def _refuses(self, service: str, action: str) -> bool:
        now = self._clock()
        with self._lock:
            left, ends_at = self._bursts.pop((service, action), (0, now))
            if now >= ends_at:
                left, ends_at = self._length(service, action), now + BURST_S
            if left:  # otherwise none began, or the call is the one let through at the end of a burst
                self._bursts[service, action] = left - 1, ends_at
            return left > 0

    def _length(self, service: str, action: str) -> int:
        """Return how many calls the burst that begins now refuses; 0: none begins."""
        draw = self._draws.draw(f"throttling {service} {action}")
        if draw.random() >= PROBABILITY:
            return 0
        (length,) = draw.choices(list(LENGTHS), weights=list(LENGTHS.values()))
        return length
