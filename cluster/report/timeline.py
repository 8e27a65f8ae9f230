"""The timeline of a run: phases of each attempt, nodes, and what happened when."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.spec.states import FINAL_STATES
from cluster.report.model import (
    CHECKPOINT,
    ENDED,
    FAULT,
    JOINED,
    RESUMED,
    STRAGGLER,
    Event,
    NodeSpan,
    Phase,
    Timeline,
)
from cluster.report.run_files import Document, RunFiles, document, moment, number, whole
from cluster.report.wording import plain
from cluster.terminal.units import amount

PREPARING, CHECKING, STARTING = "preparing the nodes", "pre-flight checks", "starting the ranks"
FIRST_STEP, TRAINING, CLOSING = "to the first step", "training and evaluation", "closing"
PHASES: Final = (PREPARING, CHECKING, STARTING, FIRST_STEP, TRAINING, CLOSING)


def began(files: RunFiles) -> float:
    """Return the unix time at which a run's first attempt began, as far as the record goes back."""
    began = float(files.record["state"]["started"])
    for event in files.metrics[:1]:
        at, elapsed_s = moment(event.get("time")), number(event.get("elapsed_s"))
        if at is not None and elapsed_s is not None and 0 <= elapsed_s <= at:
            began = min(began, at - elapsed_s)
    return began


def timeline_of(files: RunFiles) -> Timeline:
    """Build the timeline of a run."""
    origin = began(files)
    state = files.record["state"]
    ended = max(float(state["updated"]), origin)
    attempts = _attempts(files.metrics)
    last = max(int(files.record["attempts"]), len(attempts), 1)
    # Only the last attempt's course is kept; of those before it there is what they wrote of themselves.
    earlier = len(attempts) - 1 if _has_started(files, attempts) else len(attempts)
    phases: list[Phase] = []
    for number_, events in enumerate(attempts[:earlier], 1):
        phases += _trained(events, number_)
    current = attempts[earlier] if earlier < len(attempts) else []
    phases += _last_attempt(_times(files), current, ended, last)
    return Timeline(
        seconds=ended - origin,
        phases=tuple(
            dataclasses.replace(phase, begin_s=phase.begin_s - origin, end_s=phase.end_s - origin) for phase in phases
        ),
        nodes=_nodes(files, origin, ended),
        events=tuple(
            dataclasses.replace(event, at_s=event.at_s - origin)
            for event in sorted(_events(files, attempts, ended), key=lambda event: event.at_s)
        ),
    )


def _times(files: RunFiles) -> dict[str, float]:
    """Return the unix time of each step that the supervisor recorded of the last attempt.

    The course keeps the latest time of each step: one from before the restart is of an attempt before.
    """
    recorded = document(document(files.record.get("course")).get("times"))
    times = {step: at for step, value in recorded.items() if (at := moment(value)) is not None}
    begun = times.get(_begun(times), 0.0)
    return {step: at for step, at in times.items() if at >= begun}


def _begun(times: Mapping[str, float]) -> str:
    """Return the step with which the last attempt began."""
    return "restarted" if "restarted" in times else "started"


def _attempts(metrics: Sequence[Document]) -> list[list[Document]]:
    """Return the events of each attempt that came to train: a `start` begins one."""
    attempts: list[list[Document]] = []
    for event in metrics:
        if moment(event.get("time")) is None:
            continue
        if event["event"] == "start" or not attempts:
            attempts.append([])
        attempts[-1].append(event)
    return attempts


def _has_started(files: RunFiles, attempts: Sequence[Sequence[Document]]) -> bool:
    """Return whether the last attempt came to train, rather than an earlier one alone."""
    launched = _times(files).get("launched")
    return bool(attempts) and launched is not None and float(attempts[-1][0]["time"]) >= launched


def _trained(events: Sequence[Document], attempt: int) -> list[Phase]:
    """Return the phases of an attempt that its own events tell."""
    if not events:
        return []
    first_step = next((event["time"] for event in events if event["event"] in ("step", "epoch")), events[-1]["time"])
    marks = [(FIRST_STEP, events[0]["time"]), (TRAINING, first_step), ("", events[-1]["time"])]
    return _between(marks, attempt)


def _last_attempt(times: Mapping[str, float], events: Sequence[Document], ended: float, attempt: int) -> list[Phase]:
    """Return the phases of the attempt whose course is kept."""
    marks = [
        (name, times[step])
        for name, step in ((PREPARING, _begun(times)), (CHECKING, "prepared"), (STARTING, "inspected"))
        if step in times
    ]
    if not events:
        return _between([*marks, ("", ended)], attempt) if marks else []
    trained = _trained(events, attempt)
    start = trained[0].begin_s if trained else events[0]["time"]
    close = times.get("ended", ended)
    return [
        *_between([*marks, ("", start)], attempt),
        *trained,
        *_between([(CLOSING, events[-1]["time"]), ("", close)], attempt),
    ]


def _between(marks: Sequence[tuple[str, float]], attempt: int) -> list[Phase]:
    """Return a phase from each mark to the next, those that took no time left out."""
    return [
        Phase(name=name, begin_s=begin, end_s=end, attempt=attempt)
        for (name, begin), (_, end) in itertools.pairwise(marks)
        if end > begin
    ]


