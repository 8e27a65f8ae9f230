"""The contents of the dashboard's pages: a table of runs with sorting and filters, and the formats of values."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent.spec.run_states import LIVE_STATES, QUEUED
from cluster.aws.prices import as_of, shown
from cluster.cli import COMMAND
from cluster.nodes.occupancy import shortened
from cluster.report import output_formats
from cluster.report.run_files import document, number
from cluster.report.run_report import VALIDATION_ACCURACY, trial_of
from cluster.report.shown_values import percent, plain
from cluster.report.sweep import accuracy, accuracy_headline, one_per_number
from cluster.runs import run_owner
from cluster.runs.run_tables import describe_trial
from cluster.terminal.units import duration, span

if TYPE_CHECKING:
    from jinja2 import Environment

Run = Mapping[str, Any]
"""A summary of `Supervisor.runs`."""
ROWS: Final = 50
"""Number of runs that a page shows at first, and that it adds at a click."""
LIVE, ENDED = "live", "ended"
GROUPS: Final = ("", LIVE, QUEUED, ENDED)
"""Choices of the filter by state; "" for all."""
_STYLE: Final = re.compile(r"<style.*?</style>", re.DOTALL)
_SHARE: Final = re.compile(r"([\d.]+)(%| of ([\d.]+) GiB)")


def group(run: Run) -> str:
    """Return the run's group in the filter by state: LIVE, QUEUED or ENDED."""
    return LIVE if run["state"] in LIVE_STATES else QUEUED if run["state"] == QUEUED else ENDED


def owner(run: Run) -> str:
    """Return who started a run; "" if nothing is recorded."""
    return plain(run_owner.describe(run.get("started_by")))


def trial(run: Run) -> str:
    """Return the parameters and the repeat of a sweep's run, such as `lr=0.1, repeat 2`; "" for another run."""
    return plain(describe_trial(found)) if (found := run.get("trial")) else ""


def money(usd: float) -> str:
    """Format a cost in USD with two decimals, so that a column of costs is aligned; `<$0.01` if it rounds to zero."""
    return "<$0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def moment(unix: float) -> str:
    """Format a time in seconds since 1970: today as `13:05`, an earlier day as `2026-11-20 13:05`, in UTC."""
    found, now = datetime.datetime.fromtimestamp(unix, datetime.UTC), datetime.datetime.now(datetime.UTC)
    return f"{found:%H:%M}" if found.date() == now.date() else f"{found:%Y-%m-%d %H:%M}"


def share(cell: str) -> float | None:
    """Return the used share, 0 to 1, in a cell of the load table.

    `83% of 8` gives 0.83, and `4.0 of 16.0 GiB` gives 0.25. None if the cell has no share.
    """
    if (found := _SHARE.match(cell)) is None:
        return None
    return float(found[1]) / float(found[3]) if found[3] else float(found[1]) / 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the table of runs. Runs without a value come last when the table is sorted by it.

    `of` returns a run's value, which is also the sort key. `form` formats it, and `mark` returns a text to add.
    """

    key: str
    title: str
    of: Callable[[Run], Any]
    form: Callable[[Any], str] = str
    mark: Callable[[Run], str] = lambda _: ""
    is_number: bool = False

    def text(self, run: Run) -> str:
        """Return the text of a run's cell; "-" if the run has no value."""
        value = self.of(run)
        return "-" if value in (None, "") else f"{self.form(value)}{self.mark(run)}"


def _mark_of_accuracy(run: Run) -> str:
    is_validated = accuracy_headline(document(run.get("epoch"))).key == VALIDATION_ACCURACY
    return " validation" if is_validated else ""


