"""A run's place in a sweep: its parameters, its repeat and its seed. Plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from agent.errors import SpecError
from agent.spec.run_id import RUN_ID_RULE, is_run_id

SEED_VARIABLE: Final = "DEEPCDK_SEED"
"""Variable with the seed of a run of a sweep, for its ranks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A run's place in a sweep. All fields are empty if the run does not belong to a sweep."""

    sweep: str = ""
    """Name of the sweep."""
    number: int = 0
    """Number of the run in the sweep, from 1."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Names and values of the parameters of this run, in the order of the command line."""
    repeat: int = 0
    """Number among the runs with these parameters, from 1."""
    seed: int | None = None
    """Seed of the run. Repeats have different ones. None: the program's own."""
    first: str = ""
    """Id of the run that starts before the others. If it fails at once, the others are not started."""
    plan: str = ""
    """The sweep as JSON, from which the laptop computes the parameters of all runs. Only the first run has it."""

    def __post_init__(self) -> None:
        if self.sweep and not is_run_id(self.sweep):
            raise SpecError(f"trial: sweep = {self.sweep!r}: must be {RUN_ID_RULE}")
        numbers = {"number": self.number, "repeat": self.repeat, "seed": 0 if self.seed is None else self.seed}
        for name, number in numbers.items():
            if type(number) is not int or number < 0:
                raise SpecError(f"trial: {name} = {number!r}: must be a whole number, 0 or more")
        for name, text in {"sweep": self.sweep, "first": self.first, "plan": self.plan}.items():
            if not isinstance(text, str):
                raise SpecError(f"trial: {name} = {text!r}: must be text")
        if any(len(pair) != 2 or not all(isinstance(text, str) for text in pair) for pair in self.parameters):
            raise SpecError("trial: parameters must be pairs of a name and a value, both text")

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Trial:
        """Build the trial from JSON values. Raises SpecError, TypeError, ValueError or KeyError if it is invalid."""
        pairs = tuple((name, value) for name, value in document["parameters"])
        return cls(**{**document, "parameters": pairs})

    @property
    def text(self) -> str:
        """Return the parameters as text: `lr=0.1, depth=3`."""
        return ", ".join(f"{name}={value}" for name, value in self.parameters)
