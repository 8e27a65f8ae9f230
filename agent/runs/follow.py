"""Follow a run and its log as a stream of messages until the run ends."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.safe_read import is_listed, open_regular
from agent.runs import database, run_log, run_queue, spending
from agent.runs.all_runs import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.state import State
from agent.spec import untrusted_json
from agent.spec.run_states import QUEUED

POLL_S: Final = 0.2
HEARTBEAT_S: Final = 5.0
"""Seconds between heartbeats. A reader that misses several of them considers the connection lost."""
MOST_RANKS: Final = 1 << 16
MAX_LINE: Final = 1 << 18
"""Maximum number of bytes read from one line. Ranks may write a line without an end."""
MAX_METRICS_BYTES: Final = 256 << 20
"""Maximum number of bytes that a summary reads from the end of metrics.jsonl: two weeks of events, two per second."""
LAST_METRICS_BYTES: Final = (1 << 13, 1 << 18, MAX_METRICS_BYTES)
"""For ended runs, increasing numbers of bytes to read until an epoch is found. `fab runs` lists all runs quickly."""
_BLOCK: Final = 1 << 16
_CUT_LINE: Final = 100
"""Number of characters that are searched for the note at the beginning of a truncated log."""
MOST_NAMED: Final = 4
"""Maximum number of stragglers to name. The others are counted."""


def sleep_while_read(descriptor: int) -> Callable[[float], None]:
    """Return a function that sleeps for some seconds while `descriptor` has a reader.

    It raises BrokenPipeError if the reader has gone. A process that waits for something to report writes nothing. So it
    would not notice this otherwise.
    """
    poll = select.poll()
    poll.register(descriptor, 0)  # Without events, it still reports that the reader has gone.

    def sleep(seconds: float) -> None:
        if poll.poll(seconds * 1000):
            raise BrokenPipeError("the reader has closed the connection")

    return sleep


class Tail:
    """Read the complete lines that were added to a growing file since the last call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_there = False
        self._offset = 0
        self._rest = b""

    def lines(self, last_bytes: int = sys.maxsize) -> Iterator[str]:
        """Yield the new complete lines of the file one by one. `last_bytes` and errors are as in `batches`."""
        return itertools.chain.from_iterable(self.batches(last_bytes))

    def batches(self, last_bytes: int = sys.maxsize) -> Iterator[list[str]]:
        """Yield the new complete lines of the file as lists, decoded, up to the current end of the file.

        Lines are truncated to MAX_LINE bytes. An incomplete last line is kept for a later call. Everything before the
        last `last_bytes` bytes is skipped, so the first line may be incomplete. If the file has become shorter, it is
        read from its beginning. A file that is missing, a link or a pipe has no lines. Raises OSError for other errors.
        """
        self._is_there = self._is_there or is_listed(self.path)  # Ranks on another node write the file.
        if not self._is_there:
            return
        try:
            file = open_regular(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ELOOP):
                raise
            return  # The run never creates a pipe or a link here.
        with file:
            end = os.fstat(file.fileno()).st_size
            if end < self._offset:  # The log was truncated: read it from its beginning.
                self._offset, self._rest = 0, b""
            self._offset = max(self._offset, end - last_bytes)
            file.seek(self._offset)
            while self._offset < end and (block := file.read(min(_BLOCK, end - self._offset))):
                self._offset += len(block)
                first, *others = block.split(b"\n")
                pieces = [self._rest + first[: MAX_LINE - len(self._rest)], *others]
                self._rest = pieces.pop()
                yield [line.decode("utf-8", errors="replace") for line in pieces]

    def rest(self) -> Iterator[list[str]]:
        """Yield a batch with the incomplete last line, if there is one."""
        if self._rest:
            yield [self._rest.decode("utf-8", errors="replace")]


