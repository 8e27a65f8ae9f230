"""Eventual consistency: new objects that the clients of a service do not see yet.

On AWS, a call may not find what the previous call created, and other services may not know it for some seconds. Here an
object is visible immediately unless `hide` is called for it. The cloud's own calls always see everything.
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
    """Mark that this thread answers a client's call within a block. Service "" means the cloud's own call."""
    token = _answered.set((service, action))
    try:
        yield
    finally:
        _answered.reset(token)


def hide(thing: Any, seconds: float) -> None:
    """Mark one of moto's objects as hidden from clients and other services for some seconds.

    The code that reads the object must ask `is_hidden` or `is_propagating`.
    """
    setattr(thing, _SEEN_FROM, clock() + seconds)


def is_propagating(thing: Any) -> bool:
    """Return whether an object is still hidden from everyone except the service that created it."""
    return bool(getattr(thing, _SEEN_FROM, 0.0) > clock())


def is_hidden(thing: Any, service: str, concerns: Callable[[str], bool]) -> bool:
    """Return whether an object is still hidden (see `hide`) from the call that this thread answers.

    Only clients' calls to `service` are affected, and only if `concerns` returns True for the call's action.
    """
    answered, action = _answered.get()
    return answered == service and concerns(action) and is_propagating(thing)
