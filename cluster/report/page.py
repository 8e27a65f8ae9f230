"""The contents of a report in sections. HTML and Markdown show them in the same order."""

from __future__ import annotations

import dataclasses

from cluster.plots.confusion import draw_confusion
from cluster.plots.curves import comparison_plots, draw_plot, run_plots
from cluster.plots.style import Drawn
from cluster.plots.sweep import sweep_plots
from cluster.plots.timeline import draw_timeline
from cluster.report import tables
from cluster.report.comparison import Comparison
from cluster.report.confused_classes import MistakenImage
from cluster.report.run_report import Headline, RunReport
from cluster.report.shown_values import date_text, plural
from cluster.report.sweep import MAX_CURVES, SweepReport, combinations_table, sweep_runs_table, unfinished_table
from cluster.terminal.tables import Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report."""

    title: str
    """Empty for a section without a heading."""
    text: str = ""
    headlines: tuple[Headline, ...] = ()
    log: tuple[str, ...] = ()
    figures: tuple[Drawn, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes on the tables and figures."""
    folded: tuple[Table, ...] = ()
    """Tables that a reader has to open in HTML."""
    images: tuple[MistakenImage, ...] = ()
    points: tuple[str, ...] = ()
    is_side_by_side: bool = False
    """Whether tables are beside the figures if there is room."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """A report in sections."""

    title: str
    source: str
    """The run or runs that it describes."""
    sections: tuple[Section, ...]
    state: str = ""
    subtitle: str = ""
    reason: str = ""


def run_page(report: RunReport, *, draw: bool) -> Page:
    """Return the page of one run: headlines, log, curves, timeline, confusion matrix, settings, and what is missing.

    Figures are drawn only if `draw` is set, which needs Matplotlib. Sections without contents are left out.
    """
    timeline, matrix = report.timeline, report.confusion
    epochs = tables.epoch_table(report.curves)
    confusion = draw_confusion(matrix) if matrix and draw else None
    return Page(
        title=report.run_id,
        source=f"run {report.run_id}",
        state=report.state,
        subtitle=", ".join(
            [
                report.recipe or "your own program",
                plural(report.nodes, "node"),
                plural(report.ranks, "rank"),
                *([f"{report.attempts} attempts"] if report.attempts > 1 else []),
                f"started {date_text(report.started)}",
            ]
        ),
        reason=report.reason,
        sections=_with_contents(
            Section(title="", headlines=report.headlines),
            Section(title="Last lines of the log", log=report.last_lines),
            Section(
                title="Curves",
                figures=tuple(map(draw_plot, run_plots(report.curves))) if draw else (),
                folded=(epochs,) if epochs.rows else (),
            ),
            Section(
                title="Timeline",
                figures=(draw_timeline(timeline),) if draw and timeline.phases else (),
                tables=(*tables.timeline_tables(report), tables.node_table(timeline)),
            ),
            Section(
                title="Confusion matrix",
                text=confusion.description if confusion else "",
                figures=(confusion,) if confusion else (),
                tables=tables.confusion_tables(matrix) if matrix else (),
                images=report.mistakes if matrix else (),
                is_side_by_side=True,
            ),
            Section(title="Settings and versions", folded=tables.setting_tables(report)),
            Section(title="Missing from this record", points=report.missing),
        ),
    )


def comparison_page(comparison: Comparison, *, draw: bool) -> Page:
    """Return the page that compares several runs: figures, curves, differences in settings, and what is missing.

    Curves are drawn only if `draw` is set, which needs Matplotlib.
    """
    repeats, differences = tables.repeats_table(comparison), tables.differences_table(comparison)
    pairs = zip(comparison.labels, comparison.runs, strict=True)
    about_repeats = (
        "Repeats are runs with the same code, settings, versions, machines and node count, with the same or another "
        "seed. For your own program, the command must be the same; variables of --env are not compared. For a resumed "
        "run, time and cost are those of its last attempt."
    )
    return Page(
        title=f"{len(comparison.runs)} runs compared",
        source=f"{len(comparison.runs)} runs",
        sections=_with_contents(
            Section(title="", tables=(tables.runs_table(comparison),)),
            Section(
                title="Figures",
                tables=(tables.figures_table(comparison), repeats),
                notes=(about_repeats,) if repeats.rows else (),
            ),
            Section(
                title="Curves",
                figures=tuple(map(draw_plot, comparison_plots(comparison))) if draw else (),
                notes=("Bands show one standard deviation up and down.",) if draw and repeats.rows else (),
            ),
            Section(
                title="Settings and versions",
                text="" if differences.rows else "All settings and versions are the same.",
                tables=(differences,),
                notes=(f"{tables.MARK}marks values that differ from the first run.",) if differences.rows else (),
                folded=(tables.same_table(comparison),),
            ),
            Section(
                title="Missing from these records",
                points=tuple(f"{label}: {sentence}" for label, run in pairs for sentence in run.missing),
            ),
        ),
    )


def sweep_page(report: SweepReport, *, draw: bool) -> Page:
    """Return the page of a sweep: means by combination, runs without a result, plots, single runs, and common settings.

    Plots are drawn only if `draw` is set, which needs Matplotlib; curves only for at most MAX_CURVES combinations.
    """
    runs, combinations = report.succeeded, combinations_table(report)
    curves = comparison_plots(runs) if draw and len(runs.repeats) <= MAX_CURVES else []
    same = (tables.same_table(runs),) if runs.runs else ()
    return Page(
        title=f"Sweep {report.sweep}",
        source=f"sweep {report.sweep}",
        sections=_with_contents(
            Section(
                title="",
                text=f"{plural(len(combinations.rows), 'combination')} of {', '.join(report.parameters) or 'repeats'}; "
                f"{plural(len(runs.runs), 'run')} succeeded, {len(report.unfinished)} did not.",
                tables=(combinations,),
            ),
            Section(title="Not finished", tables=(unfinished_table(report),)),
            *([sweep_section(report)] if draw else []),
            Section(
                title="Curves",
                figures=tuple(map(draw_plot, curves)),
                notes=("Bands are one standard deviation up and down.",) if curves else (),
            ),
            Section(title="Runs", tables=(sweep_runs_table(report),)),
            Section(title="Settings and versions", folded=same),
        ),
    )


def sweep_section(report: SweepReport) -> Section:
    """Draw the plots of a sweep by its parameters, which needs Matplotlib, and return them as a section.

    The section has no plots if no parameter has several values among the runs that succeeded.
    """
    figures = tuple(sweep_plots(report))
    notes = ("Small marks are runs. Bars are one standard deviation up and down.",) if figures else ()
    return Section(title="By parameter", figures=figures, notes=notes)


def _with_contents(*sections: Section) -> tuple[Section, ...]:
    """Return the sections without empty tables, and without sections that have only a title or notes."""
    cut = [dataclasses.replace(each, tables=tuple(table for table in each.tables if table.rows)) for each in sections]
    return tuple(
        each
        for each in cut
        if each.text or each.headlines or each.log or each.figures or each.tables or each.folded or each.points
    )
