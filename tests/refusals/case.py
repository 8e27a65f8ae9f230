"""One entry of the catalogue of what AWS refuses, as a test has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Template = dict[str, Any]
"""A CloudFormation template."""
Values = dict[str, Any]
"""Keys of `cdk.json`, context.cluster, that are not by default."""
Client = Callable[[str], Any]
"""A maker of boto3 clients by service."""
Calls = Callable[[Client], object]
"""Calls of the API, the last of which is looked at."""

T = TypeVar("T", Template, Values, Calls)


@dataclasses.dataclass(frozen=True)
class Case(Generic[T]):
    """The smallest violation of an entry's rule, what is refused about it, and its sound counterpart."""

    entry: str
    """Id in `catalogue.py`."""
    violation: T
    said: str
    """The rule of cdk-preflight; the key of the configuration; or AWS's error code, and its text where it is known."""
    sound: T

    def __str__(self) -> str:
        """Return what pytest calls the case."""
        return f"{self.entry} {self.said}"
