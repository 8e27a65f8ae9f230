"""The summary of a run for lists: its state, place in the queue, cost, stragglers and latest metrics."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.safe_read import is_listed
from agent.runs import database, run_cost, run_queue
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.runs.tail import Tail
from agent.spec import untrusted_json
from agent.spec.run_states import QUEUED

MOST_RANKS: Final = 1 << 16
MAX_METRICS_BYTES: Final = 256 << 20
"""Maximum number of bytes that a summary reads from the end of metrics.jsonl: two weeks of events, two per second."""
LAST_METRICS_BYTES: Final = (1 << 13, 1 << 18, MAX_METRICS_BYTES)
"""For ended runs, increasing numbers of bytes to read until an epoch is found. `fab runs` lists all runs quickly."""
MOST_NAMED: Final = 4
"""Maximum number of stragglers to name. The others are counted."""


def summaries(runs: Runs) -> list[dict[str, Any]]:
    """Return the `summary` of every run, oldest first.

    The summary of a run that has ended is stored in the database, so that its files are read only once.
    """
    waiting, found, ended = run_queue.ids(), [], []
    for document, stored in database.rows("SELECT document, summary FROM states ORDER BY run_id"):
        if stored is not None:
            found.append(json.loads(stored))
            continue
        state = State.from_document(json.loads(document))
        found.append(summary(runs[state.run_id].effective(state), runs[state.run_id], waiting))
        if state.has_ended:
            ended.append((json.dumps(found[-1]), state.run_id, document))
    if ended:
        with database.transaction() as changing:  # A run that was resumed meanwhile has another document.
            changing.executemany("UPDATE states SET summary = ? WHERE run_id = ? AND document = ?", ended)
    return found


def summary(state: State, directory: RunDirectory, waiting: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a run's state, trial, cost, the user who started it and the latest metrics, as JSON values.

    `epoch` and `last` are the last event of an epoch and the last event, null without one. The reason of a running run
    without another reason names its stragglers. `position` is the place in the queue, 1 for the next run; null if it is
    not waiting. `waiting` are the ids in the queue, if the caller has them.
    """
    last: dict[str, Any] | None = None
    epoch: dict[str, Any] | None = None
    stragglers: dict[int, str] = {}
    for size in (MAX_METRICS_BYTES,) if state.is_live else LAST_METRICS_BYTES:
        for record in metrics(directory, size):
            last, epoch = record, record if record.get("event") == "epoch" else epoch
            _note_straggler(record, state.hosts, stragglers)
        if epoch is not None or _size(directory.metrics) <= size:
            break
    if waiting is None:
        waiting = run_queue.ids() if state.state == QUEUED else ()
    document = with_queue_position(state, directory, waiting).to_document()
    document.pop("last_lines")
    if state.state == "running" and not state.reason:
        document["reason"] = _describe_stragglers(stragglers)
    is_waiting = state.state == QUEUED and state.run_id in waiting
    return {
        **document,
        "position": waiting.index(state.run_id) + 1 if is_waiting else None,
        "last_lines": list(dataclasses.asdict(state)["last_lines"]),
        "started_by": directory.started_by(),
        "trial": directory.trial(),
        "spent": spent_document(directory),
        "epoch": epoch,
        "last": last,
    }


def metrics(directory: RunDirectory, last_bytes: int = MAX_METRICS_BYTES) -> Iterator[dict[str, Any]]:
    """Yield the events in the last `last_bytes` bytes of a run's metrics.jsonl.

    Lines that are not JSON objects are skipped.
    """
    lines = Tail(directory.metrics).lines(last_bytes)
    return (record for line in lines if (record := parse_event(line)) is not None)


def parse_event(line: str) -> dict[str, Any] | None:
    """Parse a line of the metrics; None if it is not a JSON object."""
    try:
        record = untrusted_json.parse(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def spent_document(directory: RunDirectory) -> dict[str, Any] | None:
    """Return the time and money that a run has spent as JSON values; None if they are unknown."""
    spent = run_cost.read_spent(directory)
    return spent.to_document() if spent else None


def with_queue_position(state: State, directory: RunDirectory, waiting: Sequence[str] | None = None) -> State:
    """Return the state; for a queued run without a reason, the reason is its place in the queue.

    The text also names the run directly before it, or the live runs. `waiting` are the ids in the queue, if the caller
    has them.
    """
    if state.state != QUEUED or state.reason:
        return state
    waiting = run_queue.ids() if waiting is None else waiting
    if state.run_id not in waiting:
        return state
    place = waiting.index(state.run_id)
    before = waiting[place - 1] if place else " or ".join(Runs(root=directory.path.parent).live())
    after = f", after {before}" if before else ""
    return dataclasses.replace(state, reason=f"position {place + 1} in the queue{after}")


def _note_straggler(record: Mapping[str, Any], hosts: Sequence[str], known: dict[int, str]) -> None:
    """Update `known`, the stragglers' descriptions by rank, from an event of the metrics.

    A start of the ranks clears `known`. `hosts` are the names of the run's hosts. Ranks write the events, so invalid
    ones are ignored.
    """
    rank, host = record.get("rank"), record.get("host")
    if record.get("event") == "start":
        known.clear()
    if record.get("event") == "straggler" and type(rank) is int and 0 <= rank < MOST_RANKS and host in hosts:
        known.pop(rank, None)
        if not record.get("is_over"):
            known[rank] = f"rank {rank} ({host})"


def _describe_stragglers(known: Mapping[int, str]) -> str:
    """Return the stragglers as text, at most MOST_NAMED by name; "" for none.

    `known` contains a description for each rank.
    """
    named = list(known.values())
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"straggler: {', '.join(named[:MOST_NAMED])}{more}" if named else ""


def _size(path: Path) -> int:
    """Return a file's size; 0 if it is not listed. A lookup by name could hide the file from this node for a minute."""
    try:
        return path.lstat().st_size if is_listed(path) else 0
    except OSError:
        return 0
