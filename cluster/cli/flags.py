"""Flags from declarations: a function's parameters, each annotated with its help, and dataclasses of such fields.

nodes: Annotated[str, "worker nodes to train on"] = "2"      --nodes=2
force: Annotated[bool, "kill at once"] = False               --force
env: Annotated[tuple[str, ...], "may be repeated"] = ()      --env A --env B
cycle_time_ms: Annotated[float | None, "milliseconds"] = None
knobs: Knobs                                                 a group: the flags are the fields of the dataclass
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from cluster.errors import UsageError

T = TypeVar("T")
REPEATED: Final = tuple[str, ...]
MOST: Final = 999_999_999
"""More than any flag can mean; Python itself refuses to read numbers of thousands of digits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag of a task."""

    parameter: str
    """As Python spells it: `batch_per_rank`, and `set_` for --set."""
    kind: Any
    """str, bool, tuple[str, ...], int | None or float | None."""
    default: Any
    help: str

    @property
    def name(self) -> str:
        """Return the flag as it is typed."""
        return f"--{self.parameter.strip('_').replace('_', '-')}"

    def parse(self, value: Any) -> Any:
        """Return the value that Invoke has read in the flag's type. Raises UsageError that names the flag."""
        if self.kind == REPEATED:
            return tuple(value)
        if self.kind in (str, bool):
            return value
        if not value:
            return None
        return parse_whole(self.name, value, lowest=0) if self.kind == int | None else parse_number(self.name, value)


def flags_of(declared: Callable[..., object]) -> Iterator[Flag]:
    """Yield the flags of a function, or of a dataclass, in the order of their declaration."""
    hints = typing.get_type_hints(declared, include_extras=True)
    for name, parameter in inspect.signature(declared).parameters.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            yield from flags_of(typing.cast("type", hint))
        else:
            yield Flag(parameter=name, kind=hint.__origin__, default=parameter.default, help=hint.__metadata__[0])


def call(declared: Callable[..., T], values: Mapping[str, Any]) -> T:
    """Call a function with the values of its flags, and each group among its parameters built from its own."""
    hints = typing.get_type_hints(declared)
    return declared(
        **{
            name: call(hints[name], values) if dataclasses.is_dataclass(hints[name]) else values[name]
            for name in inspect.signature(declared).parameters
        }
    )


def parse_whole(name: str, text: str, *, lowest: int, highest: int = MOST, called: str = "") -> int:
    """Parse a whole number of the flag `name`; `called` says what gives the highest its value.

    Raises UsageError that names the rule.
    """
    digits = text.lstrip("0")
    is_number = text.isascii() and text.isdecimal() and len(digits) <= len(str(MOST))
    number = int(digits or "0") if is_number else None
    if number is None or not lowest <= number <= highest:
        rule = f"must be a whole number from {lowest} to {highest}"
        raise UsageError(name, text, f"{rule} ({called})" if called else rule)
    return number


def parse_positive(name: str, text: str, *, highest: float, unit: str) -> float:
    """Parse a number above 0 of the flag `name`. Raises UsageError that names the rule."""
    number = parse_number(name, text)
    if not 0 < number <= highest:  # False for nan, too
        raise UsageError(name, text, f"must be {unit} above 0, at most {highest:g}")
    return number


def parse_number(name: str, text: str) -> float:
    """Parse a number of the flag `name`. Raises UsageError that names the rule."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(name, text, "must be a number") from None
