"""Follow a run and its log as a stream of messages until the run ends."""

from __future__ import annotations

import itertools
import re
import select
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from agent.runs import run_log
from agent.runs.run_directory import RunDirectory
from agent.runs.run_summary import parse_event, spent_document, with_queue_position
from agent.runs.tail import Tail

POLL_S: Final = 0.2
HEARTBEAT_S: Final = 5.0
"""Seconds between heartbeats. A reader that misses several of them considers the connection lost."""
_CUT_LINE: Final = 100
"""Number of characters that are searched for the note at the beginning of a truncated log."""


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
    `sleep` waits between checks. Raises FileNotFoundError if the run does not exist, or is removed meanwhile.
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
            yield {"type": "state", **document, "spent": spent_document(directory)}
        if not inspected and directory.preflight.exists() and (report := directory.document(directory.preflight.name)):
            inspected = True
            yield {"type": "preflight", **report}
        for lines in () if from_line is None else tail.batches():
            for line in lines:
                if number >= (from_line or 0) and (record := parse_event(line)) is not None:
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
            yield {"type": "state", **document, "spent": spent_document(directory)}
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


def is_of_rank(line: str, rank: int) -> bool:
    """Return whether a line of launcher.log is from this rank. Launchers begin such lines with `[RANK]<stdout>:`."""
    return bool(re.match(rf"(?:[^\[]*)\[{rank}\]<std(?:out|err)>:", line))
