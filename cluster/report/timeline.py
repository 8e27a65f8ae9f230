"""The timeline of a run: the phases of each attempt, the nodes, and events."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from agent.spec.run_states import FINAL_STATES
from cluster.report.run_files import Document, RunFiles, document, documents, moment, number, whole
from cluster.report.shown_values import plain, plural
from cluster.terminal.units import amount

PREPARING, CHECKING, STARTING = "preparing the nodes", "pre-flight checks", "starting the ranks"
FIRST_STEP, TRAINING, CLOSING = "to the first step", "training and evaluation", "closing"
PHASES: Final = (PREPARING, CHECKING, STARTING, FIRST_STEP, TRAINING, CLOSING)
JOINED, CHECKPOINT, FAULT, RESUMED = "joined", "checkpoint", "fault", "resumed"
STRAGGLER, ENDED = "straggler", "ended"
"""Kinds of events. A straggler is a rank that became slower than the others, or is no longer slower."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of an attempt. Times are seconds since the start of the run, as in the other classes here."""

    name: str
    """One of PHASES."""
    begin_s: float
    end_s: float
    attempt: int = 1
    """Counted from 1."""

    @property
    def seconds(self) -> float:
        """Return the duration, s."""
        return self.end_s - self.begin_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at one moment."""

    at_s: float
    kind: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeSpan:
    """A node of the last attempt."""

    name: str
    address: str
    instance_type: str
    zone: str
    ranks: int
    joined_s: float | None
    """Time at which the node was prepared and checked; None if it never was."""
    left_s: float
    placement: str = ""
    """Cores and GPU of its first rank."""
    checks: tuple[tuple[str, str], ...] = ()
    """Name and finding of each pre-flight check."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timeline:
    """The phases, nodes and events of a run."""

    seconds: float
    """From the start of the run to its end, or to its last update."""
    phases: tuple[Phase, ...] = ()
    nodes: tuple[NodeSpan, ...] = ()
    events: tuple[Event, ...] = ()


def began(files: RunFiles) -> float:
    """Return the Unix time of the run's start: that of the first attempt if the metrics show it, else of the last."""
    started = float(files.record["state"]["started"])
    for event in files.metrics[:1]:
        at, elapsed_s = moment(event.get("time")), number(event.get("elapsed_s"))
        if at is not None and elapsed_s is not None and 0 <= elapsed_s <= at:
            return min(started, at - elapsed_s)
    return started


def timeline_of(files: RunFiles) -> Timeline:
    """Build the timeline of a run: phases of all attempts, nodes of the last attempt, and events.

    Times are seconds since the start of the run.
    """
    origin, state = began(files), files.record["state"]
    ended = max(float(state["updated"]), origin)
    times, attempts = _times(files), _attempts(files.metrics)
    launched = times.get("launched")
    has_trained = bool(attempts) and launched is not None and attempts[-1][0]["time"] >= launched
    # The record has the steps of only the last attempt. Earlier attempts are known from their metrics.
    earlier, current = (attempts[:-1], attempts[-1]) if has_trained else (attempts, [])
    last = max(int(files.record["attempts"]), len(attempts), 1)
    marks = [mark for number_, events in enumerate(earlier, 1) for mark in _training_marks(events, number_)]
    marks += _last_marks(times, current, ended, last)
    return Timeline(
        seconds=ended - origin,
        phases=tuple(
            Phase(name=name, begin_s=begin - origin, end_s=end - origin, attempt=attempt)
            for (name, begin, attempt), (_, end, _) in itertools.pairwise(marks)
            if name and end > begin
        ),
        nodes=_nodes(files, times, origin, ended),
        events=tuple(
            Event(at_s=at - origin, kind=kind, text=text)
            for at, kind, text in sorted(_events(files, times, attempts, ended), key=lambda event: event[0])
        ),
    )


