"""Show the progress and the end of a run: a live bar on a terminal, plain lines elsewhere. rich is imported late."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from agent.spec.long_lines import MAX_SHOWN, SEPARATOR, LongLines
from agent.spec.run_states import QUEUED
from cluster.runs.run_progress import RunProgress, log_lines
from cluster.terminal.output import print_note, print_output
from cluster.terminal.status_line import LINE
from cluster.terminal.units import duration
from cluster.terminal.wrap import printable, with_command

PLAIN_STEP_S: Final = 5.0
"""Seconds between two step lines if there is no terminal."""


def position(progress: RunProgress) -> list[str]:
    """Return the run's epoch and step as "epoch N/TOTAL" and "step N/TOTAL", as far as they are known."""
    parts = []
    if progress.epoch is not None and progress.epochs is not None:
        parts.append(f"epoch {progress.epoch}/{progress.epochs}")
    if progress.step is not None and progress.steps_per_epoch is not None:
        parts.append(f"step {progress.step}/{progress.steps_per_epoch}")
    return parts


def figures(progress: RunProgress) -> list[str]:
    """Return training speed, loss and accuracies as texts, as far as they are known."""
    parts = []
    if progress.images_per_s is not None:
        parts.append(f"{progress.images_per_s:,.0f} images/s")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.accuracy is not None:
        parts.append(f"accuracy {progress.accuracy:.2%}")
    if progress.validation_accuracy is not None:
        parts.append(f"validation {progress.validation_accuracy:.2%}")
    if progress.test_accuracy is not None:
        parts.append(f"test {progress.test_accuracy:.2%}")
    return parts


def outlook(progress: RunProgress, usd_per_hour: float | None) -> list[str]:
    """Return the time left and the cost so far as texts, as far as they are known.

    The time left of a run that has ended is left out. `usd_per_hour` is as for `cost_so_far`.
    """
    parts = []
    if progress.eta_s is not None and not progress.is_final:
        parts.append(f"{duration(progress.eta_s)} left")
    cost = cost_so_far(progress, usd_per_hour)
    if cost is not None:
        parts.append(f"${cost:.2f} so far")
    return parts


def describe(progress: RunProgress, usd_per_hour: float | None) -> str:
    """Describe a run's progress in one line: position, figures, time left and cost, as far as they are known.

    If none is known, return the reason of the run's state or, without a reason, the state. `usd_per_hour` is as for
    `cost_so_far`.
    """
    parts = [*position(progress), *figures(progress), *outlook(progress, usd_per_hour)]
    return ", ".join(parts) or printable(progress.reason or progress.state)


def describe_epoch(progress: RunProgress) -> str:
    """Describe a finished epoch in one line that fits 80 columns."""
    return ", ".join([*position(progress)[:1], *figures(progress)])


def cost_so_far(progress: RunProgress, usd_per_hour: float | None) -> float | None:
    """Return the cost of the run's instances since it started, USD; None if a price or the run's time is unknown.

    `usd_per_hour` is the price of all instances. It is used if the supervisor has not reported the run's own price.
    """
    usd_per_hour = usd_per_hour if progress.usd_per_hour is None else progress.usd_per_hour
    if usd_per_hour is None or progress.started is None or progress.updated is None:
        return None
    return usd_per_hour * max(0.0, progress.updated - progress.started) / 3600


def inspection(message: dict[str, Any]) -> list[str]:
    """Return the pre-flight table of a message from `follow` as lines; [] for other messages."""
    lines = message.get("lines") if message["type"] == "preflight" else []
    return [printable(str(line)) for line in lines] if isinstance(lines, list) else []


def remarks(message: dict[str, Any]) -> list[str]:
    """Return lines for a metric message about a missed or skipped checkpoint or a straggler; [] for other messages."""
    record = message["record"] if message["type"] == "metric" else {}
    if record.get("event") == "checkpoint_missed":
        return [printable(f"warning: checkpoint {record.get('checkpoint')} was not written: {record.get('reason')}")]
    if record.get("event") == "straggler":
        return [printable(f"{'' if record.get('is_over') else 'warning: '}{record.get('text')}")]
    if record.get("event") == "start" and record.get("passed_over"):
        resumed = record.get("resumed_from")
        goes_on = f"continues from {resumed}" if resumed else "starts from the beginning"
        return [printable(f"warning: skipped {record['passed_over']}; {goes_on}")]
    return []


