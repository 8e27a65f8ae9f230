"""The question that `fab plan` is asked, and its answer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cluster.cli.flags import parse_number, parse_whole
from cluster.errors import UsageError
from cluster.planner import candidates
from cluster.planner.assumptions import Assumptions
from cluster.planner.calibration import NOTHING, Calibration
from cluster.planner.candidates import Candidate, Choice, HourlyPrices
from cluster.planner.hardware import Hardware, hardware_of
from cluster.planner.workload import Workload, workload_of
from cluster.runs.recipe_or_program import RecipeFlags, Training
from stacks.config import ClusterConfig

FORMAT: Final = "deepcdk-plan/1"
MAX_NODES: Final = 4096
ANY_DATA: Final = "/data"
"""Placeholder for the data directory, which an estimate does not read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """All candidates, the recommended one, and the assumptions."""

    title: str
    candidates: tuple[Candidate, ...]
    choice: Choice
    assumptions: Mapping[str, Assumptions]
    """By instance type."""
    cautions: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON values: format, title, candidates, chosen, reason, assumptions and cautions."""
        chosen = self.choice.candidate
        return {
            "format": FORMAT,
            "title": self.title,
            "candidates": [each.document() for each in self.candidates],
            "chosen": {"instance_type": chosen.instance_type, "nodes": chosen.nodes} if chosen else None,
            "reason": self.choice.reason,
            "assumptions": {name: dataclasses.asdict(assumed) for name, assumed in self.assumptions.items()},
            "cautions": list(self.cautions),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A recipe, the nodes to compare, and the run's limits."""

    training: Training
    types: tuple[Hardware, ...]
    counts: tuple[int, ...]
    deadline_s: float | None
    budget_usd: float | None
    to_target: bool
    efa: bool
    placement_group: bool
    calibration: Calibration = NOTHING

    @property
    def title(self) -> str:
        """Return the title of the plan: the recipe's name, and whether its source's accuracy is the target."""
        return f"{self.training.recipe}{', to the accuracy of its source' if self.to_target else ''}"

    def answer(self, prices: Mapping[str, HourlyPrices]) -> Answer:
        """Return the estimates of all candidates, and the recommended one. `prices` are by instance type.

        Raises UsageError if no estimate is possible.
        """
        workload = functools.cache(self.workload)
        found = candidates.evaluate(workload, self._assume, self.types, self.counts, prices)
        ranks = [kind.ranks * count for kind in self.types for count in self.counts]
        assumptions = {kind.instance_type: self._assume(workload(min(ranks)), kind) for kind in self.types}
        return Answer(
            title=self.title,
            candidates=tuple(found),
            choice=candidates.choose(found, deadline_s=self.deadline_s, budget_usd=self.budget_usd),
            assumptions=assumptions,
            cautions=self._cautions(),
        )

    def workload(self, ranks: int) -> Workload:
        """Return the workload of the recipe on this number of ranks; with `to_target`, only until the target epoch.

        Raises UsageError for an invalid setting, or with `to_target` if the recipe has no target epoch.
        """
        config = self.training.config(ranks)
        workload = workload_of(config.settings, ranks)
        if not self.to_target:
            return workload
        epochs = config.variant.target_epochs if config.variant else 0
        if not epochs:
            rule = f"recipe {config.recipe.name} does not state in which epoch its published accuracy was first reached"
            raise UsageError("--to-target", None, f"{rule}; leave the flag out")
        return workload.until(epochs)

    def _assume(self, workload: Workload, hardware: Hardware, nodes: int = 0) -> Assumptions:
        try:
            return self.calibration.assume(
                workload, hardware, efa=self.efa, placement_group=self.placement_group, nodes=nodes
            )
        except LookupError as error:
            raise UsageError("--instance", hardware.instance_type, str(error)) from None

    def _cautions(self) -> tuple[str, ...]:
        """Return notes: what the mark of the choice means, which GPUs were not measured, and whether gradients use TCP.

        The last one is only for GPU types that support EFA.
        """
        found = ["* the choice; --assumptions shows the assumptions and their sources"]
        if any(kind.gpus for kind in self.types):
            found.append("rates of GPUs other than the H200 are published or estimated; no other GPU was measured")
        if any(kind.gpus and kind.efa for kind in self.types) and not self.efa:
            found.append("gradients use TCP; --set efa=true shows the effect of EFA")
        return tuple(found)


def read(
    recipe: RecipeFlags,
    further: Sequence[str],
    *,
    nodes: str,
    instances: str,
    deadline: str,
    budget: str,
    to_target: bool,
    config: ClusterConfig,
) -> Question:
    """Build the question from the flags of `fab plan`, given as texts; "" for a flag that is not given.

    `further` are the words after `--`. `deadline` is in hours, `budget` in USD. Without `instances`, the recipe's types
    are compared, or else the cluster's. With `to_target`, a run ends at the accuracy that the recipe's source reached.
    The question has no `calibration` yet. Raises UsageError for an invalid value.
    """
    training = _training(recipe, further)
    names = _words(instances) or _default_types(training, config)
    counts = {parse_whole("--nodes", word, lowest=1, highest=MAX_NODES) for word in _words(nodes)}
    if not counts:
        raise UsageError("--nodes", nodes, "must be numbers of nodes, comma-separated, such as 1,2,4")
    hours = _positive("--deadline", deadline, "hours")
    return Question(
        training=training,
        types=tuple(hardware_of(name) for name in dict.fromkeys(names)),
        counts=tuple(sorted(counts)),
        deadline_s=None if hours is None else hours * 3600,
        budget_usd=_positive("--budget", budget, "US dollars"),
        to_target=to_target,
        efa=config.efa,
        placement_group=config.placement_group,
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _positive(flag: str, text: str, unit: str) -> float | None:
    if not text:
        return None
    number = parse_number(flag, text)
    if not 0 < number < float("inf"):
        raise UsageError(flag, text, f"must be a number of {unit} above 0")
    return number


def _training(recipe: RecipeFlags, further: Sequence[str]) -> Training:
    """Return the recipe with its flags. If it needs a data directory and none is given, it gets ANY_DATA. Raises
    UsageError.
    """
    try:
        return recipe.training(further)
    except UsageError as error:
        if error.name != "--data-dir" or error.value is not None:
            raise
    return dataclasses.replace(recipe, data_dir=ANY_DATA).training(further)


def _default_types(training: Training, config: ClusterConfig) -> list[str]:
    current = training.config(1).recipe.current_types
    return [each.instance_type for each in current] or list(config.worker_types)
