"""Runs side by side: what differs between them, and repeats of the same settings averaged with their spread."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import string
from collections.abc import Callable, Sequence
from typing import Final

from cluster.report.model import EpochPoint, Headline, RunReport
from cluster.report.run_report import SPEED_PER_NODE
from cluster.report.run_settings import CLUSTER, GROUPS, HOROVOD, RUN, TRAINING, VERSIONS

SCALING: Final = "scaling_efficiency"
OWN: Final = frozenset(
    {
        *("run", "state", "reason", "started", "exit code", "attempts", "resumed from", "command", "launched"),
        *("weights (SHA-256)", "checkpoints", "size", "directory", "copy"),
    }
)
"""What of a run differs between any two, or is its outcome rather than a setting."""
CODE: Final = ("recipe", "variant", "program", "payload", "runtime")
"""What of the group RUN is to be the same in repeats."""
MACHINES: Final = ("instances",)
"""What of the group CLUSTER is to be the same in repeats."""
SEED: Final = "seed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """Values of repeats, summed up."""

    count: int
    mean: float
    deviation: float | None
    """Sample standard deviation; None for a single value."""
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Sum up one value or more."""
        return cls(
            count=len(values),
            mean=statistics.fmean(values),
            deviation=statistics.stdev(values) if len(values) > 1 else None,
            least=min(values),
            most=max(values),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanPoint:
    """An epoch of repeats: the mean over those that have it, which are all."""

    epoch: int
    at_s: float
    test_loss: Spread | None
    test_accuracy: Spread | None
    images_per_s_per_node: Spread | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeats:
    """Runs of the same settings on as many nodes, but for the seed; a run without its like is one alone."""

    label: str
    """A, B, ..., Z, AA, ..."""
    runs: tuple[int, ...]
    """Their places in `Comparison.runs`."""
    figures: tuple[tuple[str, Spread | None], ...]
    """The headlines' values, by key."""
    epochs: tuple[MeanPoint, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedSetting:
    """One setting in each run; `-` where a run has none of that name."""

    group: str
    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Return whether it is not the same in all runs."""
        return len(set(self.values)) > 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs side by side."""

    runs: tuple[RunReport, ...]
    labels: tuple[str, ...]
    """Of each run: its repeats' label, with a number where there are several: A1, A2, B."""
    repeats: tuple[Repeats, ...]
    headlines: tuple[tuple[Headline, ...], ...]
    """Of each run, with the efficiency of scaling where the numbers of nodes differ."""
    settings: tuple[ComparedSetting, ...]


def compare(runs: Sequence[RunReport]) -> Comparison:
    """Compare runs, in the order given. Pure."""
    members: dict[object, list[int]] = {}
    for place, run in enumerate(runs):
        members.setdefault(_identity(run), []).append(place)
    headlines = _with_scaling(runs)
    repeats = tuple(
        Repeats(
            label=label,
            runs=tuple(places),
            figures=_figures([headlines[place] for place in places]),
            epochs=_mean_epochs([runs[place].curves.epochs for place in places]),
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
        settings=_settings(runs),
    )


def _letters() -> itertools.chain[str]:
    return itertools.chain(
        string.ascii_uppercase, map("".join, itertools.product(string.ascii_uppercase, string.ascii_uppercase))
    )


def _identity(run: RunReport) -> object:
    """Return what is the same in repeats."""
    code, machines = run.group(RUN), run.group(CLUSTER)
    settings = run.group(TRAINING).items() | run.group(HOROVOD).items()
    return (
        run.nodes,
        run.ranks,
        tuple(code.get(name) for name in CODE),
        tuple(machines.get(name) for name in MACHINES),
        frozenset((name, value) for name, value in settings if name != SEED),
        frozenset(run.group(VERSIONS).items()),
        # A program of the user's has its settings in its command alone.
        () if run.recipe else code.get("command"),
    )


def _with_scaling(runs: Sequence[RunReport]) -> list[tuple[Headline, ...]]:
    """Return each run's headlines, and where the numbers of nodes differ, its speed per node beside the fewest's."""
    if len({run.nodes for run in runs}) < 2 or len({run.recipe for run in runs}) > 1:
        return [run.headlines for run in runs]
    fewest = min(run.nodes for run in runs)
    known = [run.headline(SPEED_PER_NODE).value for run in runs if run.nodes == fewest]
    speeds = [value for value in known if value]
    found = []
    for run in runs:
        speed = run.headline(SPEED_PER_NODE).value
        share = speed / statistics.fmean(speeds) if speed is not None and speeds else None
        headline = Headline(
            key=SCALING,
            title="Scaling efficiency",
            value=share,
            text="unknown" if share is None else f"{share:.0%}",
            note=f"images/s per node, of those on {fewest} node{'s' * (fewest != 1)}",
        )
        found.append((*run.headlines, headline))
    return found


def _figures(headlines: Sequence[Sequence[Headline]]) -> tuple[tuple[str, Spread | None], ...]:
    """Return the spread of each figure over repeats; None where none of them has it."""
    found = []
    for same in zip(*headlines, strict=True):
        values = [each.value for each in same if each.value is not None]
        found.append((same[0].key, Spread.of(values) if values else None))
    return tuple(found)


def _mean_epochs(runs: Sequence[Sequence[EpochPoint]]) -> tuple[MeanPoint, ...]:
    """Return the means over repeats, of the epochs that all of them have."""
    by_epoch = [{point.epoch: point for point in points} for points in runs]
    shared = sorted(set.intersection(*(set(points) for points in by_epoch)))

    def spread(epoch: int, value: Callable[[EpochPoint], float | None]) -> Spread | None:
        values = [found for points in by_epoch if (found := value(points[epoch])) is not None]
        return Spread.of(values) if len(values) == len(by_epoch) else None

    return tuple(
        MeanPoint(
            epoch=epoch,
            at_s=statistics.fmean(points[epoch].at_s for points in by_epoch),
            test_loss=spread(epoch, lambda point: point.test_loss),
            test_accuracy=spread(epoch, lambda point: point.test_accuracy),
            images_per_s_per_node=spread(epoch, lambda point: point.images_per_s_per_node),
        )
        for epoch in shared
    )


def _settings(runs: Sequence[RunReport]) -> tuple[ComparedSetting, ...]:
    """Return each setting that any of the runs has, in the order of the groups."""
    found = [
        ComparedSetting(group=RUN, name="nodes", values=tuple(f"{run.nodes}" for run in runs)),
        ComparedSetting(group=RUN, name="ranks", values=tuple(f"{run.ranks}" for run in runs)),
    ]
    for title in GROUPS:
        groups = [run.group(title) for run in runs]
        names = dict.fromkeys(name for group in groups for name in group)
        found += [
            ComparedSetting(group=title, name=name, values=tuple(group.get(name, "-") for group in groups))
            for name in names
            if title != RUN or name not in OWN
        ]
    return tuple(found)