def _nodes(files: RunFiles, origin: float, ended: float) -> tuple[NodeSpan, ...]:
    record, times = files.record, _times(files)
    spec, kinds = document(record.get("spec")), document(document(record.get("origin")).get("instance_types"))
    result, checks = document(record.get("result")), _checks(document(record.get("preflight")))
    rank_hosts, placements = (result.get(name) for name in ("hosts", "placements"))
    ready = times.get("inspected")
    nodes = []
    for host in spec.get("hosts") or ():
        name = plain(host["name"])
        nodes.append(
            NodeSpan(
                name=name,
                address=plain(host["address"]),
                instance_type=plain(str(kinds.get(host["instance_id"]) or "")),
                zone=plain(str(host.get("zone") or "")),
                ranks=host["slots"],
                joined_s=None if ready is None else ready - origin,
                left_s=times.get("ended", ended) - origin,
                placement=_placement(host["name"], rank_hosts, placements),
                checks=checks.get(name, ()),
            )
        )
    return tuple(nodes)


def _placement(name: str, rank_hosts: Any, placements: Any) -> str:
    """Return the cores and GPU of a host's first rank."""
    if not isinstance(rank_hosts, list) or not isinstance(placements, list):
        return ""
    return next((plain(str(placed)) for host, placed in zip(rank_hosts, placements, strict=False) if host == name), "")


def _checks(preflight: Document) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the findings of the pre-flight checks by node."""
    columns, rows = preflight.get("columns"), preflight.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return {}
    names = [plain(str(name)) for name in columns]
    return {
        plain(str(row[0])): tuple((name, plain(str(cell))) for name, cell in zip(names[1:], row[1:], strict=False))
        for row in rows
        if isinstance(row, list) and row
    }


def _events(files: RunFiles, attempts: Sequence[Sequence[Document]], ended: float) -> list[Event]:
    """Return what happened, with unix times."""
    record, times = files.record, _times(files)
    state, spec = record["state"], document(record.get("spec"))
    hosts = spec.get("hosts") or ()
    found: list[Event] = []
    if hosts and "inspected" in times:
        text = f"{len(hosts)} node{'s' * (len(hosts) != 1)} prepared and checked"
        found.append(Event(at_s=times["inspected"], kind=JOINED, text=text))
    findings = document(record.get("preflight")).get("findings")
    for finding in findings if isinstance(findings, list) else []:
        at = times.get("inspected", ended)
        found.append(Event(at_s=at, kind=FAULT, text=f"pre-flight: {plain(_finding(finding))}"))
    restarts = document(record.get("course")).get("restarts")
    for number_, again in enumerate(map(document, restarts if isinstance(restarts, list) else []), 1):
        if (began_at := moment(again.get("time"))) is not None:
            cost = _cost(record.get("recoveries"), number_ - 1)
            text = f"restart {number_}, for {plain(str(again.get('for')))}{cost}"
            found.append(Event(at_s=began_at, kind=FAULT, text=text))
    for number_, events in enumerate(attempts):
        found += [event for raw in events for event in _told(raw)]
        if number_ < len(attempts) - 1 and events[-1]["event"] not in ("end", "stopped"):
            text = f"attempt {number_ + 1} ended without a result"
            found.append(Event(at_s=events[-1]["time"], kind=FAULT, text=text))
    if state["state"] in FINAL_STATES:
        text = state["state"] + (f": {plain(state['reason'])}" if state.get("reason") else "")
        kind = FAULT if state["state"] == "failed" else ENDED
        found.append(Event(at_s=times.get("ended", ended), kind=kind, text=text))
    return found


def _cost(recoveries: object, place: int) -> str:
    """Return what a restart has cost, in words; "" where the record does not tell."""
    found = document(recoveries[place]) if isinstance(recoveries, list) and place < len(recoveries) else {}
    lost, seconds = whole(found.get("steps_lost")), number(found.get("seconds"))
    told = [] if lost is None else [f"{lost} step{'s' * (lost != 1)} made again"]
    told += [] if seconds is None else [f"{seconds:.1f} s without one"]
    return f": {', '.join(told)}" if told else ""


def _finding(finding: object) -> str:
    values = document(finding)
    words = [values.get(name) for name in ("node", "check", "what")]
    return ": ".join(str(word) for word in words if word) if values else str(finding)


def _told(event: Document) -> list[Event]:
    """Return what one event of the metrics says that belongs in a timeline."""
    at = float(event["time"])
    found: list[Event] = []
    if event["event"] == "checkpoint":
        size = number(event.get("bytes"))
        text = plain(str(event.get("checkpoint"))) + (f", {amount(size)}" if size is not None else "")
        found.append(Event(at_s=at, kind=CHECKPOINT, text=text))
    elif event["event"] == "checkpoint_missed":
        text = f"no checkpoint {plain(str(event.get('checkpoint')))}: {plain(str(event.get('reason')))}"
        found.append(Event(at_s=at, kind=FAULT, text=text))
    elif event["event"] == "straggler":
        found.append(Event(at_s=at, kind=STRAGGLER, text=plain(str(event.get("text")))))
    elif event["event"] == "start":
        if event.get("resumed_from"):
            ranks = whole(event.get("ranks"))
            text = f"resumed from {plain(str(event['resumed_from']))}" + (f" on {ranks} ranks" if ranks else "")
            found.append(Event(at_s=at, kind=RESUMED, text=text))
        if event.get("passed_over"):
            found.append(Event(at_s=at, kind=FAULT, text=plain(str(event["passed_over"]))))
            if not event.get("resumed_from"):
                found.append(Event(at_s=at, kind=RESUMED, text="begun anew, for no checkpoint was whole"))
    elif event["event"] == "stopped":
        text = f"stopped in epoch {plain(str(event.get('epoch')))}, step {plain(str(event.get('step')))}"
        found.append(Event(at_s=at, kind=ENDED, text=text))
    elif event["event"] == "epoch" and event.get("weights_agree") is False:
        text = f"the ranks' weights differ after epoch {plain(str(event.get('epoch')))}"
        found.append(Event(at_s=at, kind=FAULT, text=text))
    return found
