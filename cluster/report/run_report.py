"""Build the report of one run from its files."""

from __future__ import annotations

from typing import Final

from agent.spec.states import FINAL_STATES
from cluster.aws.prices import as_of
from cluster.planner.outcome import outcomes
from cluster.report.confusion_matrix import confusion_of
from cluster.report.curves import curves_of
from cluster.report.mistaken_images import mistakes_of
from cluster.report.model import Curves, Headline, RunReport, Timeline
from cluster.report.run_files import Document, RunFiles, document, number, whole
from cluster.report.run_settings import settings_of
from cluster.report.timeline import FIRST_STEP, began, timeline_of
from cluster.report.wording import dollars, percent, plain, rate_text, time_text

ACCURACY: Final = "test_accuracy"
SECONDS: Final = "seconds"
COST: Final = "usd"
SPEED_PER_NODE: Final = "images_per_s_per_node"
TRAINING_SHARE: Final = "training_share"
FIRST_STEP_AFTER: Final = "first_step_s"
DATA_WAIT: Final = "data_wait_share"


def report_of(files: RunFiles) -> RunReport:
    """Build the report of one run. Pure: the same files give the same report."""
    record = files.record
    state, spec, result = record["state"], document(record.get("spec")), document(record.get("result"))
    hosts = spec.get("hosts") or state["hosts"]
    curves, timeline = curves_of(files.metrics, began=began(files), nodes=len(hosts)), timeline_of(files)
    confusion = confusion_of(files.confusion)
    start = next((event for event in reversed(files.metrics) if event["event"] == "start"), {})
    return RunReport(
        run_id=record["run_id"],
        recipe=plain(str(spec.get("recipe") or result.get("recipe") or "")),
        state=state["state"],
        reason=plain(str(state.get("reason") or "")),
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
    )


def headlines(record: Document, curves: Curves, timeline: Timeline) -> tuple[Headline, ...]:
    """Return the figures at the head of a report: accuracy, time, cost, efficiency."""
    state, result, nodes = record["state"], document(record.get("result")), max(1, len(timeline.nodes))
    seconds = max(0.0, float(state["updated"]) - float(state["started"]))
    speed = number(result.get("images_per_s"))
    if speed is None and curves.epochs:
        speed = curves.epochs[-1].images_per_s
    per_node = None if speed is None else speed / nodes
    first = [
        phase.end_s for phase in timeline.phases if phase.name == FIRST_STEP and phase.attempt == record["attempts"]
    ]
    first_s = first[-1] - (timeline.seconds - seconds) if first else None
    share, wait = _training_share(result, seconds), _wait_share(result)
    usd = number(record.get("usd"))
    attempt = f"attempt {record['attempts']} alone" if record["attempts"] > 1 else ""
    return (
        _accuracy(result, curves),
        Headline(
            key=SECONDS, title="Time", value=seconds, text=time_text(seconds), note=attempt or "from start to end"
        ),
        Headline(key=COST, title="Cost", value=usd, text=dollars(usd), note=_priced(record, attempt)),
        Headline(
            key=SPEED_PER_NODE,
            title="Images/s per node",
            value=per_node,
            text=rate_text(per_node),
            note=f"{rate_text(speed)} images/s on {nodes} node{'s' * (nodes != 1)}" if speed is not None else "",
        ),
        Headline(
            key=TRAINING_SHARE,
            title="Time in training steps",
            value=share,
            text=percent(share, 0),
            note="the rest: start-up, evaluation, checkpoints" if share is not None else "",
        ),
        Headline(
            key=FIRST_STEP_AFTER,
            title="First step after",
            value=first_s,
            text=time_text(first_s),
            note="start to the end of the first training step" if first_s is not None else "",
        ),
        Headline(
            key=DATA_WAIT,
            title="Waiting for images",
            value=wait,
            text=percent(wait, 0),
            note="of the time in training steps, the slowest rank" if wait is not None else "",
        ),
    )


def _accuracy(result: Document, curves: Curves) -> Headline:
    """Return the final accuracy: of the result, else of the last epoch that was evaluated."""
    measured = [point for point in curves.epochs if point.test_accuracy is not None]
    value, split = number(result.get("test_accuracy")), "test"
    if value is None and measured:
        value, split = measured[-1].test_accuracy, curves.evaluated
    note = ""
    if measured:
        best = max(measured, key=lambda point: point.test_accuracy or 0)
        note = f"after {measured[-1].epoch} epochs; best {percent(best.test_accuracy)} in epoch {best.epoch}"
    return Headline(key=ACCURACY, title=f"{split.capitalize()} accuracy", value=value, text=percent(value), note=note)


def _training_share(result: Document, seconds: float) -> float | None:
    training = number(result.get("training_seconds"))
    return training / seconds if training is not None and seconds else None


def _wait_share(result: Document) -> float | None:
    waited, training = number(result.get("data_wait_seconds")), number(result.get("training_seconds"))
    return waited / training if waited is not None and training else None


def _priced(record: Document, attempt: str) -> str:
    """Return what a cost counts."""
    if number(record.get("usd")) is None:
        return "no price is known for its instances"
    dated = as_of(plain(str(document(record.get("origin")).get("prices_of") or "")))
    return ", ".join(filter(None, [f"instances on demand{dated}", _on_spot(document(record.get("spot"))), attempt]))


def _on_spot(spot: Document) -> str:
    """Return what the instances cost with those on spot; "" where none was."""
    hosts, usd = whole(spot.get("hosts")), number(spot.get("usd"))
    if not hosts:
        return ""
    nodes = f"{hosts} node{'s' * (hosts != 1)} on spot"
    return (
        f"less with {nodes}"
        if usd is None
        else f"{dollars(usd)} with {nodes}{as_of(plain(str(spot.get('prices_of'))))}"
    )


def _missing(files: RunFiles, curves: Curves, *, has_confusion: bool) -> tuple[str, ...]:
    """Return what the record does not have, and how the next run's would."""
    record, found = files.record, []
    if record["state"]["state"] not in FINAL_STATES:
        found.append("The run had not ended when this record was written.")
    if not record.get("result"):
        found.append("It has no result: the run wrote none, as only one of `payload.train` that succeeds does.")
    if not curves.epochs:
        found.append("It has no epoch: no curves are drawn.")
    if not has_confusion:
        found.append("It has no confusion matrix; `fab train ... -- --confusion-matrix` writes one.")
    elif files.mistakes is None:
        found.append(
            "It has no images that were confused, which runs of this version write with their confusion matrix."
        )
    if not document(record.get("course")).get("times"):
        found.append("It does not say when the nodes were prepared and checked.")
    elif record["attempts"] > 1:
        found.append(
            "Of earlier attempts it has the training alone: not the cost, and not how the nodes were prepared."
        )
    if files.skipped_lines:
        found.append(f"{files.skipped_lines} lines of metrics.jsonl hold no event.")
    return tuple(found)
