"""Follow a run from the laptop until it ends: show its messages, and reconnect if the connection breaks."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from cluster.errors import ConnectionFailedError
from cluster.master_answers import AnswerError
from cluster.runs import progress_display
from cluster.runs.run_progress import RunProgress, parse_message, reduce
from cluster.runs.supervisor_client import Supervisor
from cluster.ssh.master import Master, SilenceError
from cluster.ssh.stream_reader import BackgroundReader
from cluster.terminal.output import print_output

SILENCE_S: Final = 20.0
"""Seconds without a message after which the connection counts as broken: four heartbeats of the supervisor."""
RECONNECT_PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 10.0)


def _attach(progress: RunProgress) -> str:
    return f"`fab attach --run {progress.run_id}`" if progress.run_id else "`fab attach`"


class Display(Protocol):
    """A view of a run's progress, such as lines or a live bar."""

    def show(self, progress: RunProgress, message: dict[str, Any]) -> None:
        """Show the progress after this message from `follow`."""

    def note(self, text: str) -> None:
        """Show a note next to the progress, for example that the connection broke."""


def follow(
    open_stream: Callable[[RunProgress], Iterator[str]],
    display: Display,
    *,
    run_id: str = "",
    where: str = "",
    silence_s: float = SILENCE_S,
    pauses_s: tuple[float, ...] = RECONNECT_PAUSES_S,
    wait: Callable[[float], None],
) -> RunProgress:
    """Follow a run until it ends or its stream reports the end. Return the last progress.

    `open_stream(progress)` yields the supervisor's messages that come after `progress`. It is called again if the
    connection breaks or no message arrives for `silence_s`, after the pauses in `pauses_s`, which `wait` makes. `where`
    names the master in errors.

    Raises ConnectionFailedError when all attempts to reconnect have failed; the run itself continues. Raises
    AnswerError for a message about another run than `run_id`, and other errors of `open_stream` at once.
    """
    progress = RunProgress(run_id=run_id)
    failures = 0
    while True:
        stream = None
        try:
            stream = BackgroundReader(open_stream(progress), where)
            while (line := stream.next(timeout_s=silence_s)) is not None:
                failures = 0
                message = parse_message(line)
                if message is None:
                    continue
                progress = reduce(progress, message)
                display.show(progress, message)
                if progress.is_final or message["type"] == "end":
                    return progress
            what = "the master stopped reporting before the run ended"
            raise SilenceError(what, remedy=f"watch the run again with {_attach(progress)}")
        except AnswerError as error:
            error.where = where
            raise
        except ConnectionFailedError as error:
            if failures >= len(pauses_s):
                again = f"the run continues; watch it again with {_attach(progress)}"
                is_cause_known = error.remedy and not isinstance(error, SilenceError)
                error.remedy = f"{error.remedy}; {again}" if is_cause_known else again
                raise
            display.note(f"connection lost ({error.what}); reconnecting")
            wait(pauses_s[failures])
            failures += 1
        finally:
            if stream:
                stream.abandon()


def watch(
    supervisor: Supervisor,
    run_id: str,
    *,
    connect: Callable[[], Master],
    usd_per_hour: float | None,
    log: bool = False,
    aside: bool = False,
) -> RunProgress:
    """Show a run until it ends, and return the last progress. `log` includes the run's own output.

    A terminal shows a live bar, unless `log` or `aside` is set. Otherwise plain lines are printed. How the run ended is
    left to the caller. `connect` opens a new connection to the master if the first one breaks. `usd_per_hour` is the
    price of all instances. `aside` prints plain lines on stderr, because stdout is for a document. Raises the errors of
    `follow`.
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
    """Print a run's log. With `following`, continue until the run has ended. Raises DeepcdkError for an unknown
    run, and the errors of `follow`.

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