def _times(files: RunFiles) -> dict[str, float]:
    """Return the Unix time of each step that the supervisor recorded in the last attempt, by the step's name.

    The record has the latest time of each step, so times before the last restart belong to an earlier attempt and are
    left out.
    """
    recorded = document(document(files.record.get("course")).get("times"))
    times = {step: at for step, value in recorded.items() if (at := moment(value)) is not None}
    begun = times.get("restarted", times.get("started", 0.0))
    return {step: at for step, at in times.items() if at >= begun}


def _attempts(metrics: Sequence[Document]) -> list[list[Document]]:
    """Split the events by attempt. Each attempt that reached training begins with `start`. Events without a time are
    left out.
    """
    attempts: list[list[Document]] = []
    for event in metrics:
        if moment(event.get("time")) is not None:
            if event["event"] == "start" or not attempts:
                attempts.append([])
            attempts[-1].append(event)
    return attempts


Mark = tuple[str, float, int]
"""Name of the phase that begins ("" at the end), its Unix time, and the attempt."""


def _training_marks(events: Sequence[Document], attempt: int) -> list[Mark]:
    """Return the marks of an attempt's training, each with the name of a phase, its start in Unix time, and the
    attempt.

    The mark at the end of the training has no name. Returns [] without events.
    """
    if not events:
        return []
    end = events[-1]["time"]
    first_step = next((event["time"] for event in events if event["event"] in ("step", "epoch")), end)
    return [(FIRST_STEP, events[0]["time"], attempt), (TRAINING, first_step, attempt), ("", end, attempt)]


def _last_marks(times: dict[str, float], events: Sequence[Document], ended: float, attempt: int) -> list[Mark]:
    """Return the marks of the last attempt, each with the name of a phase, its start in Unix time, and the attempt.

    The mark at the end of the attempt has no name. `times` has the times of the supervisor's steps. `events` are those
    of the training, if the attempt got that far.
    """
    begun = "restarted" if "restarted" in times else "started"
    steps = ((PREPARING, begun), (CHECKING, "prepared"), (STARTING, "inspected"))
    marks = [(name, times[step], attempt) for name, step in steps if step in times]
    if not events:
        return [*marks, ("", ended, attempt)]
    closing = [(CLOSING, events[-1]["time"], attempt), ("", times.get("ended", ended), attempt)]
    return [*marks, *_training_marks(events, attempt)[:-1], *closing]


def _nodes(files: RunFiles, times: dict[str, float], origin: float, ended: float) -> tuple[NodeSpan, ...]:
    """Return the nodes of the last attempt. `origin` is the Unix time of the run's start, `ended` that of its end."""
    record = files.record
    kinds, result = document(document(record.get("origin")).get("instance_types")), document(record.get("result"))
    checks, ready = _checks(document(record.get("preflight"))), times.get("inspected")
    placed: dict[Any, str] = {}
    if isinstance(result.get("hosts"), list) and isinstance(result.get("placements"), list):
        for host, placement in zip(result["hosts"], result["placements"], strict=False):
            placed.setdefault(str(host), plain(placement))
    return tuple(
        NodeSpan(
            name=(name := plain(host["name"])),
            address=plain(host["address"]),
            instance_type=plain(kinds.get(host["instance_id"])),
            zone=plain(host.get("zone")),
            ranks=host["slots"],
            joined_s=None if ready is None else ready - origin,
            left_s=times.get("ended", ended) - origin,
            placement=placed.get(host["name"], ""),
            checks=checks.get(name, ()),
        )
        for host in document(record.get("spec")).get("hosts") or ()
    )