def follow(
    directory: RunDirectory,
    from_line: int | None = 0,
    sleep: Callable[[float], None] = time.sleep,
    *,
    log_from: int | None = None,
    rank: int | None = None,
    is_once: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield messages about a run until it has ended. The field `type` has six values:

    - `state`: the fields of the state, and `spent`; first, and after each change
    - `metric`: `line` (its number, from 0) and `record`
    - `log`: `run_id`, `lines`, and `next`, the number of the line after them
    - `preflight`: the report on the nodes, once; not if the log or an earlier stream shows it
    - `heartbeat`: if nothing else was sent for HEARTBEAT_S
    - `end`: with `is_once`, when all existing data of a run that has not ended was sent

    The last message is the final state, or `end`. Metrics begin with line `from_line`; None: no metrics. The log begins
    with line `log_from`, a negative number counts from its end; None: no log. `rank` selects the lines of one rank.
    `sleep` waits between checks.
    """
    spoke_at = time.monotonic()
    for message in _messages(directory, from_line, sleep, log_from, rank, is_once=is_once):
        if message is None and time.monotonic() - spoke_at >= HEARTBEAT_S:
            message = {"type": "heartbeat", "time": time.time()}
        if message is not None:
            spoke_at = time.monotonic()
            yield message


def _messages(
    directory: RunDirectory,
    from_line: int | None,
    sleep: Callable[[float], None],
    log_from: int | None,
    rank: int | None,
    *,
    is_once: bool,
) -> Iterator[dict[str, Any] | None]:
    """Yield the messages of `follow` except heartbeats. The parameters are those of `follow`.

    Yields None in between, so that the caller can send heartbeats.
    """
    tail, log, number, log_number = Tail(directory.metrics), Tail(directory.log), 0, 0
    sent: dict[str, Any] = {}
    if log_from is not None and log_from < 0:
        log_from = max(0, _count_lines(directory) + log_from)
    inspected = from_line != 0 or log_from is not None  # a reader that continues has seen it; the log also shows it
    while True:
        state = with_queue_position(directory.effective_state(), directory)
        document = state.to_document()
        essence = {key: value for key, value in document.items() if key != "updated"}
        if essence != sent and not state.has_ended:
            sent = essence
            yield {"type": "state", **document, "spent": _spent(directory)}
        if not inspected and directory.preflight.exists() and (report := directory.document(directory.preflight.name)):
            inspected = True
            yield {"type": "preflight", **report}
        for lines in () if from_line is None else tail.batches():
            for line in lines:
                if number >= (from_line or 0) and (record := _record(line)) is not None:
                    yield {"type": "metric", "line": number, "record": record}
                number += 1
            yield None
        if log_from is not None:
            is_over = is_once or state.has_ended
            for lines in itertools.chain(log.batches(), log.rest() if is_over else ()):
                before = run_log.lines_before(directory.log, lines[0][:_CUT_LINE].encode()) if lines else 0
                if before > log_number:
                    for behind, earlier in _cut_off(directory, before, max(log_from, log_number)):
                        yield _log_message(directory, behind, earlier, rank)
                log_number = max(log_number, before) + len(lines)
                yield _log_message(directory, log_number, lines[max(0, log_from - log_number + len(lines)) :], rank)
        if state.has_ended:
            yield {"type": "state", **document, "spent": _spent(directory)}
            return
        if is_once:
            yield {"type": "end"}
            return
        yield None
        sleep(POLL_S)


def _count_lines(directory: RunDirectory) -> int:
    """Count the lines of the log, including the lines that were cut off."""
    count = 0
    for lines in Tail(directory.log).batches():
        before = run_log.lines_before(directory.log, lines[0][:_CUT_LINE].encode()) if lines else 0
        count = max(count, before) + len(lines)
    return count


def _cut_off(directory: RunDirectory, before: int, wanted: int) -> Iterator[tuple[int, list[str]]]:
    """Yield lines that were cut off the log but are kept, in batches.

    The lines are those from line `wanted` up to line `before` (exclusive). Each item is a pair: the number of the line
    after the batch, and the batch.
    """
    count = sum(map(len, Tail(run_log.earlier(directory.log)).batches()))
    number = before - count
    for lines in Tail(run_log.earlier(directory.log)).batches():
        yield number + len(lines), lines[max(0, wanted - number) :]
        number += len(lines)


def _log_message(directory: RunDirectory, number: int, lines: Sequence[str], rank: int | None) -> dict[str, Any] | None:
    """Return a message of type `log` with the lines of `rank`, or with all lines if it is None; None if there are none.

    `number` is the number of the line after them.
    """
    found = lines if rank is None else [line for line in lines if is_of_rank(line, rank)]
    return {"type": "log", "run_id": directory.run_id, "next": number, "lines": found} if found else None


def _spent(directory: RunDirectory) -> dict[str, Any] | None:
    spent = spending.read(directory)
    return spent.to_document() if spent else None


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = untrusted_json.parse(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def is_of_rank(line: str, rank: int) -> bool:
    """Return whether a line of launcher.log is from this rank. Launchers begin such lines with `[RANK]<stdout>:`."""
    return bool(re.match(rf"(?:[^\[]*)\[{rank}\]<std(?:out|err)>:", line))


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


def metrics(directory: RunDirectory, last_bytes: int = MAX_METRICS_BYTES) -> Iterator[dict[str, Any]]:
    """Yield the events in the last `last_bytes` bytes of a run's metrics.jsonl.

    Lines that are not JSON objects are skipped.
    """
    lines = Tail(directory.metrics).lines(last_bytes)
    return (record for line in lines if (record := _record(line)) is not None)


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
        "spent": _spent(directory),
        "epoch": epoch,
        "last": last,
    }
