"""Declare settings, and validate their values. Standard library only."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

from agent.errors import ReportedError


class SettingError(ReportedError, ValueError):
    """The value of a setting is invalid. Carries `flag`, `value` and `rule`, the rule that the value breaks.

    The message is `FLAG VALUE: RULE`, without the value if it is None.
    """

    def __init__(self, flag: str, value: object, rule: str) -> None:
        self.flag, self.value, self.rule = flag, value, rule
        super().__init__(f"{flag}: {rule}" if value is None else f"{flag} {value}: {rule}")


def flag_of(name: str) -> str:
    """Return the command-line flag of a setting: "train_limit" gives "--train-limit"."""
    return "--" + name.replace("_", "-")


def setting(
    default: Any, text: str, *, low: float | None = None, high: float | None = None, choices: Sequence[str] = ()
) -> Any:
    """Return a dataclass field that declares a setting: its default, its help text and its allowed values.

    `text`: one line, with the unit. `low` and `high` are both allowed. Values are checked by `check_fields`.
    """
    return dataclasses.field(
        default=default, metadata={"help": text, "low": low, "high": high, "choices": tuple(choices)}
    )


def check_fields(settings: Any) -> None:
    """Raise SettingError for the first setting that is out of its range or not among its choices.

    `settings`: a dataclass whose fields `setting` declares. Each item of a tuple is checked. A setting without range
    and choices is not checked.
    """
    for field in dataclasses.fields(settings):
        found, rule, flag = getattr(settings, field.name), field.metadata, flag_of(field.name)
        low, high, choices = rule.get("low"), rule.get("high"), rule.get("choices")
        for value in found if isinstance(found, tuple) else (found,):
            if choices and value not in choices:
                near = difflib.get_close_matches(str(value), choices, n=1)
                question = f"; did you mean {near[0]}?" if near else ""
                raise SettingError(flag, value, f"must be one of {', '.join(choices)}{question}")
            if low is not None and high is not None and not low <= value <= high:  # also rejects NaN
                raise SettingError(flag, value, f"must be {low:.10g} to {high:.10g}")
