"""The report of a sweep: mean and spread of each combination's repeats, and the runs without a result."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.spec.sweep_trial import Trial
from cluster.report.comparison import Comparison, Repeats, Spread, by_key, compare
from cluster.report.curves import Curves
from cluster.report.run_files import document, number
from cluster.report.run_report import (
    COST,
    FIGURES,
    SECONDS,
    SPEED_PER_NODE,
    TEST_ACCURACY,
    VALIDATION_ACCURACY,
    Headline,
    RunReport,
    trial_of,
)
from cluster.report.shown_values import plain
from cluster.report.timeline import Timeline
from cluster.terminal.tables import Table

SHOWN: Final = (TEST_ACCURACY, VALIDATION_ACCURACY, SECONDS, COST, SPEED_PER_NODE)
"""Figures in the table and the plots of a sweep."""
MAX_CURVES: Final = 12
"""The curves of more combinations would not be distinguishable."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnfinishedRun:
    """A run of a sweep without a result: it failed, was stopped, or has not ended yet."""

    run_id: str
    state: str
    reason: str
    trial: Trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepReport:
    """The runs of a sweep by their parameters."""

    sweep: str
    parameters: tuple[str, ...]
    """Names, in the order of the command line."""
    succeeded: Comparison
    """The runs with a result. Repeats are the runs of one combination."""
    unfinished: tuple[UnfinishedRun, ...]

    @property
    def groups(self) -> list[Repeats]:
        """Return the combinations with at least one run that succeeded, in the order of the sweep."""
        runs = self.succeeded.runs
        return sorted(self.succeeded.repeats, key=lambda group: min(runs[place].trial.number for place in group.runs))

    def known(self) -> list[str]:
        """Return the keys of the figures in SHOWN for which at least one combination has values."""
        return [key for key in SHOWN if any(group.figures.get(key) for group in self.succeeded.repeats)]


