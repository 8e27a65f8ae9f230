"""A report as one HTML file: no script, nothing from a network, every text of the far side escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.report import comparison_tables
from cluster.report.comparison import Comparison
from cluster.report.comparison_figures import comparison_figures
from cluster.report.curve_plots import constants
from cluster.report.figures import run_figures
from cluster.report.model import FORMAT, RunReport
from cluster.report.palette import DARK, LIGHT, css_variables
from cluster.report.report_tables import (
    class_table,
    confused_table,
    epoch_table,
    event_table,
    node_table,
    outcome_table,
    phase_table,
)
from cluster.report.wording import date_text

if TYPE_CHECKING:
    from jinja2 import Environment


def templates() -> Environment:
    """Return the templates. Each value is escaped; a name that a template misspells is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("cluster.report")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    found.globals["differs"] = comparison_tables.MARK
    found.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return found


def page(template: str, **values: Any) -> str:
    """Return a page of a template, with the style of all."""
    environment = templates()
    css = environment.loader.get_source(environment, "report.css")[0] if environment.loader else ""
    shared = {"css": css, "light": css_variables(LIGHT), "dark": css_variables(DARK), "format": FORMAT}
    return environment.get_template(template).render(**shared, **values) + "\n"


def comparison_html(comparison: Comparison) -> str:
    """Return runs side by side as a page."""
    pairs = zip(comparison.labels, comparison.runs, strict=True)
    return page(
        "compare.html.j2",
        comparison=comparison,
        runs=comparison_tables.runs_table(comparison),
        figures_table=comparison_tables.figures_table(comparison),
        repeats=comparison_tables.repeats_table(comparison),
        differences=comparison_tables.differences_table(comparison),
        same=comparison_tables.same_settings(comparison),
        mark=comparison_tables.MARK,
        figures=comparison_figures(comparison),
        missing=[(label, sentence) for label, run in pairs for sentence in run.missing],
    )


def run_html(report: RunReport) -> str:
    """Return the report of one run as a page."""
    drawn = {figure.name: figure for figure in run_figures(report)}
    timeline, confusion = drawn.pop("timeline", None), drawn.pop("confusion", None)
    tables = [phase_table(report.timeline), outcome_table(report.outcomes), event_table(report.timeline)]
    nodes = node_table(report.timeline)
    return page(
        "run.html.j2",
        report=report,
        started=date_text(report.started),
        curves=list(drawn.values()),
        constants=constants(report.curves),
        epochs=epoch_table(report.curves),
        timeline=timeline,
        timeline_tables=[table for table in tables if table.rows],
        node_tables=[nodes] if nodes.rows else [],
        confusion=confusion,
        confusion_tables=[confused_table(report.confusion), class_table(report.confusion)] if report.confusion else [],
    )
