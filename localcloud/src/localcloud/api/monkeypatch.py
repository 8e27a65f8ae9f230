"""Replace a function of moto by name, and notice when the name is gone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from localcloud.api.error_replies import WrongMotoError


def replace(owner: Any, name: str, new: Any) -> Any:
    """Set `owner.name` to `new` and return what it was.

    Raises WrongMotoError where moto has no such name any more.
    """
    if not hasattr(owner, name):
        raise WrongMotoError(f"without {getattr(owner, '__name__', owner)}.{name}", "with it")
    old = getattr(owner, name)
    setattr(owner, name, new)
    return old


def call_after(owner: Any, name: str, then: Callable[[Any], None]) -> None:
    """Call `then` with what a method of `owner` has returned, before it is returned.

    `owner` may be one backend of moto: a reset of it then restores the method. Raises WrongMotoError where moto has no
    such name any more.
    """
    original: Any = getattr(owner, name, None)

    @functools.wraps(original or then)
    def called(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        then(made)
        return made

    replace(owner, name, called)


def check_first(owner: Any, name: str, check: Callable[..., None]) -> None:
    """Call `check` with the arguments of a method before it; what it raises refuses the call.

    Raises WrongMotoError where moto has no such name any more.
    """
    original: Any = getattr(owner, name, None)

    @functools.wraps(original or check)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return original(*args, **kwargs)

    replace(owner, name, checked)
