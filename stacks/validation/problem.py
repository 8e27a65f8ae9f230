"""A problem with the configuration, and the error that lists all problems."""

from __future__ import annotations

import dataclasses

from stacks.config_keys.rules import ConfigError


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
        return f"{self.key} = {self.value!r}: {self.rule}"

    def __str__(self) -> str:
        """Return two lines: the problem, and how to fix it."""
        return f"cluster.{self.what}\n    do: {self.remedy}"


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
