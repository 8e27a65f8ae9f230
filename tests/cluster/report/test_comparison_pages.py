"""Facts about a comparison as a page, as Markdown and as JSON."""

from __future__ import annotations

import json
import re

import pytest

from cluster.report.comparison import Comparison, compare
from cluster.report.comparison_figures import comparison_plots
from cluster.report.comparison_tables import MARK, differences_table, figures_table, repeats_table, runs_table
from cluster.report.formats import rendered
from cluster.report.run_report import report_of
from tests.cluster.report.hostile import hostile_run
from tests.cluster.report.page_reader import Page
from tests.cluster.report.recorded_runs import RESUMED, raw, report
from tests.cluster.report.test_comparison import run


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare([run(1, accuracy=0.9), run(2, accuracy=0.96, seed=2), report(RESUMED)])


@pytest.fixture(scope="module")
def page(comparison: Comparison) -> Page:
    return Page(rendered(comparison, "html"))


def test_the_tables_have_each_run_in_a_column(comparison: Comparison) -> None:
    runs = [row[:2] for row in runs_table(comparison).rows]
    assert runs == [("A1", "run-1"), ("A2", "run-2"), ("B", raw(RESUMED)["run_id"])]
    figures = {row[0]: row[1:] for row in figures_table(comparison).rows}
    assert figures["Test accuracy"] == ("90.00%", "96.00%", f"{raw(RESUMED)['result']['test_accuracy']:.2%}")


def test_repeats_are_summed_up_beside(comparison: Comparison) -> None:
    table = repeats_table(comparison)
    assert table.columns == ("", "A, 2 runs")
    assert table.rows[0] == ("Test accuracy", "93.00% \u00b1 4.24% (90.00% to 96.00%)")
    assert repeats_table(compare([run(1), run(2, epochs=3)])).rows == ()


def test_a_value_that_is_not_the_first_runs_is_marked(comparison: Comparison, page: Page) -> None:
    rows = {row[0]: row[2:] for row in differences_table(comparison).rows}
    assert rows["seed"] == ("1", f"{MARK}2", f"{MARK}7")
    assert rows["epochs"] == ("20", "20", f"{MARK}60")
    marked = [each.text for each in page.all("td") if "differs" in each.attributes.get("class", "")]
    assert f"{MARK}60" in marked and all(text.startswith(MARK) for text in marked)


def test_repeats_are_one_line_with_a_band_and_others_one_each(comparison: Comparison) -> None:
    plots = {plot.name: plot for plot in comparison_plots(comparison)}
    assert list(plots) == ["accuracy", "accuracy-over-time", "loss", "images-per-second", "learning-rate"]
    lines = [(line.label, line.style, len(line.points), len(line.spread)) for line in plots["accuracy"].lines]
    assert lines == [("A, mean of 2", 0, 20, 20), ("B", 1, 60, 0)]
    assert "A (run-1 and run-2) ends with" in plots["accuracy"].description


def test_the_page_shows_the_same_and_what_is_missing(page: Page) -> None:
    assert "training: momentum" in page.texts("dt")
    assert any(text.startswith("B: Of earlier attempts") for text in page.texts("li"))
    assert len(page.all("svg")) == 5


def test_markup_in_a_record_is_text_in_a_comparison() -> None:
    hostile = compare([report(), report_of(hostile_run())])
    html = rendered(hostile, "html")
    assert "<script" not in html
    assert [each.tag for each in Page(html).elements if each.tag in ("img", "script", "link")] == []
    assert re.findall(r"(?<!\\)<", rendered(hostile, "md")) == []


def test_the_document_says_what_differs_and_has_each_run(comparison: Comparison) -> None:
    document = json.loads(rendered(comparison, "json"))
    assert (document["report"], document["labels"]) == ("comparison", ["A1", "A2", "B"])
    assert [each["run_id"] for each in document["runs"]] == ["run-1", "run-2", raw(RESUMED)["run_id"]]
    assert {each["name"] for each in document["settings"] if each["differs"]} >= {"seed", "epochs"}
    assert document["repeats"][0]["figures"]["test_accuracy"]["count"] == 2


def test_markdown_has_the_tables(comparison: Comparison) -> None:
    text = rendered(comparison, "md")
    assert text.startswith("# 3 runs compared\n")
    assert "| epochs | training | 20 | 20 | \u2260 60 |" in text
