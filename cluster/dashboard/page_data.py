"""Read the data of the dashboard, with the same functions as `fab status`, `fab runs`, `fab show` and `fab logs`."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.spec.run_states import FINAL_STATES
from cluster.aws import inventory, worker_limits
from cluster.dashboard.polled_values import Background, Link, Source
from cluster.nodes import node_load as loads
from cluster.nodes.status import read_status
from cluster.report.page import Page, Section, run_page, sweep_section
from cluster.report.run_files import RunFiles
from cluster.report.run_report import RunReport, report_of
from cluster.report.sweep import combinations_table, report_of_state, sweep_report
from cluster.runs import progress_display
from cluster.runs.run_progress import RunProgress, log_lines, parse_message, reduce
from cluster.terminal.tables import Table
from cluster.terminal.wrap import visible_lines

if TYPE_CHECKING:
    from cluster.session import Session

T = TypeVar("T")

PAUSE_S: Final = 0.6
"""Pause between two reads. With the read itself and the browser's own pause, a change shows within two seconds."""
LIMITS_EVERY_S: Final = 60.0
DRAWN_EVERY_S: Final = 10.0
"""Seconds after which the figures of a live run are drawn again, although nothing but its duration has changed."""
LIST_EVERY_S: Final = 30.0
"""Seconds between two lists of all runs, if a list takes long. In between, only the live and queued runs are read."""
SLOW_LIST_S: Final = 1.0
MAX_LOG_LINES: Final = 400
MAX_ROWS: Final = 200
"""Maximum number of combinations in the table of a sweep."""
MAX_OPEN: Final = 50
"""Maximum number of runs whose metrics, and of sweeps whose plots, stay in memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterView:
    """The nodes of the cluster with their load, and the limits on time and cost."""

    status: Mapping[str, Any]
    """As `fab status --json` prints it."""
    load: Table
    """As `fab status --load` prints it."""
    limits: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunView:
    """One run with its figures and the end of its log."""

    summary: Mapping[str, Any]
    page: Page
    """The sections of its report."""
    log: Sequence[str]
    progress: str
    """Epoch, step, speed, accuracy and time left in one line."""
    fraction: float
    """The completed part of the training, 0 to 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepView:
    """A sweep by its parameters."""

    table: Table
    """As `fab compare` prints it."""
    plots: Section | None
    """None until they are drawn."""


class Readers:
    """The sources of all pages, which share one connection to the master."""

    def __init__(self, open_session: Callable[[], Session]) -> None:
        self.link = Link(open_session)
        self.runs: Source[list[dict[str, Any]]] = Source(self._read_runs, pause_s=PAUSE_S)
        self.cluster: Source[ClusterView] = Source(self._read_cluster, pause_s=PAUSE_S)
        self._limits: tuple[float, tuple[worker_limits.Limit, ...] | str] | None = None
        self._runs: dict[str, dict[str, Any]] = {}
        self._list_s, self._listed_at = 0.0, -math.inf
        self._open_runs: dict[str, Source[RunView]] = {}
        self._open_sweeps: dict[str, Background[Section]] = {}
        self._lock = threading.Lock()

    def run(self, run_id: str) -> Source[RunView]:
        """Return the source of one run's view, which reads the run while a page looks at it.

        Further calls return the same source, unless MAX_OPEN other runs were asked for since.
        """
        return self._kept(self._open_runs, run_id, lambda: Source(RunReader(self.link, run_id).read, pause_s=PAUSE_S))

    def sweep(self, name: str, runs: Sequence[Mapping[str, Any]]) -> SweepView:
        """Return the table of a sweep with these runs, one for each number, and the plots that were drawn last, if any.

        The plots are drawn in the background when a run has succeeded.
        """
        done = [report_of_state(run) for run in runs if run["state"] == "succeeded"]
        report, drawing = sweep_report(name, runs, done), self._kept(self._open_sweeps, name, Background[Section])
        plots = drawing.last([run.run_id for run in done], lambda: sweep_section(report))
        table = combinations_table(report)
        rows, total = table.rows[:MAX_ROWS], len(table.rows)
        title = table.title + (f"; {MAX_ROWS} of {total:,} combinations" if total > MAX_ROWS else "")
        shown = Table(title=title, columns=table.columns[1:], rows=tuple(row[1:] for row in rows))  # without the labels
        return SweepView(table=shown, plots=plots)

    def _kept(self, opened: dict[str, T], key: str, make: Callable[[], T]) -> T:
        """Return the value of a key in `opened`, made if it is missing. Only the MAX_OPEN values used last are kept."""
        with self._lock:
            found = opened.pop(key, None) or make()
            opened[key] = found  # the most recently used value is last
            if len(opened) > MAX_OPEN:
                del opened[next(iter(opened))]
        return found

    def _read_runs(self) -> list[dict[str, Any]]:
        """Return the summaries of all runs, oldest first.

        If the last list took SLOW_LIST_S or longer, only runs that have not ended are read, until LIST_EVERY_S is over.
        """
        began, listed_at = time.monotonic(), self._listed_at
        self._listed_at = -math.inf  # after an error below, the next call lists all runs
        with self.link.supervisor() as (_, supervisor):
            if self._list_s < SLOW_LIST_S or began - listed_at > LIST_EVERY_S:
                self._runs = {run["run_id"]: run for run in supervisor.runs()}
                self._list_s, listed_at = time.monotonic() - began, began
            else:
                occupied = supervisor.occupancy()
                moving = [run_id for run_id, run in self._runs.items() if run["state"] not in FINAL_STATES]
                for run_id in dict.fromkeys([*moving, *occupied.live, *occupied.queued]):
                    self._runs[run_id] = supervisor.status(run_id)
        self._listed_at = listed_at
        return [self._runs[run_id] for run_id in sorted(self._runs)]

    def _read_cluster(self) -> ClusterView:
        with self.link.supervisor() as (session, supervisor):
            master = supervisor.master
            nodes, occupied = session.nodes(master), supervisor.occupancy()
            measured = loads.read(master, supervisor.directory, session.agent_directory, nodes)
        found = inventory.find(session.aws, session.config.stack_name)
        if self._limits is None or time.monotonic() - self._limits[0] > LIMITS_EVERY_S:
            self._limits = time.monotonic(), worker_limits.read_or_explain(session.aws, session.stack.name)
        return ClusterView(
            status=read_status(found, session.prices, wait_s=0.3),
            load=loads.table(loads.rows(found, nodes, measured, occupied)),
            limits=worker_limits.lines(self._limits[1], datetime.datetime.now(datetime.UTC)),
        )