def one_per_number(states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return one run for each number in the sweep, in order: the first that succeeded, or else the last one.

    `states` are the runs' states, oldest first. A number has several runs if the sweep was resumed.
    """
    found = dict[int, Mapping[str, Any]]()
    for state in states:
        number = state["trial"]["number"]
        if number not in found or found[number]["state"] != "succeeded":
            found[number] = state
    return [found[number] for number in sorted(found)]


def sweep_report(sweep: str, states: Sequence[Mapping[str, Any]], reports: Sequence[RunReport]) -> SweepReport:
    """Build the report of a sweep from the states of its runs, and the reports of those that succeeded.

    `states` has one run for each number, as `one_per_number` returns them. A run without a report counts as unfinished.
    """
    done = {report.run_id for report in reports}
    unfinished = tuple(
        UnfinishedRun(
            run_id=str(state["run_id"]),
            state=str(state["state"]),
            reason=plain(state.get("reason")),
            trial=trial_of(state["trial"]),
        )
        for state in states
        if state["run_id"] not in done
    )
    trials = [*(report.trial for report in reports), *(run.trial for run in unfinished)]
    names = dict.fromkeys(name for trial in trials for name, _ in trial.parameters)
    return SweepReport(sweep=sweep, parameters=tuple(names), succeeded=compare(reports), unfinished=unfinished)


def accuracy(state: Mapping[str, Any]) -> float | None:
    """Return the test accuracy of the last epoch in a run's state, or else the validation accuracy; None if unknown."""
    return accuracy_headline(document(state.get("epoch"))).value


def accuracy_headline(figures: Mapping[str, Any]) -> Headline:
    """Return the headline for the test accuracy in an event, or else for the validation accuracy."""
    is_validated = VALIDATION_ACCURACY in figures and TEST_ACCURACY not in figures
    key = VALIDATION_ACCURACY if is_validated else TEST_ACCURACY
    return Headline.of(key, number(figures.get(key)))


def report_of_state(state: Mapping[str, Any]) -> RunReport:
    """Build the report of a sweep's run from its state alone: accuracy, time, cost and speed, without other contents.

    Accuracy and speed are from the run's last event if that has the result, as in recipes, and otherwise from its last
    epoch.
    """
    nodes, seconds = len(state["hosts"]), max(0.0, state["updated"] - state["started"])
    last = document(state.get("last"))
    figures = {**document(state.get("epoch")), **(last if last.get("event") == "end" else {})}
    speed = number(figures.get("images_per_s"))
    return RunReport(
        run_id=state["run_id"],
        recipe="",
        state=state["state"],
        reason=plain(state.get("reason")),
        started=state["started"],
        nodes=nodes,
        ranks=0,
        attempts=1,
        headlines=(
            accuracy_headline(figures),
            Headline.of(SECONDS, seconds),
            Headline.of(COST, number(document(state.get("spent")).get("usd"))),
            Headline.of(SPEED_PER_NODE, None if speed is None else speed / max(1, nodes)),
        ),
        curves=Curves(),
        timeline=Timeline(seconds=seconds),
        confusion=None,
        mistakes=(),
        settings={},
        outcomes=(),
        last_lines=(),
        missing=(),
        trial=trial_of(state["trial"]),
    )


def combinations_table(report: SweepReport) -> Table:
    """Build the table of combinations, also of those that no run completed.

    A row has the label, the values, how many of the runs succeeded, and mean and spread of each known figure.
    """
    keys, total = report.known(), dict[tuple[tuple[str, str], ...], int]()
    trials = [*(run.trial for run in report.succeeded.runs), *(run.trial for run in report.unfinished)]
    for trial in trials:
        total[trial.parameters] = total.get(trial.parameters, 0) + 1
    by_parameters = {group.parameters: group for group in report.groups}
    rows = []
    for parameters in dict.fromkeys(trial.parameters for trial in sorted(trials, key=lambda trial: trial.number)):
        values, group = dict(parameters), by_parameters.get(parameters)
        figures = group.figures if group else dict[str, Spread | None]()
        count = len(group.runs) if group else 0
        rows.append(
            (
                group.label if group else "",
                *(values.get(name, "-") for name in report.parameters),
                f"{count} of {total[parameters]}",
                *(_spread_text(key, figures.get(key)) for key in keys),
            )
        )
    columns = ("", *report.parameters, "succeeded", *(FIGURES[key][0] for key in keys))
    title = "By parameters: mean \N{PLUS-MINUS SIGN} standard deviation"
    return Table(title=title, columns=columns, rows=tuple(rows))


def _spread_text(key: str, spread: Spread | None) -> str:
    form = FIGURES[key][1]
    if spread is None:
        return "-"
    return form(spread.mean) + ("" if spread.deviation is None else f" \N{PLUS-MINUS SIGN} {form(spread.deviation)}")


def unfinished_table(report: SweepReport) -> Table:
    """Build the table of the runs without a result, with their states and reasons."""
    rows = tuple(
        (run.trial.text or "-", str(run.trial.repeat), run.run_id, run.state, run.reason) for run in report.unfinished
    )
    return Table(title="Runs without a result", columns=("parameters", "repeat", "run", "state", "reason"), rows=rows)


def sweep_runs_table(report: SweepReport) -> Table:
    """Build the table with a row for each run that succeeded: its parameters, repeat, seed, id and known figures."""
    found, known = zip(report.succeeded.runs, map(by_key, report.succeeded.headlines), strict=True), report.known()
    rows = tuple(
        (
            *(dict(run.trial.parameters).get(name, "-") for name in report.parameters),
            str(run.trial.repeat),
            "-" if run.trial.seed is None else str(run.trial.seed),
            run.run_id,
            *(headlines[key].text if key in headlines else "-" for key in known),
        )
        for run, headlines in sorted(found, key=lambda pair: pair[0].trial.number)
    )
    columns = (*report.parameters, "repeat", "seed", "run", *(FIGURES[key][0] for key in known))
    return Table(title="By run", columns=columns, rows=rows)


def sweep_csv(report: SweepReport) -> str:
    """Return CSV with a header and a line for each run, ordered by number, also for runs without a result.

    The columns are id, state, number, repeat, seed, parameters, figures and reason. Unknown values are empty.
    """
    output, keys = io.StringIO(), list(FIGURES)
    writer = csv.writer(output)
    writer.writerow(["run", "state", "number", "repeat", "seed", *report.parameters, *keys, "reason"])

    def row(run: RunReport | UnfinishedRun, figures: Mapping[str, float | None]) -> list[object]:
        trial = run.trial
        place = (run.run_id, run.state, trial.number, trial.repeat, trial.seed)
        values = dict(trial.parameters)
        return [*place, *(values.get(name) for name in report.parameters), *map(figures.get, keys), run.reason]

    rows = [
        (run.trial.number, row(run, {each.key: each.value for each in headlines}))
        for run, headlines in zip(report.succeeded.runs, report.succeeded.headlines, strict=True)
    ]
    rows += [(run.trial.number, row(run, {})) for run in report.unfinished]
    writer.writerows(cells for _, cells in sorted(rows, key=lambda pair: pair[0]))
    return output.getvalue()
