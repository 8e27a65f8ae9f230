"""The plan of a sweep: its parameters and repeats, and the runs that follow from them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent.spec.launchers import PLACEHOLDERS
from agent.spec.sweep_trial import Trial
from cluster.errors import DeepcdkError, UsageError
from cluster.sweeps.values import Parameter, parse_parameter

MAX_RUNS: Final = 10_000
MAX_SEED: Final = (1 << 31) - 1
SEED: Final = "seed"
NODES: Final = "nodes"
RUN_DIRECTORY: Final = "run_directory"
"""Placeholder of a recipe's command for the directory of the run."""
_COUNT: Final = re.compile("[1-9][0-9]{0,3}")
_COUNT_RULE: Final = "must be a number of nodes from 1 to 9999, or several separated by commas"
_BRACES: Final = re.compile(r"\{\{([A-Za-z_][\w.-]*)\}\}|(?<![$\\])\{([A-Za-z_][\w.-]*)\}")
Pairs = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters of a sweep, and how often it trains with each combination of values.

    Creating one raises DeepcdkError if its fields contradict each other, or for more than MAX_RUNS runs.
    """

    parameters: tuple[Parameter, ...]
    samples: int = 0
    """Number of combinations to draw at random; 0: all."""
    repeats: int = 1
    seed: int = 1
    """Seed of the first repeat, and of the draw. The next repeat has the next seed."""
    nodes: int = 1
    """Nodes of each run, unless `nodes` is a parameter."""
    command: tuple[str, ...] = ()
    """Command of each rank, with `{name}` for the value of a parameter; () until it is set."""

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise UsageError("--grid", twice, "is given twice; put all values of a parameter into one --grid")
        if self.repeats > 1 and SEED in names:
            raise UsageError("--repeats", self.repeats, "gives each repeat its own seed; leave out --grid seed")
        for each in self.parameters:
            if each.name == NODES and (each.distribution or not all(map(_COUNT.fullmatch, each.values))):
                raise UsageError(f"--grid {NODES}", each.distribution or ",".join(each.values), _COUNT_RULE)
        drawn = next((parameter for parameter in self.parameters if parameter.distribution), None)
        if drawn and not self.samples:
            raise UsageError(f"--grid {drawn.name}", drawn.distribution, "is a distribution, and needs --samples N")
        if not drawn and self.samples > (size := self.size):
            raise UsageError(
                "--samples",
                self.samples,
                f"is more than the {size:,} combinations of the values; leave out --samples to train with all",
            )
        if self.count > MAX_RUNS:
            what = f"the sweep has {self.count:,} runs, but at most {MAX_RUNS:,} are allowed"
            fix = "use fewer values or --repeats, or draw fewer combinations at random with --samples N"
            raise DeepcdkError(what, remedy=fix)
        if self.seed + self.repeats - 1 > MAX_SEED:
            highest = MAX_SEED - self.repeats + 1
            rule = f"is too large for {self.repeats} repeats, which use the next seeds; must be at most {highest}"
            raise UsageError("--seed", self.seed, rule)

    @property
    def size(self) -> int:
        """Return the number of combinations of all listed values. Parameters with a distribution do not count."""
        return math.prod(len(parameter.values) for parameter in self.parameters if not parameter.distribution)

    @property
    def count(self) -> int:
        """Return the number of runs: of all or of the drawn combinations, times the repeats."""
        return (self.samples or self.size) * self.repeats

    def combinations(self) -> list[Pairs]:
        """Return names and values of each combination. The last parameter changes fastest.

        With `samples`, return only that many combinations, drawn at random, always the same for a plan. Raises
        UsageError if there are too few different ones.
        """
        return list(self._drawn() if self.samples else self._grid())

    def _grid(self) -> Iterator[Pairs]:
        names = [parameter.name for parameter in self.parameters]
        for values in itertools.product(*(parameter.values for parameter in self.parameters)):
            yield tuple(zip(names, values, strict=True))

    def _drawn(self) -> Iterator[Pairs]:
        """Yield `samples` different combinations, always the same for a plan. Raises UsageError if they are too few."""
        source, seen = random.Random(f"{self.seed}"), set[Pairs]()  # noqa: S311  # not for secrets
        is_small = not any(parameter.distribution for parameter in self.parameters) and self.size <= 10 * MAX_RUNS
        if is_small:
            yield from sorted(self._grid(), key=lambda _: source.random())[: self.samples]
            return
        for _ in range(100 * self.samples):
            pairs = tuple((parameter.name, parameter.draw(source.random())) for parameter in self.parameters)
            if pairs not in seen:
                seen.add(pairs)
                yield pairs
            if len(seen) == self.samples:
                return
        raise UsageError(
            "--samples", self.samples, f"is too many: only {len(seen)} different combinations were drawn; use fewer"
        )

    def trials(self, sweep: str = "") -> list[Trial]:
        """Return the trial of each run, with its number and values. Each repeat trains once with all combinations.

        `sweep` is the sweep's name. Raises the errors of `combinations`.
        """
        plan, has_seed = self.to_json(), any(parameter.name == SEED for parameter in self.parameters)
        each = itertools.product(range(self.repeats), self.combinations())
        return [
            Trial(
                sweep=sweep,
                number=number,
                parameters=pairs,
                repeat=repeat + 1,
                seed=None if has_seed else self.seed + repeat,
                plan=plan,
            )
            for number, (repeat, pairs) in enumerate(each, start=1)
        ]

    def nodes_of(self, trial: Trial) -> int:
        """Return the number of nodes of one run: its value of the parameter `nodes`, or else the plan's number."""
        return int(dict(trial.parameters).get(NODES, self.nodes))

    @property
    def max_nodes(self) -> int:
        """Return the number of nodes of the largest run."""
        own = [int(value) for each in self.parameters if each.name == NODES for value in each.values]
        return max(own, default=self.nodes)

    def to_json(self) -> str:
        """Return the plan as JSON, for `from_json`."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Build the plan that a run's record has. Raises DeepcdkError if it is invalid."""
        try:
            document: dict[str, Any] = json.loads(text)
            parameters = tuple(
                Parameter(**{**each, "values": tuple(each["values"]), "arguments": tuple(each["arguments"])})
                for each in document["parameters"]
            )
            return cls(**{**document, "parameters": parameters, "command": tuple(document["command"])})
        except (ValueError, TypeError, LookupError, RecursionError):
            raise DeepcdkError(
                "the sweep cannot be resumed, because the record of its first run has no valid plan",
                remedy="start a new sweep with `fab sweep`",
            ) from None


