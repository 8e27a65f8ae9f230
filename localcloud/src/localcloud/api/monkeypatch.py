"""Corrections of moto by attribute name, which fail if a name no longer exists.

The modules of this package declare their corrections with `around`, `first`, `instead` and `added`. Importing them
changes nothing. `apply` makes the corrections of all imported modules.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any, Final, TypeVar

from moto.core.exceptions import ServiceException

from localcloud.api.error_replies import WrongMotoError

MOTO_VERSION: Final = "5.2.5"
"""The version whose internals the corrections change."""

New = TypeVar("New")


class RefusalError(ServiceException):
    """An error reply with a code and a message.

    moto derives a service from the module of its own exception classes, so it is defined outside of moto.
    """


_declared: list[Callable[[], object]] = []


def apply() -> None:
    """Apply the declared corrections to moto in this process, each only once.

    Raises WrongMotoError for another version of moto, or if it lacks a name or has a name that it should lack.
    """
    found = importlib.metadata.version("moto")
    if found != MOTO_VERSION:
        raise WrongMotoError(found, MOTO_VERSION)
    while _declared:
        _declared[0]()
        del _declared[0]


def replace(owner: Any, name: str, new: Any) -> Any:
    """Set `owner.name` to `new` and return the old value.

    If `owner` is one of moto's backends, resetting the backend undoes the replacement. Raises WrongMotoError if the
    name does not exist.
    """
    if not hasattr(owner, name):
        raise WrongMotoError(f"without {getattr(owner, '__name__', owner)}.{name}", MOTO_VERSION)
    old = getattr(owner, name)
    setattr(owner, name, new)
    return old


def wrap(owner: Any, name: str, new: Callable[..., Any]) -> None:
    """Replace the method `owner.name` with `new`, which gets the original method as an additional first argument.

    Raises like `replace`.
    """
    original: Any = getattr(owner, name, None)

    @functools.wraps(original or new)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return new(original, *args, **kwargs)

    replace(owner, name, wrapped)


def call_after(owner: Any, name: str, then: Callable[[Any], None]) -> None:
    """Change the method `owner.name`, so that each call passes its return value to `then` before it returns.

    Raises like `replace`.
    """

    def called(original: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        then(made)
        return made

    wrap(owner, name, called)


def check_first(owner: Any, name: str, check: Callable[..., None]) -> None:
    """Change the method `owner.name`, so that each call first calls `check` with the same arguments.

    An exception of `check` rejects the call. Raises like `replace`.
    """

    def checked(original: Any, *args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return original(*args, **kwargs)

    wrap(owner, name, checked)


def add(owner: Any, name: str, new: Any) -> None:
    """Set `owner.name`, a name that moto lacks, to `new`. Raises WrongMotoError if moto has it."""
    if hasattr(owner, name):
        raise WrongMotoError(f"with {owner.__name__}.{name}", MOTO_VERSION)
    setattr(owner, name, new)


def _declares(correct: Callable[[Any, str, Any], object]) -> Callable[..., Callable[[New], New]]:
    """Return a decorator factory that records corrections for `apply`.

    `correct` takes an owner, one of the names, and the decorated object. See `around` for the use.
    """

    def of(owner: Any, *names: str) -> Callable[[New], New]:
        def declare(new: New) -> New:
            _declared.extend(functools.partial(correct, owner, name, new) for name in names)
            return new

        return declare

    return of


around = _declares(wrap)
"""Decorator for wrappers of moto's methods: `@around(Backend, "create_group")`, or several names of one owner.

The decorated function receives the original method first (see `wrap`). It takes effect when `apply` is called.
"""
first = _declares(check_first)
"""Decorator for checks that run before moto's methods, with the same arguments (see `check_first`)."""
instead = _declares(replace)
"""Decorator for replacements of moto's functions."""
added = _declares(add)
"""Decorator for methods that moto lacks."""
