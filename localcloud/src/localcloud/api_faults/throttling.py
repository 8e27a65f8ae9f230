"""Throttling: occasionally calls are rejected, as if other clients had made too many calls.

AWS counts calls by account, region and action, so clients throttle each other (EC2 developer guide, "Request throttling
for the Amazon EC2 API"). Here some calls of an action start a burst of rejections. It ends after a drawn number of
rejections or after some time. Usually an SDK's retries are sufficient, but not always.
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
    """Factory of a random generator for each draw. Thread-safe.

    A generator depends on the seed, the concern, and the number of the concern's previous draws. An additional call of
    a client therefore does not change the draws of other concerns.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def draw(self, concern: str) -> random.Random:
        """Return the random generator for the next draw of a concern, such as `boot`."""
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
"""Code, message and status by signing name, from the pages "Common errors". Other services are not throttled."""
PROBABILITY: Final = 1 / 20
"""Probability that a call starts a burst, if its action has none."""
LENGTHS: Final[Mapping[int, int]] = {1: 8, 2: 4, 3: 2, 5: 1}
"""Number of calls that a burst rejects, with weights. An SDK makes three to five attempts."""
BURST_S: Final = 20.0
"""A burst ends after this time, even with rejections left: the token bucket has been refilled."""


class Throttle:
    """Decides which calls are throttled. Thread-safe."""

    def __init__(self, draws: Draws, clock: Callable[[], float] = time.monotonic) -> None:
        self._draws, self._clock = draws, clock
        self._bursts: dict[tuple[str, str], tuple[int, float]] = {}
        """Remaining rejections and end time of a burst, by service and action."""
        self._lock = threading.Lock()

    def refusal(self, environ: Mapping[str, Any], service: str, action: str) -> error_replies.Reply | None:
        """Return the error reply if a request is throttled, otherwise None. `service` is its name in signatures.

        Each call counts in the burst of its action, or may start a burst.
        """
        answer = ANSWERS.get(service)
        if answer is None or not self._refuses(service, action):
            return None
        return error_replies.reply(environ, *answer)

    def _refuses(self, service: str, action: str) -> bool:
        """Return whether a call is rejected. The call counts in the burst of its action, or may start one."""
        now = self._clock()
        with self._lock:
            left, ends_at = self._bursts.pop((service, action), (0, now))
            if now >= ends_at:
                left, ends_at = self._length(service, action), now + BURST_S
            if left:  # otherwise no burst started, or it is the allowed call after a burst
                self._bursts[service, action] = left - 1, ends_at
            return left > 0

    def _length(self, service: str, action: str) -> int:
        """Return the number of calls that a new burst rejects, or 0 if none starts."""
        draw = self._draws.draw(f"throttling {service} {action}")
        if draw.random() >= PROBABILITY:
            return 0
        (length,) = draw.choices(list(LENGTHS), weights=list(LENGTHS.values()))
        return length
