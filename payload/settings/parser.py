"""Parse settings on the command line. Each declared setting has a flag. Standard library only."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import re
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from payload.settings import GROUPS, SettingError, flag_of


class SettingsParser(argparse.ArgumentParser):
    """Parse flags. Errors raise SettingError, because otherwise each rank would print the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise SettingError with the flag and message of argparse. Two of its messages are reworded."""
        found = re.fullmatch(r"argument (--[a-z0-9-]+)(?:/--no-[a-z0-9-]+)?: (.*)", message, flags=re.DOTALL)
        if not found:
            raise SettingError("arguments", None, message)
        flag, rule = found[1], found[2]
        switch = f"takes no value: give {flag} or --no-{flag.removeprefix('--')} (in a sweep, yes or no), not "
        rule = rule.replace("ignored explicit argument ", switch).replace("expected one argument", "needs a value")
        raise SettingError(flag, None, rule)

    def add_settings(self, *groups: type) -> None:
        """Add a flag for each setting of these groups (default: all groups). Flags have no default values."""
        for group in groups or GROUPS:
            section = self.add_argument_group((group.__doc__ or "").strip().rstrip("."))
            types = typing.get_type_hints(group)
            for field in dataclasses.fields(group):
                options: dict[str, Any] = {"help": field.metadata["help"].replace("%", "%%")}
                if types[field.name] is bool:
                    options |= {"action": argparse.BooleanOptionalAction, "default": None}
                else:
                    options |= {"type": _PARSERS[types[field.name]], "metavar": "VALUE"}
                section.add_argument(flag_of(field.name), **options)

    def given(self, argv: Sequence[str]) -> dict[str, Any]:
        """Parse arguments; return the values of the flags that are present, by name, without defaults.

        Raises SettingError for an invalid value or an unknown flag, with the nearest known flag.
        """
        found, unknown = self.parse_known_args(list(argv))
        if unknown:
            raise unknown_value("argument", unknown[0], [flag_of(name) for name in vars(found)])
        return {name: value for name, value in vars(found).items() if value is not None}


def unknown_value(what: str, value: str, known: Sequence[str]) -> SettingError:
    """Return, without raising it, the error for an unknown `value` of `what`, such as a flag.

    The message suggests the nearest known name, if one is similar, and lists all of them.
    """
    near = difflib.get_close_matches(value.split("=")[0], known, n=1)
    question = f"; did you mean {near[0]}?" if near else "."
    return SettingError(what, value, f"unknown{question} Known: {', '.join(sorted(known))}")


def path_argument(text: str) -> Path:
    """Parse a path. Raises ArgumentTypeError for an empty text, which is probably an unset variable of the shell."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return Path(text)


def integer(text: str) -> int:
    """Parse a whole number. Raises ArgumentTypeError."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}")
    return value


def integers(text: str) -> tuple[int, ...]:
    """Parse whole numbers separated by commas; () for an empty text. Raises ArgumentTypeError."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be whole numbers separated by commas, not {text!r}") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


_PARSERS: Final[dict[Any, Callable[[str], Any]]] = {
    int: integer,
    float: _number,
    str: str,
    tuple[int, ...]: integers,
    tuple[str, ...]: _words,
}
