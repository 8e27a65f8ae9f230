"""A problem with the configuration, and the error that lists all problems."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from stacks.config_keys.value_checks import ConfigError, shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """A rule that the configuration breaks, or a caution."""

    key: str
    value: object
    rule: str
    remedy: str

    @property
    def what(self) -> str:
        """Return key, value and rule as one line."""
        return f"{self.key} = {shown(self.value)}: {self.rule}"

    def __str__(self) -> str:
        """Return two lines: the problem, and how to fix it."""
        return f"cluster.{self.what}\n    do: {self.remedy}"


def unused(config: object, keys: Iterable[str], why: str, remedy: str) -> Iterator[Problem]:
    """Yield a problem for each of `keys` that is set, although the caller knows that it has no effect.

    A key is set if its value differs from its default. `why` completes the sentence "has no effect". `remedy` is what
    would give the key an effect.
    """
    for key in keys:
        value = getattr(config, key)
        if value != getattr(type(config), key):
            yield Problem(key=key, value=value, rule=f"has no effect {why}", remedy=f"{remedy}, or remove {key}")


class InvalidClusterError(ConfigError):
    """Report all problems of a configuration. Carries `problems`; key, value and rule come from the first problem."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].key, problems[0].value, problems[0].rule)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """Return the number of problems and all problems, as lines."""
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        listed = "\n".join(f"  {problem}" for problem in self.problems)
        return f"{count} in the configuration; nothing was deployed\n{listed}"