class RunReader:
    """Read one run repeatedly. Metrics and log lines that it has received are not sent again."""

    def __init__(self, link: Link, run_id: str) -> None:
        self._link, self._run_id = link, run_id
        self._progress = RunProgress(run_id=run_id)
        self._events: list[Mapping[str, Any]] = []
        self._log: collections.deque[str] = collections.deque(maxlen=MAX_LOG_LINES)
        self._drawing = Background[Page]()

    def read(self) -> RunView:
        """Read the changes since the last call, and return the whole run: its record, all metrics, the end of its log.

        Raises DeepcdkError, for example if the run does not exist or the master does not answer.
        """
        with self._link.supervisor() as (_, supervisor):
            record = supervisor.show(self._run_id)
            log_from = self._progress.next_log_line or -MAX_LOG_LINES
            words = ["--from-line", str(self._progress.next_line), "--log-from", str(log_from), "--once"]
            self._receive(supervisor.messages(supervisor.master, self._run_id, words))
        report = report_of(RunFiles(record=record, metrics=tuple(self._events)))
        return RunView(
            summary=record["state"],
            page=self._page(report),
            log=tuple(self._log),
            progress=progress_display.describe(self._progress, None) if self._events else "",
            fraction=self._progress.fraction,
        )

    def _receive(self, lines: Iterable[str]) -> None:
        for line in lines:
            if (message := parse_message(line)) is None:
                continue
            self._progress = reduce(self._progress, message)
            if message["type"] == "metric" and isinstance(message["record"].get("event"), str):
                self._events.append(message["record"])
            for text in log_lines(message):
                self._log.extend(visible_lines(text))

    def _page(self, report: RunReport) -> Page:
        """Return the sections of the report, with the figures that were drawn last.

        The figures are drawn again in the background if their data change. For a live run, they are also drawn again
        DRAWN_EVERY_S after the last time, and unknown headlines and the section on missing data are left out.
        """
        page, is_over = run_page(report, draw=False), report.state in FINAL_STATES
        timeline = report.timeline
        shown = (report.curves, timeline.phases[:-1], timeline.events, report.state)
        every_s = math.inf if is_over else DRAWN_EVERY_S
        drawn = self._drawing.last(shown, lambda: run_page(report, draw=True), every_s=every_s) or page
        current = {section.title: section for section in page.sections}
        sections = tuple(
            dataclasses.replace(current.get(each.title, each), figures=each.figures)
            for each in drawn.sections
            if is_over or not each.points  # the section with missing data; a live run's record is never complete
        )
        known = tuple(each for each in report.headlines if is_over or each.value is not None)
        first = dataclasses.replace(sections[0], headlines=known)
        return dataclasses.replace(page, sections=(first, *sections[1:]))