class PlainDisplay:
    """Print a line for each epoch and each change of state, a step line now and then, and log lines as they arrive."""

    def __init__(
        self,
        write: Callable[..., None],
        usd_per_hour: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._usd_per_hour, self._clock = write, usd_per_hour, clock
        self._state: tuple[str, str] | None = None
        self._stepped_at = float("-inf")
        self._log = LongLines(MAX_SHOWN)

    def show(self, progress: RunProgress, message: dict[str, Any]) -> None:
        """Print what this message changed. Lines about steps are printed at most every PLAIN_STEP_S seconds.

        The run's end is not printed, because the task reports it with more detail.
        """
        if message["type"] == "state" and (progress.state, progress.reason) != self._state:
            self._state = (progress.state, progress.reason)
            if progress.is_final:
                return  # the task reports the end with more detail
            why = f" ({progress.reason})" if progress.reason else ""
            self._write(printable(with_command(f"{progress.run_id}: {progress.state}{why}")))
        if lines := self._log.shorten(log_lines(message)):
            self._write(*lines)
        for line in (*inspection(message), *remarks(message)):
            self._write(line)
        if message["type"] != "metric":
            return
        event = message["record"].get("event")
        due = self._clock() - self._stepped_at >= PLAIN_STEP_S
        if event == "epoch" or (event == "step" and due):
            self._stepped_at = self._clock()
            self._write(describe_epoch(progress) if event == "epoch" else describe(progress, self._usd_per_hour))

    def note(self, text: str) -> None:
        """Print a note."""
        self._write(text)

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        return


class LogDisplay:
    """Print only the lines of the log. Notes go to stderr."""

    def show(self, progress: RunProgress, message: dict[str, Any]) -> None:
        """Print the log lines of a message."""
        if lines := log_lines(message):
            print_output(*lines)

    def note(self, text: str) -> None:
        """Print a note on stderr."""
        print_note(text)


class LiveDisplay:
    """Keep a bar and a line of figures up to date on a terminal, and print a line for each epoch above them.

    The figures are on a second line so that both fit 80 columns.
    """

    def __init__(self, usd_per_hour: float | None = None) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        self._usd_per_hour = usd_per_hour
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        self._task = self._progress.add_task("starting", total=1.0)
        self._figures = Text(no_wrap=True, overflow="ellipsis")
        # Rich's common console stays silent for ever if Ctrl-C interrupted a use of it.
        self._live = Live(Group(self._progress, self._figures), console=Console(), refresh_per_second=8)
        self._state = self._reason = ""

    def show(self, progress: RunProgress, message: dict[str, Any]) -> None:
        """Update the bar and the figures. Above them, print finished epochs, changes of the state and warnings.

        The pre-flight table is printed too.
        """
        where = [*position(progress), *outlook(progress, self._usd_per_hour)]
        description = ", ".join(where) or printable(progress.reason or progress.state)
        self._progress.update(self._task, completed=progress.fraction, description=description)
        self._figures.plain = "  " + ", ".join(figures(progress))
        if message["type"] == "state" and progress.state != self._state:
            self._state = progress.state
            self.note(printable(f"{progress.run_id}: {progress.state}"))
        if message["type"] == "state" and progress.state == "running" and progress.reason not in ("", self._reason):
            self._reason = progress.reason  # the reason of a running run is a warning, and the bar has no room for it
            self.note(printable(f"{progress.run_id}: {progress.reason}"))
        for line in (*inspection(message), *remarks(message)):
            self.note(line)
        if message["type"] == "metric" and message["record"].get("event") == "epoch":
            self.note(describe_epoch(progress))

    def note(self, text: str) -> None:
        """Print a note above the bar."""
        self._live.console.print(printable(with_command(text)), markup=False, highlight=False)

    def __enter__(self) -> LiveDisplay:
        LINE.pause()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        LINE.resume()


def make(*, terminal: bool, write: Callable[..., None], usd_per_hour: float | None) -> LiveDisplay | PlainDisplay:
    """Return a live display for a terminal, else a plain one that calls `write` with lines."""
    return LiveDisplay(usd_per_hour) if terminal else PlainDisplay(write, usd_per_hour)


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
        "usd": cost_so_far(progress, usd_per_hour) if progress else None,
    }


def describe_end(progress: RunProgress, usd_per_hour: float | None, *, log: bool = False) -> tuple[str, bool]:
    """Return the message about a run's end, and whether the run failed. The message has several lines if it failed.

    `usd_per_hour` is the price of all instances, None if it is unknown. A failed run's last lines are left out if it
    lost a node and can be resumed, or with `log`: its log was already shown.
    """
    took = ""
    if progress.started is not None and progress.updated is not None:
        took = f" after {duration(progress.updated - progress.started)}"
    cost = cost_so_far(progress, usd_per_hour)
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
