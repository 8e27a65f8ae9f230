"""Several runs side by side: their differences, and repeats with the same settings averaged with their spread."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import string
from collections.abc import Iterator, Sequence
from typing import Final

from cluster.report.curves import EpochPoint
from cluster.report.run_report import FIGURES, SCALING, SPEED_PER_NODE, Headline, RunReport
from cluster.report.run_settings import CLUSTER, GROUPS, HOROVOD, RUN, TRAINING, VERSIONS
from cluster.report.shown_values import plural

OWN: Final = frozenset(
    {
        *("run", "state", "reason", "started", "exit code", "attempts", "resumed from", "command", "launched"),
        *("weights (SHA-256)", "checkpoints", "size", "directory", "copy"),
    }
)
"""Entries of the group RUN that are not settings: they differ between any two runs, or are outcomes."""
CODE: Final = ("recipe", "variant", "program", "payload", "runtime")
"""Entries of the group RUN that are the same in repeats."""
SEED: Final = "seed"
MAX_NAME: Final = 20
"""Maximum length of the parameters in a legend. The table of a sweep has the label of longer ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """Summary of the values of repeats."""

    count: int
    mean: float
    deviation: float | None
    """Sample standard deviation; None for a single value."""
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """Summarize the known values; None if there are none."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        deviation = statistics.stdev(known) if len(known) > 1 else None
        mean = statistics.fmean(known)
        return cls(count=len(known), mean=mean, deviation=deviation, least=min(known), most=max(known))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanPoint:
    """An epoch of repeats. A figure is None unless every repeat has it."""

    epoch: int
    at_s: float
    evaluation_loss: Spread | None
    """On the split in `Curves.evaluated`, like `evaluation_accuracy`."""
    evaluation_accuracy: Spread | None
    images_per_s_per_node: Spread | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeats:
    """A group of runs with the same settings and node count that differ only in their seed."""

    label: str
    """A, B, ..., Z, AA, ..."""
    runs: tuple[int, ...]
    """Indices in `Comparison.runs`."""
    figures: dict[str, Spread | None]
    """By the keys of the headlines that any of the runs has."""
    epochs: tuple[MeanPoint, ...]
    parameters: tuple[tuple[str, str], ...] = ()
    """Names and values of the parameters, for runs of a sweep."""

    @property
    def name(self) -> str:
        """Return the parameters if they are short, otherwise the label.

        The label of several runs without parameters is followed by their number: "A, mean of 3".
        """
        text = ", ".join(f"{name}={value}" for name, value in self.parameters)
        if 0 < len(text) <= MAX_NAME:
            return text
        return self.label if len(self.runs) == 1 or self.parameters else f"{self.label}, mean of {len(self.runs)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedSetting:
    """One setting in each run; `-` if a run does not have it."""

    group: str
    name: str
    values: tuple[str, ...]
    differs: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs side by side."""

    runs: tuple[RunReport, ...]
    labels: tuple[str, ...]
    """Label of each run's repeats, numbered if there are several: A1, A2, B."""
    repeats: tuple[Repeats, ...]
    headlines: tuple[tuple[Headline, ...], ...]
    """Headlines of each run, with the scaling efficiency if the node counts differ."""
    settings: tuple[ComparedSetting, ...]


def compare(runs: Sequence[RunReport]) -> Comparison:
    """Compare runs, in the order given. Repeats share a letter as label, and are averaged.

    Repeats are runs that differ at most in their seed (see `_identity`), or runs of a sweep with the same parameters.
    """
    members: dict[object, list[int]] = {}
    for place, run in enumerate(runs):
        members.setdefault(_identity(run), []).append(place)
    headlines = _with_scaling(runs)
    repeats = tuple(
        Repeats(
            label=label,
            runs=tuple(places),
            figures={
                key: Spread.of([found[key].value for place in places if key in (found := by_key(headlines[place]))])
                for key in keys_of([headlines[place] for place in places])
            },
            epochs=_mean_epochs([runs[place].curves.epochs for place in places]),
            parameters=runs[places[0]].trial.parameters,
        )
        for label, places in zip(_letters(), members.values(), strict=False)
    )
    labels = {
        place: group.label + (f"{number}" if len(group.runs) > 1 else "")
        for group in repeats
        for number, place in enumerate(group.runs, 1)
    }
    return Comparison(
        runs=tuple(runs),
        labels=tuple(labels[place] for place in range(len(runs))),
        repeats=repeats,
        headlines=tuple(headlines),
        settings=tuple(_settings(runs)),
    )


