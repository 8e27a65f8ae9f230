"""Correct moto by name, and fail if a name is gone.

The modules of this package declare their corrections with `around`, `first`, `instead` and `added`. Importing them
changes nothing: `apply` does, for all modules that are imported by then.
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
    """Refuse a call with a code and a message; of a class of its own moto would look for the service."""


_declared: list[Callable[[], object]] = []


def apply() -> None:
    """Correct moto in this process, once. Raises WrongMotoError for another version of moto."""
    found = importlib.metadata.version("moto")
    if found != MOTO_VERSION:
        raise WrongMotoError(found, MOTO_VERSION)
    while _declared:
        _declared[0]()
        del _declared[0]


def replace(owner: Any, name: str, new: Any) -> Any:
    """Set `owner.name` to `new` and return what it was.

    `owner` may be one backend of moto: a reset of it then restores the method. Raises WrongMotoError where moto has no
    such name any more.
    """
    if not hasattr(owner, name):
        raise WrongMotoError(f"without {getattr(owner, '__name__', owner)}.{name}", "with it")
    old = getattr(owner, name)
    setattr(owner, name, new)
    return old


def wrap(owner: Any, name: str, new: Callable[..., Any]) -> None:
    """Replace a method by `new`, which takes the original method before its arguments. Raises as `replace` does."""
    original: Any = getattr(owner, name, None)

    @functools.wraps(original or new)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return new(original, *args, **kwargs)

    replace(owner, name, wrapped)


def call_after(owner: Any, name: str, then: Callable[[Any], None]) -> None:
    """Call `then` with what a method has returned, before it is returned. Raises as `replace` does."""

    def called(original: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        then(made)
        return made

    wrap(owner, name, called)


def check_first(owner: Any, name: str, check: Callable[..., None]) -> None:
    """Call `check` with the arguments of a method before it; what it raises refuses the call. Raises as `replace`."""

    def checked(original: Any, *args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return original(*args, **kwargs)

    wrap(owner, name, checked)


def add(owner: Any, name: str, new: Any) -> None:
    """Set a name that moto lacks. Raises WrongMotoError where moto has it by now."""
    if hasattr(owner, name):
        raise WrongMotoError(f"with {owner.__name__}.{name}", "without it")
    setattr(owner, name, new)


def _declares(correct: Callable[[Any, str, Any], object]) -> Callable[..., Callable[[New], New]]:
    def of(owner: Any, *names: str) -> Callable[[New], New]:
        def declare(new: New) -> New:
            _declared.extend(functools.partial(correct, owner, name, new) for name in names)
            return new

        return declare

    return of


around = _declares(wrap)
"""Decorate what stands in for methods of moto: `@around(Backend, "create_group")`."""
first = _declares(check_first)
"""Decorate a check that is made before methods of moto."""
instead = _declares(replace)
"""Decorate what replaces functions of moto."""
added = _declares(add)
"""Decorate methods that moto lacks."""
