"""Throttling: now and then a call is refused because the account makes too many, as another client may have made them.

AWS counts calls by account, region and action, so that a client is throttled for what others do (EC2 developer guide,
"Request throttling for the Amazon EC2 API"). Here a burst of refusals begins at some calls of an action and ends after
a drawn number of them, or when it is old; the number is mostly below the retries of an SDK, and sometimes not.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from localcloud.api import error_replies
from localcloud.manners.draws import Draws


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """How a service answers a call that it throttles."""

    code: str
    message: str
    status: int


_QUERY: Final = Refusal(code="Throttling", message="Rate exceeded", status=400)
ANSWERS: Final[Mapping[str, Refusal]] = {
    "ec2": Refusal(code="RequestLimitExceeded", message="Request limit exceeded.", status=503),
    "autoscaling": _QUERY,
    "cloudformation": _QUERY,
    "iam": _QUERY,
    "sts": _QUERY,
    "monitoring": _QUERY,
    "ssm": Refusal(code="ThrottlingException", message="Rate exceeded", status=400),
}
"""By signing name, from the pages "Common errors" and the developer guides; other services are not throttled here."""
PROBABILITY: Final = 1 / 20
"""That a call begins a burst, where its action has none."""
LENGTHS: Final[Mapping[int, int]] = {1: 8, 2: 4, 3: 2, 5: 1}
"""Calls that a burst refuses, with weights. An SDK makes three to five attempts of a call."""
BURST_S: Final = 20.0
"""After which a burst is over, however many calls it still had to refuse: the bucket of tokens has been filled."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Burst:
    left: int
    ends_at: float


class Throttle:
    """Decide which calls are throttled; safe to share between threads."""

    def __init__(self, draws: Draws, clock: Callable[[], float] = time.monotonic) -> None:
        self._draws, self._clock = draws, clock
        self._bursts: dict[tuple[str, str], _Burst] = {}
        self._lock = threading.Lock()

    def refusal(self, environ: Mapping[str, Any], service: str, action: str) -> error_replies.Reply | None:
        """Return the answer to a request that is throttled; None where it is not."""
        answer = ANSWERS.get(service)
        if answer is None or not self._refuses(service, action):
            return None
        return error_replies.reply(environ, answer.code, answer.message, answer.status)

    def _refuses(self, service: str, action: str) -> bool:
        now = self._clock()
        with self._lock:
            burst = self._bursts.pop((service, action), None)
            if burst is None or now >= burst.ends_at:
                burst = _Burst(left=self._length(service, action), ends_at=now + BURST_S)
            if burst.left == 0:
                return False  # None began, or the call is the one let through at the end of a burst.
            self._bursts[service, action] = dataclasses.replace(burst, left=burst.left - 1)
            return True

    def _length(self, service: str, action: str) -> int:
        """Return how many calls the burst that begins now refuses; 0: none begins."""
        draw = self._draws.draw(f"throttling {service} {action}")
        if draw.random() >= PROBABILITY:
            return 0
        (length,) = draw.choices(list(LENGTHS), weights=list(LENGTHS.values()))
        return length
