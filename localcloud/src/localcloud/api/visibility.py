"""Which new things the clients of a service do not see yet.

AWS is eventually consistent: what one call has made, the next may not find, and another service may not know it for
seconds. Here everything is seen at once unless `hide` was called for it. The cloud's own work sees everything.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

_SEEN_FROM: Final = "_localcloud_seen_from"
clock: Callable[[], float] = time.monotonic

_answered: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar("answered", default=("", ""))


@contextlib.contextmanager
def answering(service: str, action: str) -> Iterator[None]:
    """Have this thread answer a client's call within a block; service "" stands for the cloud's own work."""
    token = _answered.set((service, action))
    try:
        yield
    finally:
        _answered.reset(token)


def hide(thing: Any, seconds: float) -> None:
    """Have clients, and other services, not see an object of moto's for so many seconds."""
    setattr(thing, _SEEN_FROM, clock() + seconds)


def is_propagating(thing: Any) -> bool:
    """Return whether an object is still unknown to others than the service that made it."""
    return bool(getattr(thing, _SEEN_FROM, 0.0) > clock())


def is_hidden(thing: Any, service: str, concerns: Callable[[str], bool]) -> bool:
    """Return whether the call that this thread answers does not see an object.

    Only a client's call of an action of `service` that `concerns` it is kept from the object.
    """
    answered, action = _answered.get()
    return answered == service and concerns(action) and is_propagating(thing)