def read_plan(grid: Sequence[str], *, samples: int, repeats: int, seed: int, nodes: str) -> Plan:
    """Build the plan, still without a command, from --grid, --samples, --repeats, --seed and --nodes-each.

    Several numbers of nodes become the parameter `nodes`. Raises DeepcdkError for an invalid value, or if there is
    neither a parameter nor a repeat.
    """
    parameters = [parse_parameter(text) for text in grid]
    counts = tuple(word.strip() for word in nodes.split(","))
    if not all(map(_COUNT.fullmatch, counts)):
        raise UsageError("--nodes-each", nodes, _COUNT_RULE)
    if len(counts) > 1:
        parameters.append(Parameter(name=NODES, values=counts))
    if not parameters and repeats == 1:
        rule = "must have a parameter with values, such as learning-rate=0.1,0.01; or give --repeats N"
        raise UsageError("--grid", None, rule)
    return Plan(parameters=tuple(parameters), samples=samples, repeats=repeats, seed=seed, nodes=int(counts[0]))


def expand(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with each `{name}` replaced by its value. `{{name}}` becomes `{name}`.

    Names without a value and other braces stay. The agent's placeholders, such as `{rank}`, stay too, in single or
    double braces. The agent expands them later.
    """

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0] if found[1] in PLACEHOLDERS else f"{{{found[1]}}}"
        return values.get(found[2], found[0])

    return tuple(_BRACES.sub(value, word) for word in words)


def check_placeholders(words: Sequence[str], names: Sequence[str]) -> None:
    """Raise UsageError if the words of an entry have an unknown `{name}`, or do not use one of the parameters.

    `names`: names of the parameters. The name `nodes` need not be used. A parameter must not have the name of one of
    the agent's placeholders.
    """
    used = {found[2] for word in words for found in _BRACES.finditer(word) if found[2]}
    known = {*names, SEED, *PLACEHOLDERS}
    if clash := next((name for name in names if name in PLACEHOLDERS), ""):
        raise UsageError("--grid", clash, f"is reserved; choose another name than {', '.join(PLACEHOLDERS)}")
    if unknown := sorted(used - known):
        rule = f"has no values: give --grid {unknown[0]}=A,B, or write {{{{{unknown[0]}}}}} for a text in braces"
        raise UsageError("--entry", f"{{{unknown[0]}}}", rule)
    if unused := next((name for name in names if name not in used and name != NODES), ""):
        raise UsageError(
            "--entry",
            " ".join(words),
            f"does not use {{{unused}}}, the parameter of --grid {unused}; add it, or leave out this --grid",
        )


def values_of(trial: Trial, run_directory: str) -> dict[str, str]:
    """Return the values of the placeholders in a run's command: run directory, seed and parameters."""
    seed = {} if trial.seed is None else {SEED: str(trial.seed)}
    return {RUN_DIRECTORY: run_directory, **seed, **dict(trial.parameters)}
