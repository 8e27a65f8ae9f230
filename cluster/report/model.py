"""What a report shows, as plain values: the same for HTML, Markdown and JSON."""

from __future__ import annotations

import dataclasses
from typing import Final

from cluster.planner.outcome import Outcome

FORMAT: Final = "deepcdk-report/1"
"""Of the JSON documents; a change that breaks a reader gets the next number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headline:
    """One figure at the head of the report."""

    key: str
    """As it is called in JSON, with its unit: `test_accuracy`, `seconds`."""
    title: str
    value: float | None
    """In the unit of the key; None where the record does not have it."""
    text: str
    """The value for people; `unknown` where it is None."""
    note: str = ""
    """What the figure counts, in a few words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochPoint:
    """The figures of one epoch, None where the record has none."""

    epoch: int
    """Counted from 1."""
    at_s: float
    """Seconds since the run's start; at the epoch's end."""
    train_loss: float | None = None
    test_loss: float | None = None
    """Of the split that was evaluated: `Curves.evaluated`."""
    train_accuracy: float | None = None
    """0 to 1."""
    test_accuracy: float | None = None
    global_batch: int | None = None
    """Images of a step over all ranks."""
    image_size: int | None = None
    """Height of the training images, pixels."""
    images_per_s: float | None = None
    """Over all ranks, of the time within training steps."""
    images_per_s_per_node: float | None = None
    seconds: float | None = None
    """Wall time, evaluation included."""
    data_wait_s: float | None = None
    """How long the rank that waited longest waited for images."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPoint:
    """The figures of training steps: the mean of `steps` recorded ones that follow each other."""

    epoch: float
    """Epochs done: 2.5 is the middle of the third."""
    at_s: float
    """Seconds since the run's start."""
    loss: float | None = None
    accuracy: float | None = None
    learning_rate: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curves:
    """What changes over a run."""

    epochs: tuple[EpochPoint, ...] = ()
    steps: tuple[StepPoint, ...] = ()
    evaluated: str = "test"
    """The split that is evaluated after each epoch: test or validation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A span of a run, in the order of time."""

    name: str
    begin_s: float
    """Seconds since the run's start."""
    end_s: float
    attempt: int = 1
    """Counted from 1; a resumed run has more than one."""

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return self.end_s - self.begin_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at one moment."""

    at_s: float
    """Seconds since the run's start."""
    kind: str
    """One of KINDS."""
    text: str


JOINED: Final = "joined"
CHECKPOINT: Final = "checkpoint"
FAULT: Final = "fault"
RESUMED: Final = "resumed"
ENDED: Final = "ended"
STRAGGLER: Final = "straggler"
"""A rank began to be slower than the others, or keeps up again."""
KINDS: Final = (JOINED, CHECKPOINT, FAULT, RESUMED, ENDED, STRAGGLER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeSpan:
    """A node that the last attempt ran on, from when it was ready to the end of the run."""

    name: str
    address: str
    instance_type: str
    zone: str
    ranks: int
    joined_s: float | None
    """Seconds since the run's start at which its preparation and checks were done; None where they never were."""
    left_s: float
    placement: str = ""
    """Cores and GPU of its first rank."""
    checks: tuple[tuple[str, str], ...] = ()
    """What the pre-flight checks found: name and finding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timeline:
    """When what happened."""

    seconds: float
    """From the run's start to its end, or to its last sign of life."""
    phases: tuple[Phase, ...] = ()
    nodes: tuple[NodeSpan, ...] = ()
    events: tuple[Event, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confused:
    """Images of one class that were taken for another."""

    truth: str
    recognised: str
    images: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class MistakenImage:
    """A test image that was taken for another class with much confidence."""

    truth: str
    recognised: str
    confidence: float
    """Probability that the network gave to the class that it took it for, 0 to 1."""
    png_base64: str
    """The image, checked to be a small PNG."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfusionMatrix:
    """Which class was taken for which."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """[classes, classes]: true class by recognised class."""
    recall: tuple[float | None, ...]
    precision: tuple[float | None, ...]
    confused: tuple[Confused, ...]
    """The pairs that were confused most, most first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One thing that was set, measured or built with."""

    name: str
    value: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingGroup:
    """Settings of one subject."""

    title: str
    settings: tuple[Setting, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunReport:
    """The report of one run."""

    run_id: str
    recipe: str
    """Empty for a program of the user's."""
    state: str
    reason: str
    started: float
    """Unix time."""
    nodes: int
    ranks: int
    attempts: int
    headlines: tuple[Headline, ...]
    curves: Curves
    timeline: Timeline
    confusion: ConfusionMatrix | None
    mistakes: tuple[MistakenImage, ...]
    """The surest ones, the surest first."""
    settings: tuple[SettingGroup, ...]
    outcomes: tuple[Outcome, ...]
    """What was expected of the run beside what it took; none where it had no estimate."""
    last_lines: tuple[str, ...]
    """Of the log, where the run failed."""
    missing: tuple[str, ...]
    """What the record does not have, a sentence each."""

    def headline(self, key: str) -> Headline:
        """Return a headline by its key."""
        return next(each for each in self.headlines if each.key == key)

    def group(self, title: str) -> dict[str, str]:
        """Return the settings of a group by name; of none where there is no such group."""
        return {each.name: each.value for found in self.settings if found.title == title for each in found.settings}
