"""A rule by which AWS rejects a request, with its smallest violation."""

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
    """The smallest violation of a rule, what is rejected about it, and its valid counterpart."""

    entry: str
    """A label for the rule: its service, and a number."""
    violation: T
    said: str
    """The rule of cdk-preflight; the key of the configuration; or AWS's error code, and its text where it is known."""
    sound: T

    def __str__(self) -> str:
        """Return what pytest calls the case."""
        return f"{self.entry} {self.said}"