_number: Final = functools.partial(Column, is_number=True)
COLUMNS: Final = (
    Column(key="run", title="Run", of=lambda run: run["run_id"]),
    Column(key="state", title="State", of=lambda run: GROUPS.index(group(run))),
    Column(key="owner", title="Started by", of=lambda run: owner(run) or None),
    _number(key="nodes", title="Nodes", of=lambda run: len(run["hosts"]) or None),
    _number(key="accuracy", title="Accuracy", of=accuracy, form=percent, mark=_mark_of_accuracy),
    _number(
        key="time",
        title="Time",
        of=lambda run: None if group(run) == QUEUED else run["updated"] - run["started"],
        form=duration,
    ),
    _number(key="cost", title="Cost", of=lambda run: number((run.get("spent") or {}).get("usd")), form=money),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The filter, order and number of rows on the page of runs, as its address contains them."""

    words: str = ""
    group: str = ""
    sort: str = "-run"
    """Key of a column; with a minus in descending order."""
    rows: int = ROWS

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Choice:
        """Read the choice from the query of an address. Invalid values are replaced by the default."""
        sort, rows, chosen = query.get("sort", ""), query.get("rows", ""), query.get("group", "")
        return cls(
            words=query.get("q", "")[:200],
            group=chosen if chosen in GROUPS else "",
            sort=sort if sort.removeprefix("-") in {each.key for each in COLUMNS} else "-run",
            rows=int(rows) if re.fullmatch("[1-9][0-9]{0,5}", rows, re.ASCII) else ROWS,
        )

    def next_sort(self, column: Column) -> str:
        """Return the value of `sort` after a click on a column's title.

        For the present column, the order is reversed. Otherwise, numbers start in descending order, other values in
        ascending order.
        """
        is_descending = not self.sort.startswith("-") if self.sort.strip("-") == column.key else column.is_number
        return f"{'-' * is_descending}{column.key}"

    def direction(self, column: Column) -> str:
        """Return the HTML attribute `aria-sort` of a column's title: ascending, descending or none."""
        return {column.key: "ascending", f"-{column.key}": "descending"}.get(self.sort, "none")

    def apply(self, runs: Iterable[Run]) -> list[Run]:
        """Return the matching runs in the chosen order. Runs with equal values are ordered from newest to oldest.

        A run matches if it is in the group, and its id, state, starter, sweep, parameters or reason contain each of the
        words, in upper or lower case. `rows` is not applied.
        """
        words = self.words.lower().split()

        def matches(run: Run) -> bool:
            sweep = (run.get("trial") or {}).get("sweep", "")
            text = f"{run['run_id']} {run['state']} {owner(run)} {sweep} {trial(run)} {run.get('reason') or ''}".lower()
            return self.group in ("", group(run)) and all(word in text for word in words)

        found = sorted(filter(matches, runs), key=lambda run: str(run["run_id"]), reverse=True)
        of = next(each.of for each in COLUMNS if each.key == self.sort.removeprefix("-"))
        known = sorted((r for r in found if of(r) is not None), key=of, reverse=self.sort.startswith("-"))
        return known + [run for run in found if of(run) is None]


def live_first(runs: Iterable[Run]) -> list[Run]:
    """Return the live runs, followed by the queued runs in the order of the queue. Runs that have ended
    are left out.
    """
    found = [run for run in runs if group(run) != ENDED]
    return sorted(found, key=lambda run: (group(run) == QUEUED, run.get("position") or 0, run["run_id"]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep and its runs."""

    name: str
    every: Sequence[Run]
    """All its runs, oldest first. A run that `fab sweep --resume` has queued again is in it twice."""

    @functools.cached_property
    def runs(self) -> list[Run]:
        """Return one run for each number in the sweep: the first that succeeded, or else the last one."""
        return one_per_number(self.every)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of `runs` by state, such as `succeeded`, the most frequent state first."""
        return dict(collections.Counter(str(run["state"]) for run in self.runs).most_common())

    @property
    def succeeded(self) -> int:
        """Return the number of runs that succeeded."""
        return self.counts.get("succeeded", 0)

    @property
    def left(self) -> int:
        """Return the number of live and queued runs."""
        return sum(group(run) != ENDED for run in self.runs)

    @property
    def state(self) -> str:
        """Return `running` or `queued` while runs are left.

        Afterwards, return the worst state of a run: failed, stopped or succeeded.
        """
        groups, states = {group(run) for run in self.runs}, self.counts
        if left := next((each for each in (LIVE, QUEUED) if each in groups), ""):
            return "running" if left == LIVE else left
        return next((each for each in ("failed", "stopped") if each in states), "succeeded")

    @property
    def parameters(self) -> list[str]:
        """Return the names of the parameters, as printable text."""
        return list(dict.fromkeys(name for run in self.runs for name, _ in trial_of(run["trial"]).parameters))

    @property
    def started(self) -> float:
        """Return when its first run was started or queued, in seconds since 1970."""
        return min(float(run["started"]) for run in self.every)

    @property
    def seconds(self) -> float:
        """Return the seconds from the sweep's start to the last change of a run."""
        return max(float(run["updated"]) for run in self.every) - self.started

    @property
    def usd(self) -> float | None:
        """Return the known cost of all its runs so far, USD; None if no cost is known."""
        known = [usd for run in self.every if (usd := number((run.get("spent") or {}).get("usd"))) is not None]
        return sum(known) if known else None

    @property
    def best(self) -> float | None:
        """Return the highest accuracy of a run that succeeded; None if none is known."""
        known = [found for run in self.runs if run["state"] == "succeeded" and (found := accuracy(run)) is not None]
        return max(known, default=None)


def sweeps(runs: Iterable[Run]) -> dict[str, Sweep]:
    """Group runs into sweeps. The result's keys are the sweeps' names, the newest sweep first.

    `runs`: the oldest first. Runs outside of a sweep are left out.
    """
    found = dict[str, list[Run]]()
    for run in runs:
        if name := trial_of(run.get("trial")).sweep:
            found.setdefault(name, []).append(run)
    return {name: Sweep(name=name, every=found[name]) for name in reversed(found)}


def templates() -> Environment:
    """Return the environment of Jinja for the dashboard's pages, with its filters. It also has the templates of the
    reports.
    """
    from jinja2 import ChoiceLoader, PackageLoader

    found = output_formats.templates()
    found.loader = ChoiceLoader([PackageLoader(__package__), *filter(None, [found.loader])])
    found.globals |= {"columns": COLUMNS, "command": COMMAND, "groups": GROUPS, "step": ROWS}
    found.filters |= {
        "plain": plain, "span": span, "money": money, "moment": moment, "price": shown, "as_of": as_of, "share": share,
        "group": group, "owner": owner, "trial": trial, "percent": percent, "duration": duration,
        "is_others": lambda run: run_owner.is_others(run.get("started_by")),
        "where": lambda run: shortened(run["hosts"]) if group(run) == LIVE else "",
        # The content security policy forbids the style sheet in a figure. The page's own one has the same rules.
        "unstyled": lambda text: _STYLE.sub("", text),
    }  # fmt: skip
    return found
