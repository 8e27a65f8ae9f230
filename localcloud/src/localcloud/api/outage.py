"""An outage of the API for a while, on request: a share of all calls of clients is answered with 503."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from localcloud.api import error_replies
from localcloud.api_faults.throttling import Draws

CODE: Final = "ServiceUnavailable"
"""As every service has it (its page "Common errors"); SDKs try such a call again."""


class Outage:
    """Decide which calls fail; safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._draws = Draws(0)
        self._period = (0.0, 0.0)
        """Share of the calls, and when it ends."""
        self._lock = threading.Lock()

    def begin(self, share: float, seconds: float) -> None:
        """Let a share of the calls fail from now on; 0 ends it."""
        with self._lock:
            self._period = (share, self._clock() + seconds)

    def refusal(self, environ: Mapping[str, Any], service: str, action: str) -> error_replies.Reply | None:
        """Return the answer to a call that fails; None where it does not."""
        with self._lock:
            share, ends_at = self._period
        if self._clock() >= ends_at or self._draws.draw("call").random() >= share:
            return None
        return error_replies.reply(environ, CODE, f"{service} is not available at the moment.", 503)
