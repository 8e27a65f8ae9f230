"""Watch a run on a terminal or in a pipe, and reconnect if the connection breaks."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from agent.spec.long_lines import SEPARATOR
from agent.spec.run_states import QUEUED
from cluster.runs import progress_display
from cluster.runs.follow import RunProgress, follow
from cluster.runs.supervisor_client import Supervisor
from cluster.ssh.master import Master
from cluster.terminal.output import print_output
from cluster.terminal.units import duration
from cluster.terminal.wrap import printable


def watch(
    supervisor: Supervisor,
    run_id: str,
    *,
    connect: Callable[[], Master],
    usd_per_hour: float | None,
    log: bool = False,
    aside: bool = False,
) -> RunProgress:
    """Show a run from its start to its end and return the last progress. `log` includes the run's own output.

    A terminal shows a live bar, unless `log` or `aside` is set. Otherwise plain lines are printed. `connect` opens a
    new connection to the master if the first one breaks. `usd_per_hour` is the price of all instances. `aside` prints
    plain lines on stderr, because stdout is for a document. Raises the errors of `follow`.
    """

    def words(seen: RunProgress) -> list[str]:
        return ["--from-line", str(seen.next_line), *(["--log-from", str(seen.next_log_line)] if log else [])]

    shown_on = progress_display.make(
        terminal=sys.stdout.isatty() and not log and not aside,
        write=functools.partial(print_output, aside_of_result=aside),
        usd_per_hour=usd_per_hour,
    )
    with _streams(supervisor, connect, words) as open_stream, shown_on:
        return follow(open_stream, shown_on, run_id=run_id, where=supervisor.master.where, wait=time.sleep)


def print_log(
    supervisor: Supervisor, run_id: str, *, connect: Callable[[], Master], following: bool, rank: int | None
) -> None:
    """Print a run's log. With `following`, continue until the run has ended. Raises DeepcdkError for an unknown run.

    `connect` opens a new connection to the master if the first one breaks. `rank` selects one rank's lines; None prints
    all.
    """
    flags = [*([] if following else ["--once"]), *([] if rank is None else ["--rank", str(rank)])]

    def words(seen: RunProgress) -> list[str]:
        return ["--only-log", "--log-from", str(seen.next_log_line), *flags]

    with _streams(supervisor, connect, words) as open_stream:
        follow(
            open_stream, progress_display.LogDisplay(), run_id=run_id, where=supervisor.master.where, wait=time.sleep
        )


@contextlib.contextmanager
def _streams(
    supervisor: Supervisor, connect: Callable[[], Master], words: Callable[[RunProgress], list[str]]
) -> Iterator[Callable[[RunProgress], Iterator[str]]]:
    """Provide a function that opens the master's message stream, over a new connection after the first call.

    `words` returns the flags of `follow` for the progress so far. All connections opened here are closed at the end.
    """
    opened: list[Master] = []

    def open_stream(seen: RunProgress) -> Iterator[str]:
        while opened[1:]:  # the last connection broke or timed out
            opened.pop().close()
        master = connect() if opened else supervisor.master
        opened.append(master)
        return supervisor.messages(master, seen.run_id, words(seen))

    try:
        yield open_stream
    finally:
        for master in opened[1:]:
            master.close()


def document(
    run_id: str, progress: RunProgress | None = None, usd_per_hour: float | None = None, position: int | None = None
) -> dict[str, Any]:
    """Return a run's state as JSON values: run_id, state, reason, bound, position, seconds, test_accuracy and usd.

    `bound` is the limit on cost or time that stopped the run, with what was spent; "" otherwise. Without `progress`,
    the run was only launched, or waits at `position` in the queue. Unknown numbers are None.
    """
    seconds = None
    if progress is not None and progress.started is not None and progress.updated is not None:
        seconds = round(progress.updated - progress.started, 1)
    return {
        "run_id": run_id,
        "state": QUEUED if position and progress is None else (progress or RunProgress()).state,
        "reason": progress.reason if progress else "",
        "bound": progress.bound if progress else "",
        "position": position,
        "seconds": seconds,
        "test_accuracy": progress.test_accuracy if progress else None,
        "usd": progress_display.cost_so_far(progress, usd_per_hour) if progress else None,
    }


def describe_end(progress: RunProgress, usd_per_hour: float | None, *, log: bool = False) -> tuple[str, bool]:
    """Return the message about a run's end, and whether the run failed.

    `usd_per_hour` is the price of all instances, None if it is unknown. A failed run's last lines are left out if it
    lost a node and can be resumed, or with `log`: its log was already shown.
    """
    took = ""
    if progress.started is not None and progress.updated is not None:
        took = f" after {duration(progress.updated - progress.started)}"
    cost = progress_display.cost_so_far(progress, usd_per_hour)
    price = f", about ${cost:.2f} for its instances" if cost is not None else ""
    if progress.state != "failed":
        accuracy = f", test accuracy {progress.test_accuracy:.2%}" if progress.test_accuracy is not None else ""
        if progress.bound:
            why = progress.bound
            if why.startswith("reached "):
                why = f"it has {why}; to continue, give `fab resume {progress.run_id}` a higher limit"
            return f"run {progress.run_id} stopped{took}{accuracy}: {why}", False
        results = f"results: `fab fetch --run {progress.run_id}`"
        warning = f"\n{printable(progress.reason)}" if progress.state == "succeeded" and progress.reason else ""
        return f"run {progress.run_id} {progress.state}{took}{accuracy}{price}; {results}{warning}", False
    # If the reason contains a resume command, a node was lost, and the ranks' last lines add nothing.
    goes_on = f"`fab resume {progress.run_id}`" in progress.reason
    reason = progress.reason.replace(SEPARATOR, "\n    ")
    lines = [
        f"deepcdk: run {progress.run_id} failed{took}: {reason}",
        *(f"    {line}" for line in progress.last_lines if not (goes_on or log)),
        f"  do: read `fab logs --run {progress.run_id}`",
    ]
    return "\n".join(lines), True
