"""Flags declared by a function's parameters, each annotated with its help text, and by dataclasses of such fields.

stack: Annotated[str, "name of the stack"] = "deepcdk"      --stack=deepcdk
force: Annotated[bool, "kill at once"] = False              --force
env: Annotated[tuple[str, ...], "may be repeated"] = ()     --env A --env B
nodes: Annotated[int, "worker nodes", whole(lowest=1)] = 2  --nodes=2; whole() parses the text
cycle_time_ms: Annotated[float | None, "milliseconds"] = None
knobs: Knobs                                                a group: the flags are the fields of the dataclass

Invoke supports positional arguments only as required ones. Here they are optional (`fab ssh worker3` for `fab ssh
--node worker3`), so the flag is inserted before Invoke parses the words.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from agent.spec.run_id import RUN_ID_RULE, is_run_id
from cluster.errors import UsageError

T = TypeVar("T")
Reader = Callable[[str, str], Any]
"""Function that converts the text given for a flag to its value: (flag, text) -> value. Raises UsageError with the
rule.
"""
REPEATED: Final = tuple[str, ...]
MOST: Final = 999_999_999
"""More than any flag allows. Python itself rejects numbers with thousands of digits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag of a task."""

    parameter: str
    """Python name of the parameter: `batch_per_rank`, or `set_` for --set."""
    kind: Any
    default: Any
    help: str
    reader: Reader | None
    """None for plain text, switches and flags that may be repeated."""

    @property
    def name(self) -> str:
        """Return the flag as it is typed."""
        return f"--{self.parameter.strip('_').replace('_', '-')}"

    @property
    def described(self) -> str:
        """Return the help text. A default that the text does not name is added, except for switches."""
        is_complete = not self.default or isinstance(self.default, bool) or "default:" in self.help
        return self.help if is_complete else f"{self.help}; default: {self.default}"

    @property
    def typed_default(self) -> Any:
        """Return the default for Invoke, which infers the flag's type from it; None if a reader converts the flag's
        text.
        """
        return None if self.reader else self.default

    def parse(self, value: Any) -> Any:
        """Convert the value that Invoke has parsed, or return the default if none was given. Raises UsageError."""
        if self.kind == REPEATED:
            return tuple(value)
        if not self.reader:
            return value
        if value is None or (value == "" and not self.default):
            return self.default
        return self.reader(self.name, value)


def flags_of(declared: Callable[..., object]) -> Iterator[Flag]:
    """Yield the flags of a function or dataclass, in the order of declaration.

    For a parameter that is a group of flags, the group's flags are yielded.
    """
    hints = typing.get_type_hints(declared, include_extras=True)
    for name, parameter in inspect.signature(declared).parameters.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            yield from flags_of(typing.cast("type", hint))
        else:
            kind, (help, *readers) = hint.__origin__, hint.__metadata__
            reader = readers[0] if readers else _READERS.get(kind)
            yield Flag(parameter=name, kind=kind, default=parameter.default, help=help, reader=reader)


def call(declared: Callable[..., T], values: Mapping[str, Any]) -> T:
    """Call a function or dataclass with the values of its flags, and return the result.

    `values` has the parsed value of each flag by its parameter, also for the flags of groups, which are built first.
    """
    hints = typing.get_type_hints(declared)
    return declared(
        **{
            name: call(hints[name], values) if dataclasses.is_dataclass(hints[name]) else values[name]
            for name in inspect.signature(declared).parameters
        }
    )


def changed(group: object) -> list[str]:
    """Return the flags of a group and of the groups in it, as they are typed, whose values differ from their defaults.

    `group` is an object of a dataclass of flags.
    """
    values = {name: getattr(group, name) for name in inspect.signature(type(group)).parameters}
    inner = {name for name, value in values.items() if dataclasses.is_dataclass(value)}
    own = [flag for flag in flags_of(type(group)) if flag.parameter in values.keys() - inner]
    found = [flag.name for flag in own if values[flag.parameter] != flag.default]
    return [*found, *(name for each in values if each in inner for name in changed(values[each]))]


def parse_whole(name: str, text: str, *, lowest: int, highest: int = MOST, called: str = "") -> int:
    """Parse a whole number given for the flag `name`. `called` says in the error where the highest value comes from.

    Raises UsageError for any other text, and for numbers outside of `lowest` to `highest`.
    """
    digits = text.lstrip("0")
    is_number = text.isascii() and text.isdecimal() and len(digits) <= len(str(MOST))
    number = int(digits or "0") if is_number else None
    if number is None or not lowest <= number <= highest:
        rule = f"must be a whole number from {lowest} to {highest}"
        raise UsageError(name, text, f"{rule} ({called})" if called else rule)
    return number


def parse_number(name: str, text: str) -> float:
    """Parse a number given for the flag `name`. Raises UsageError for any other text.

    Accepts nan and infinity, so the caller must check the range.
    """
    try:
        return float(text)
    except ValueError:
        raise UsageError(name, text, "must be a number") from None


def parse_run_id(name: str, text: str) -> str:
    """Return the text given for the flag `name` if it can be a run's id. Raises UsageError otherwise, for example for a
    path. Whether there is such a run is not checked.
    """
    if not is_run_id(text):
        raise UsageError(name, text, f"must be a run's id, {RUN_ID_RULE}; `fab runs` lists them")
    return text


def whole(*, lowest: int, highest: int = MOST) -> Reader:
    """Return a reader of whole numbers from `lowest` to `highest`, inclusive."""
    return functools.partial(parse_whole, lowest=lowest, highest=highest)


NO_LIMIT: Final = "none"


def limit(*, highest: float, unit: str) -> Reader:
    """Return a reader of limits: numbers above 0, at most `highest`, or NO_LIMIT, which it reads as 0.

    `unit` names the unit in messages. The reader raises UsageError for any other text.
    """

    def read(name: str, text: str) -> float:
        if text == NO_LIMIT:
            return 0.0
        number = parse_number(name, text)
        if not 0 < number <= highest:  # also false for nan
            raise UsageError(name, text, f"must be {unit} above 0, at most {highest:,.0f}; or {NO_LIMIT}: no limit")
        return number

    return read


_READERS: Final[Mapping[Any, Reader]] = {int | None: whole(lowest=0), float | None: parse_number}
"""Readers of flags that declare none, by type."""


def with_flags(words: Sequence[str], contexts: Iterable[Any], flag_of: Mapping[str, str]) -> list[str]:
    """Insert the flag that `flag_of` has for a task before the task's positional word: `ssh worker3` becomes `ssh
    --node worker3`.

    `contexts` are Invoke's parser contexts, which list each task's flags. A task's name starts the next task. A flag
    that may be repeated is inserted before every positional word. Any other flag is inserted once, and not if it was
    already given. Invoke then rejects the remaining words.
    """
    flags_of = {context.name: context.flags for context in contexts}
    found: list[str] = []
    flag, flags, valued = "", {}, False
    for word in words:
        if valued:
            valued = False
        elif word in flags_of:
            flag, flags = flag_of.get(word, ""), flags_of[word]
        elif word.startswith("-"):
            name, equals, _ = word.partition("=")
            valued = name in flags and flags[name].takes_value and not equals
            if name == flag and not _is_repeated(flags, flag):
                flag = ""
        elif flag:
            found.append(flag)
            if not _is_repeated(flags, flag):
                flag = ""
        found.append(word)
    return found


def _is_repeated(flags: Mapping[str, Any], flag: str) -> bool:
    """Return whether Invoke collects the values of a flag in a list."""
    return flag in flags and flags[flag].kind is list


def words_after_dashes(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words after the first `--` unchanged; () without a `--`. Invoke would join them with spaces."""
    words = list(argv)
    return tuple(words[words.index("--") + 1 :]) if "--" in words else ()