def by_key(headlines: Sequence[Headline]) -> dict[str, Headline]:
    """Return a run's headlines by their keys."""
    return {each.key: each for each in headlines}


def keys_of(runs: Sequence[Sequence[Headline]]) -> list[str]:
    """Return the keys that any of these runs' headlines have, in the order of FIGURES."""
    found = {each.key for headlines in runs for each in headlines}
    return [key for key in FIGURES if key in found]


def _letters() -> Iterator[str]:
    for length in itertools.count(1):
        yield from map("".join, itertools.product(string.ascii_uppercase, repeat=length))


def _identity(run: RunReport) -> object:
    """Return a value that is equal for repeats: node and rank counts, code, machines, settings without the seed, and
    versions.

    For a user program, the command counts too, because it has all settings. For runs of a sweep, only the sweep and the
    parameters count.
    """
    if run.trial.sweep:
        return run.trial.sweep, run.trial.parameters
    code = run.group(RUN)
    settings = run.group(TRAINING).items() | run.group(HOROVOD).items()
    return (
        run.nodes,
        run.ranks,
        tuple(code.get(name) for name in CODE),
        run.group(CLUSTER).get("instances"),
        frozenset((name, value) for name, value in settings if name != SEED),
        frozenset(run.group(VERSIONS).items()),
        None if run.recipe else code.get("command"),
    )


def _with_scaling(runs: Sequence[RunReport]) -> list[tuple[Headline, ...]]:
    """Return each run's headlines. If runs of one recipe or program have different node counts, the scaling efficiency
    is added.

    It is relative to the mean of the runs on the fewest nodes.
    """
    works = {(run.recipe, run.group(RUN).get("program")) for run in runs}
    if len({run.nodes for run in runs}) < 2 or len(works) > 1:
        return [run.headlines for run in runs]
    fewest = min(run.nodes for run in runs)
    base = Spread.of([run.headline(SPEED_PER_NODE).value for run in runs if run.nodes == fewest])
    note = f"images/s per node, as a share of that on {plural(fewest, 'node')}"
    found = []
    for run in runs:
        speed = run.headline(SPEED_PER_NODE).value
        share = speed / base.mean if speed is not None and base and base.mean else None
        found.append((*run.headlines, Headline.of(SCALING, share, note)))
    return found


def _mean_epochs(runs: Sequence[Sequence[EpochPoint]]) -> tuple[MeanPoint, ...]:
    """Return the means of the epochs that all repeats have, by epoch. `runs` are the epochs of each repeat."""
    by_epoch = [{point.epoch: point for point in points} for points in runs]
    shared = sorted(set.intersection(*(set(points) for points in by_epoch)))

    def spread(epoch: int, name: str) -> Spread | None:
        values = [getattr(points[epoch], name) for points in by_epoch]
        return None if None in values else Spread.of(values)

    return tuple(
        MeanPoint(
            epoch=epoch,
            at_s=statistics.fmean(points[epoch].at_s for points in by_epoch),
            evaluation_loss=spread(epoch, "evaluation_loss"),
            evaluation_accuracy=spread(epoch, "evaluation_accuracy"),
            images_per_s_per_node=spread(epoch, "images_per_s_per_node"),
        )
        for epoch in shared
    )


def _settings(runs: Sequence[RunReport]) -> Iterator[ComparedSetting]:
    """Yield each setting that any of the runs has, by group, without those that differ in any two runs (OWN).

    Nodes and ranks count as settings. A run without the setting has the value "-".
    """
    for title in GROUPS:
        groups = [run.group(title) for run in runs]
        if title == RUN:
            groups = [
                {"nodes": f"{run.nodes}", "ranks": f"{run.ranks}"} | {n: v for n, v in group.items() if n not in OWN}
                for run, group in zip(runs, groups, strict=True)
            ]
        for name in dict.fromkeys(name for group in groups for name in group):
            values = tuple(group.get(name, "-") for group in groups)
            yield ComparedSetting(group=title, name=name, values=values, differs=len(set(values)) > 1)
