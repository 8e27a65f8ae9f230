"""The values of a sweep's parameter: a list, a range, the lines of a file, or a distribution to draw from."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from statistics import NormalDist
from typing import Final

from cluster.errors import UsageError

MAX_VALUES: Final = 10_000
MAX_FILE_BYTES: Final = 1 << 20
FORMS: Final = (
    "NAME=A,B,C, NAME=FIRST..LAST, NAME=FIRST..LAST..STEP, NAME=@FILE with a value per line, or with --samples "
    "NAME=uniform(A,B)"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_NUMBER: Final = r"[-+]?(?:\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})(?:[eE][-+]?\d{1,2})?"
_RANGE: Final = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?:\.\.({_NUMBER}))?")
_COLONS: Final = re.compile(rf"{_NUMBER}:{_NUMBER}(?::{_NUMBER})?")
_CALL: Final = re.compile(r"([a-z_]+)\(([^()]*)\)")
DISTRIBUTIONS: Final[Mapping[str, Callable[[float, float, float], str]]] = {
    "uniform": lambda low, high, share: f"{low + (high - low) * share:.6g}",
    "loguniform": lambda low, high, share: f"{low * (high / low) ** share:.6g}",
    "randint": lambda low, high, share: f"{int(low + (high - low + 1) * share)}",
    "lograndint": lambda low, high, share: f"{min(int(high), int(low * ((high + 1) / low) ** share))}",
    "normal": lambda mean, deviation, share: f"{NormalDist(mean, deviation).inv_cdf(share or 0.5):.6g}",
}
"""Functions from two arguments and a random number of [0, 1) to a value. The names are those of Ray Tune."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter with the values that it takes, or the distribution that they are drawn from."""

    name: str
    values: tuple[str, ...] = ()
    distribution: str = ""
    """One of DISTRIBUTIONS; "" for a list of values."""
    arguments: tuple[float, float] = (0.0, 0.0)
    """The distribution's two numbers."""

    def draw(self, share: float) -> str:
        """Return the parameter's value, as text, for `share`, a random number of [0, 1)."""
        if self.distribution:
            return DISTRIBUTIONS[self.distribution](*self.arguments, share)
        return self.values[int(share * len(self.values))]


def parse_parameter(text: str) -> Parameter:
    """Parse one --grid argument: NAME=A,B,C, a range (NAME=1..9..2), a distribution (NAME=uniform(0,1)) or NAME=@FILE.

    Raises UsageError for other text, for empty, repeated or too many values, and for a file that cannot be read.
    """
    name, equals, values = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise UsageError("--grid", text, f"must be {FORMS}")
    flag = f"--grid {name}"
    if found := _CALL.fullmatch(values):
        return _distribution(name, flag, values, found[1], found[2])
    if values.startswith("@"):
        return Parameter(name=name, values=_checked(flag, values, _lines(flag, values[1:])))
    if found := _RANGE.fullmatch(values):
        return Parameter(name=name, values=_range(flag, values, *found.groups()))
    if _COLONS.fullmatch(values):
        rule = "is not a range: write FIRST..LAST..STEP, for example 0..10..2"
        raise UsageError(flag, values, f"{rule}; for a text with colons, give '{name}=\"{values}\"'")
    try:
        (row,) = csv.reader([values], strict=True, skipinitialspace=True)
    except (csv.Error, ValueError):
        raise UsageError(flag, values, 'is not one line of values with closed quotes, as in a,"b,c"') from None
    return Parameter(name=name, values=_checked(flag, values, row))


def _checked(flag: str, text: str, values: list[str]) -> tuple[str, ...]:
    if len(values) > MAX_VALUES:
        raise UsageError(flag, text, f"has {len(values):,} values; at most {MAX_VALUES:,} are allowed")
    seen: set[str] = set()
    for value in values or [""]:
        if not value.strip():
            rule = "has an empty value; remove the comma before or after it" if values else "has no values; give A,B,C"
            raise UsageError(flag, text, rule)
        if "\0" in value or not value.isprintable():
            raise UsageError(flag, value, "has a character that cannot be printed; remove it")
        if value in seen:
            raise UsageError(flag, text, f"has {value} twice; remove one. --repeats N trains with each value N times")
        seen.add(value)
    return tuple(values)


def _lines(flag: str, name: str) -> list[str]:
    """Return the lines of the file `name` without empty lines.

    Raises UsageError, which names `flag`, if it cannot be read, is not UTF-8, is too large, or has no such line.
    """
    path = Path(name).expanduser()
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(flag, f"@{name}", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(flag, f"@{name}", "is not UTF-8 text; save it as UTF-8") from None
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(flag, f"@{name}", f"has more than {MAX_FILE_BYTES:,} bytes; it must have a value per line")
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise UsageError(flag, f"@{name}", "is empty; it must have a value per line")
    return found


def _range(flag: str, text: str, first: str, last: str, step: str | None) -> tuple[str, ...]:
    """Return the values from first to last, both included, as texts. Decimal numbers are exact: 0.1..0.3..0.1 has
    three.

    Without a `step`, it is 1 or -1. Raises UsageError for a step that does not lead from first to last, or too many
    values.
    """
    begin, end = Decimal(first), Decimal(last)
    by = Decimal(step) if step else Decimal(1 if end >= begin else -1)
    if by == 0 or (end - begin) * by < 0:
        rule = "has a step that does not lead from FIRST to LAST; give a step above 0 if LAST is larger, else below 0"
        raise UsageError(flag, text, rule)
    count = (end - begin) / by
    if count >= MAX_VALUES:
        raise UsageError(flag, text, f"has about {int(count) + 1:,} values; at most {MAX_VALUES:,} are allowed")
    return tuple(f"{(begin + n * by).normalize():f}" for n in range(int(count) + 1))


def _distribution(name: str, flag: str, text: str, function: str, arguments: str) -> Parameter:
    known = ", ".join(f"{each}(A,B)" for each in DISTRIBUTIONS)
    if function not in DISTRIBUTIONS:
        rule = f"is an unknown distribution; use one of {known}. A range is FIRST..LAST..STEP, a list is A,B,C"
        raise UsageError(flag, text, rule)
    try:
        low, high = map(float, arguments.split(","))
    except ValueError:
        raise UsageError(flag, text, f"must have two numbers: {function}(A,B)") from None
    is_whole = not function.endswith("randint") or (low.is_integer() and high.is_integer())
    if not math.isfinite(high - low) or not is_whole:  # also if one of them is infinite or no number
        rule = "must have two numbers with a finite difference, and whole ones for randint and lograndint"
        raise UsageError(flag, text, rule)
    if function == "normal":
        if high <= 0:
            raise UsageError(flag, text, "must have a standard deviation above 0")
    elif low >= high or (function.startswith("log") and low <= 0):
        above = ", and both must be above 0" if function.startswith("log") else ""
        raise UsageError(flag, text, f"must have a second number that is larger than the first{above}")
    if function.startswith("log") and not math.isfinite(high / low):
        raise UsageError(flag, text, "must have numbers whose ratio is finite")
    return Parameter(name=name, distribution=function, arguments=(low, high))
