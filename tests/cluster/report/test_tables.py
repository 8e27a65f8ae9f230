"""The tables of a report."""

from __future__ import annotations

import dataclasses

from cluster.report.comparison import compare
from cluster.report.confused_classes import confusion_of
from cluster.report.run_report import VALIDATION_ACCURACY, Headline
from cluster.report.tables import (
    MARK,
    confusion_tables,
    differences_table,
    figures_table,
    repeats_table,
    runs_table,
    timeline_tables,
)
from tests.cluster.report.recorded_runs import RESUMED, another, raw, report

COMPARISON = compare([another(1, accuracy=0.9), another(2, accuracy=0.96, seed=2), report(RESUMED)])


def test_comparison_has_a_column_per_run_and_marks_differences() -> None:
    runs = [row[:2] for row in runs_table(COMPARISON).rows]
    assert runs == [("A1", "run-1"), ("A2", "run-2"), ("B", raw(RESUMED)["run_id"])]
    figures = {row[0]: row[1:] for row in figures_table(COMPARISON).rows}
    assert figures["Test accuracy"] == ("90.00%", "96.00%", f"{raw(RESUMED)['result']['test_accuracy']:.2%}")
    rows = {row[0]: row[1:] for row in differences_table(COMPARISON).rows}
    assert rows["seed"] == ("training", "1", f"{MARK}2", f"{MARK}7")
    assert rows["epochs"] == ("training", "20", "20", f"{MARK}60")


def test_test_and_validation_accuracy_have_a_row_each() -> None:
    tested, other = another(1, accuracy=0.9), another(2, seed=2)
    validated = dataclasses.replace(other, headlines=(Headline.of(VALIDATION_ACCURACY, 0.8), *other.headlines[1:]))
    compared = compare([tested, validated])
    rows = [("Test accuracy", "90.00%", "-"), ("Validation accuracy", "-", "80.00%")]
    assert list(figures_table(compared).rows[:2]) == rows
    assert [row[:2] for row in repeats_table(compared).rows[:2]] == [(rows[0][0], "90.00%"), (rows[1][0], "80.00%")]


def test_repeats_have_mean_and_spread() -> None:
    table = repeats_table(COMPARISON)
    assert table.columns == ("", "A, 2 runs")
    assert table.rows[0] == ("Test accuracy", "93.00% \u00b1 4.24% (90.00% to 96.00%)")
    assert repeats_table(compare([another(1), another(2, epochs=3)])).rows == ()


def test_phases_have_their_attempt_if_there_are_several() -> None:
    assert timeline_tables(report())[0].columns == ("phase", "from", "took")
    assert timeline_tables(report(RESUMED))[0].columns == ("phase", "attempt", "from", "took")


def test_classes_with_lowest_recall_are_shown_if_there_are_many() -> None:
    counts = [[5 if a == b else int(b == 0 and a > 37) for b in range(40)] for a in range(40)]
    matrix = confusion_of({"labels": [f"c{n}" for n in range(40)], "counts": counts})
    assert matrix is not None
    pairs, classes = confusion_tables(matrix)
    assert pairs.rows == (("c38", "c0", "1"), ("c39", "c0", "1"))
    assert classes.title == "The 30 classes with the lowest recall"
    assert (len(classes.rows), classes.rows[0]) == (30, ("c38", "6", "83.33%", "100.00%"))
