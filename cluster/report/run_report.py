"""The report of one run as plain values, from its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from agent.errors import SpecError
from agent.spec.run import TRAINING
from agent.spec.run_states import FINAL_STATES
from agent.spec.sweep_trial import Trial
from cluster.aws.prices import as_of
from cluster.planner.expected_and_actual import Outcome, outcomes
from cluster.report.confused_classes import ConfusionMatrix, MistakenImage, confusion_of, mistakes_of
from cluster.report.curves import Curves, curves_of
from cluster.report.run_files import Document, RunFiles, document, number, whole
from cluster.report.run_settings import Settings, settings_of
from cluster.report.shown_values import dollars, percent, plain, plural, rate_text, time_text
from cluster.report.timeline import FIRST_STEP, Timeline, began, timeline_of

TEST_ACCURACY, VALIDATION_ACCURACY = "test_accuracy", "validation_accuracy"
SECONDS, COST, SPEED_PER_NODE = "seconds", "usd", "images_per_s_per_node"
TRAINING_SHARE, FIRST_STEP_AFTER, DATA_WAIT = "training_share", "first_step_s", "data_wait_share"
SCALING: Final = "scaling_efficiency"
"""Only in comparisons: images/s per node relative to the runs on the fewest nodes."""
FIGURES: Final[dict[str, tuple[str, Callable[[float | None], str]]]] = {
    TEST_ACCURACY: ("Test accuracy", percent),
    VALIDATION_ACCURACY: ("Validation accuracy", percent),
    SECONDS: ("Time", time_text),
    COST: ("Cost", dollars),
    SPEED_PER_NODE: ("Images/s per node", rate_text),
    TRAINING_SHARE: ("Time in training steps", lambda share: percent(share, 0)),
    FIRST_STEP_AFTER: ("First step after", time_text),
    DATA_WAIT: ("Waiting for images", lambda share: percent(share, 0)),
    SCALING: ("Scaling efficiency", lambda share: percent(share, 0)),
}
"""Title and format of each headline. A run has one of the two accuracies."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headline:
    """A figure at the top of a report."""

    key: str
    """Name in JSON, with its unit."""
    title: str
    value: float | None
    """None if the record does not have it."""
    text: str
    note: str = ""

    @classmethod
    def of(cls, key: str, value: float | None, note: str = "") -> Headline:
        """Build the headline for a value. `key` is a key of FIGURES. The note is dropped if the value is unknown."""
        title, form = FIGURES[key]
        return cls(key=key, title=title, value=value, text=form(value), note=note if value is not None else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunReport:
    """The report of one run."""

    run_id: str
    recipe: str
    """"" for a user program."""
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
    """Most confident first."""
    settings: Settings
    outcomes: tuple[Outcome, ...]
    """Expected and actual figures, if the run had an estimate."""
    last_lines: tuple[str, ...]
    """Last lines of the log of a failed run."""
    missing: tuple[str, ...]
    """One sentence for each item that the record does not have."""
    trial: Trial = dataclasses.field(default_factory=Trial)
    """The run's place in a sweep, without the plan."""

    def headline(self, key: str) -> Headline:
        """Return a headline by its key. Raises StopIteration if the report has no such headline."""
        return next(each for each in self.headlines if each.key == key)

    def group(self, title: str) -> dict[str, str]:
        """Return the settings of a group by name; empty if the report has no such group."""
        return self.settings.get(title, {})


def report_of(files: RunFiles) -> RunReport:
    """Build the report of one run from its record, metrics and other files. The same files give the same report."""
    record = files.record
    state, spec, result = record["state"], document(record.get("spec")), document(record.get("result"))
    hosts = spec.get("hosts") or state["hosts"]
    curves, timeline = curves_of(files.metrics, began=began(files), nodes=len(hosts)), timeline_of(files)
    confusion = confusion_of(files.confusion)
    start = next((event for event in reversed(files.metrics) if event["event"] == "start"), {})
    return RunReport(
        run_id=record["run_id"],
        recipe="" if spec.get("program") else plain(spec.get("recipe") or result.get("recipe")),
        state=state["state"],
        reason=plain(state.get("reason")),
        started=state["started"],
        nodes=len(hosts),
        ranks=whole(start.get("ranks")) or sum(node.ranks for node in timeline.nodes),
        attempts=record["attempts"],
        headlines=headlines(record, curves, timeline),
        curves=curves,
        timeline=timeline,
        confusion=confusion,
        mistakes=mistakes_of(files.mistakes),
        settings=settings_of(files),
        outcomes=outcomes(record),
        last_lines=tuple(plain(line) for line in state.get("last_lines") or ()),
        missing=_missing(files, curves, has_confusion=confusion is not None),
        trial=trial_of(spec.get("trial")),
    )


def trial_of(value: object) -> Trial:
    """Return a run's place in a sweep from its spec or state, as printable text, without the sweep's plan.

    It is empty if the value is invalid.
    """
    try:
        found = Trial.from_document({**document(value), "plan": ""})
    except (SpecError, KeyError, TypeError, ValueError):
        return Trial()
    return dataclasses.replace(found, parameters=tuple((plain(name), plain(text)) for name, text in found.parameters))


def headlines(record: Document, curves: Curves, timeline: Timeline) -> tuple[Headline, ...]:
    """Return the figures at the top of a report: accuracy, time, cost, speed and efficiency.

    A figure that the record lacks has the value None. Time and cost are those of the last attempt. If there is no
    result, accuracy and speed are those of the last epoch.
    """
    state, result, nodes = record["state"], document(record.get("result")), max(1, len(timeline.nodes))
    seconds = max(0.0, float(state["updated"]) - float(state["started"]))
    speed = number(result.get("images_per_s"))
    if speed is None and curves.epochs:
        speed = curves.epochs[-1].images_per_s
    ends = [p.end_s for p in timeline.phases if p.name == FIRST_STEP and p.attempt == record["attempts"]]
    first_step_s = ends[-1] - (timeline.seconds - seconds) if ends else None
    training, waited = number(result.get("training_seconds")), number(result.get("data_wait_seconds"))
    share = training / seconds if training is not None and seconds else None
    wait = waited / training if waited is not None and training else None
    attempt = f"only attempt {record['attempts']}" if record["attempts"] > 1 else ""
    cost = Headline.of(COST, number(record.get("usd")), _cost_note(record, attempt))
    if cost.value is None:
        cost = dataclasses.replace(cost, note="no price is known for its instances")
    on_nodes = f"{rate_text(speed)} images/s on {plural(nodes, 'node')}"
    return (
        _accuracy(result, curves),
        Headline.of(SECONDS, seconds, attempt or "from start to end"),
        cost,
        Headline.of(SPEED_PER_NODE, None if speed is None else speed / nodes, on_nodes),
        Headline.of(TRAINING_SHARE, share, "the rest: start-up, evaluation, checkpoints"),
        Headline.of(FIRST_STEP_AFTER, first_step_s, "start to the end of the first training step"),
        Headline.of(DATA_WAIT, wait, "of the time in training steps, the slowest rank"),
    )


def _accuracy(result: Document, curves: Curves) -> Headline:
    """Return the headline for the test accuracy in the result, or else for the accuracy in the last evaluated epoch.

    Its note has the number of epochs, and the best epoch.
    """
    measured = [point for point in curves.epochs if point.evaluation_accuracy is not None]
    value, split, note = number(result.get("test_accuracy")), "test", ""
    if value is None:
        value, split = measured[-1].evaluation_accuracy if measured else None, curves.evaluated
    if measured:
        best = max(measured, key=lambda point: point.evaluation_accuracy or 0)
        name = "best" if split == curves.evaluated else f"best {curves.evaluated} accuracy"
        note = f"after {measured[-1].epoch} epochs; {name} {percent(best.evaluation_accuracy)} in epoch {best.epoch}"
    return Headline.of(TEST_ACCURACY if split == "test" else VALIDATION_ACCURACY, value, note)


def _cost_note(record: Document, attempt: str) -> str:
    """Return the note on a run's cost: what it includes, the cost with spot instances, and `attempt`."""
    dated = as_of(plain(document(record.get("origin")).get("prices_of")))
    spot = document(record.get("spot"))
    hosts, usd, on_spot = whole(spot.get("hosts")), number(spot.get("usd")), ""
    if hosts:
        nodes = f"{plural(hosts, 'node')} on spot"
        prices = as_of(plain(spot.get("prices_of")))
        on_spot = f"less with {nodes}" if usd is None else f"{dollars(usd)} with {nodes}{prices}"
    return ", ".join(filter(None, [f"instances on demand{dated}", on_spot, attempt]))


def _missing(files: RunFiles, curves: Curves, *, has_confusion: bool) -> tuple[str, ...]:
    """Return a sentence for each item that the record lacks, such as a result, epochs or the times of preparation.

    `has_confusion` means that the run has a confusion matrix. Only a recipe can lack one.
    """
    record, times = files.record, document(document(files.record.get("course")).get("times"))
    is_recipe = tuple(document(record.get("spec")).get("command") or ())[: len(TRAINING)] == TRAINING
    sentences = {
        "The run had not ended when this record was written.": record["state"]["state"] not in FINAL_STATES,
        "There is no result. Only recipes write a result, when they succeed.": not record.get("result"),
        "There are no epochs, so no curves are drawn.": not curves.epochs,
        "There is no confusion matrix. To write one: `fab train ... -- --confusion-matrix`.": is_recipe
        and not has_confusion,
        "The time at which the nodes were prepared and checked is missing.": not times,
        "For earlier attempts, only the training is recorded, without cost and preparation.": times
        and record["attempts"] > 1,
        f"Left out of metrics.jsonl: {plural(files.skipped_lines, 'line')} without a valid event.": files.skipped_lines,
    }
    return tuple(sentence for sentence, is_missing in sentences.items() if is_missing)