def _checks(preflight: Document) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return name and finding of each pre-flight check, by node; {} for an invalid record."""
    columns, rows = preflight.get("columns"), preflight.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return {}
    return {
        plain(row[0]): tuple((plain(name), plain(cell)) for name, cell in zip(columns[1:], row[1:], strict=False))
        for row in rows
        if isinstance(row, list) and row
    }


Happened = tuple[float, str, str]
"""Unix time, kind and text of an event."""


def _events(
    files: RunFiles, times: dict[str, float], attempts: Sequence[Sequence[Document]], ended: float
) -> Iterator[Happened]:
    """Yield Unix time, kind and text of each event of a run, in no particular order.

    `times` has the times of the supervisor's steps, `attempts` the metrics of each attempt. `ended` is the end of the
    run, for events without a time.
    """
    record, state = files.record, files.record["state"]
    inspected, hosts = times.get("inspected"), document(record.get("spec")).get("hosts") or ()
    if hosts and inspected is not None:
        yield inspected, JOINED, f"{plural(len(hosts), 'node')} prepared and checked"
    findings = document(record.get("preflight")).get("findings")
    for finding in findings if isinstance(findings, list) else ():
        words = [document(finding).get(name) for name in ("node", "check", "what")]
        text = ": ".join(str(word) for word in words if word) if isinstance(finding, dict) else finding
        yield inspected or ended, FAULT, f"pre-flight: {plain(text)}"
    costs = record.get("restart_costs") or ()
    for place, restart in enumerate(documents(document(record.get("course")).get("restarts"))):
        if (at := moment(restart.get("time"))) is not None:
            cost = _cost(document(costs[place])) if place < len(costs) else ""
            yield at, FAULT, f"restart {place + 1}: {plain(restart.get('for'))}{cost}"
    for replaced in documents(document(record.get("course")).get("replaced")):
        if (at := moment(replaced.get("time"))) is not None:
            trouble = f"not replaced ({plain(replaced['trouble'])})" if replaced.get("trouble") else "replaced"
            yield at, FAULT, f"{plain(replaced.get('node'))} {trouble}: {plain(replaced.get('reason'))}"
    for attempt, events in enumerate(attempts, 1):
        for event in events:
            for kind, text in _told(event):
                yield event["time"], kind, text
        if attempt < len(attempts) and events[-1]["event"] not in ("end", "stopped"):
            yield events[-1]["time"], FAULT, f"attempt {attempt} ended without a result"
    if state["state"] in FINAL_STATES:
        text = state["state"] + (f": {plain(state['reason'])}" if state.get("reason") else "")
        yield times.get("ended", ended), FAULT if state["state"] == "failed" else ENDED, text


def _cost(restart: Document) -> str:
    """Describe the repeated steps and the time without a step that a restart cost; "" if neither is recorded."""
    lost, seconds = whole(restart.get("steps_lost")), number(restart.get("seconds"))
    known = [] if lost is None else [f"{plural(lost, 'step')} repeated"]
    known += [] if seconds is None else [f"{seconds:.1f} s without a step"]
    return f" ({', '.join(known)})" if known else ""


def _told(event: Document) -> Iterator[tuple[str, str]]:
    """Yield kind and text of the timeline events for one event of the metrics: checkpoints, faults, stragglers,
    resumption and stop. Other events yield none.
    """
    name, checkpoint = event["event"], plain(event.get("checkpoint"))
    if name == "checkpoint":
        size = number(event.get("bytes"))
        yield CHECKPOINT, checkpoint if size is None else f"{checkpoint}, {amount(size)}"
    elif name == "checkpoint_missed":
        yield FAULT, f"checkpoint {checkpoint} was not written: {plain(event.get('reason'))}"
    elif name == "straggler":
        yield STRAGGLER, plain(event.get("text"))
    elif name == "start":
        resumed, passed_over, ranks = event.get("resumed_from"), event.get("passed_over"), whole(event.get("ranks"))
        if resumed:
            yield RESUMED, f"resumed from {plain(resumed)}" + (f" on {plural(ranks, 'rank')}" if ranks else "")
        if passed_over:
            yield FAULT, plain(passed_over)
            if not resumed:
                yield RESUMED, "restarted from the beginning, because no checkpoint was intact"
    elif name == "stopped":
        yield ENDED, f"stopped in epoch {plain(event.get('epoch'))}, step {plain(event.get('step'))}"
    elif name == "epoch" and event.get("weights_agree") is False:
        yield FAULT, f"the ranks' weights differ after epoch {plain(event.get('epoch'))}"
