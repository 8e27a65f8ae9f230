"""Facts about the report as Markdown."""

from __future__ import annotations

import re

import markdown as renderer  # type: ignore[import-untyped]  # TensorBoard brings it, without types

from cluster.report.markdown import escaped, run_markdown
from cluster.report.run_report import report_of
from tests.cluster.report import recorded_runs
from tests.cluster.report.hostile import MARKUP, hostile_run
from tests.cluster.report.recorded_runs import raw, raw_metrics, report


def test_it_has_the_figures_of_the_record_as_tables() -> None:
    text, result = run_markdown(report()), raw()["result"]
    assert text.startswith(f"# {raw()['run_id']}\n")
    assert f"| Test accuracy | {result['test_accuracy']:.2%} |" in text
    epochs = [event for event in raw_metrics() if event["event"] == "epoch"]
    for event in epochs:
        assert re.search(rf"^\| {event['epoch']} \| .*\| {event['test_accuracy']:.2%} \|", text, flags=re.MULTILINE)
    for name, value in result["versions"].items():
        assert f"| {escaped(name)} | {escaped(value)} |" in text


def test_what_was_expected_stands_beside_what_it_took() -> None:
    estimate = {"seconds": {"low": 10, "value": 40, "high": 90}, "usd": None}
    changed = recorded_runs.changed(origin={"estimate": estimate}, state={"started": 1000.0, "updated": 1060.0})
    text = run_markdown(report_of(changed))
    assert "### Expected and actual" in text
    assert "| time | 40 s (10 s to 1:30) | 1:00 | +50% |" in text
    assert "Expected and actual" not in run_markdown(report())


def test_every_table_has_as_many_cells_in_each_row() -> None:
    blocks = re.findall(r"(?:^\|.*\n)+", run_markdown(report()), flags=re.MULTILINE)
    assert len(blocks) > 8
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_markup_in_a_record_is_text() -> None:
    html = renderer.markdown(run_markdown(report_of(hostile_run())), extensions=["tables"])
    assert "<script" not in html and "<img" not in html and "<b>" not in html


def test_no_character_that_markdown_acts_on_is_left() -> None:
    assert re.findall(r"(?<!\\)[<>|*_`\[\]$~]", escaped(MARKUP).replace("\\\\", "")) == []
