"""Facts about a report's formats and where its files go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.errors import DeepcdkError, UsageError
from cluster.report.formats import FORMATS, destinations, parse_formats, rendered, run_document, write
from cluster.report.model import FORMAT
from tests.cluster.report.recorded_runs import raw, raw_metrics, report


def test_formats_are_read_in_any_order_each_once() -> None:
    assert parse_formats("html") == ("html",)
    assert parse_formats("json, html,json") == ("json", "html")


@pytest.mark.parametrize("text", ["", ",", "pdf", "html,pdf", "HTML"])
def test_another_format_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(UsageError, match="must be some of html, md, json"):
        parse_formats(text)


def test_the_document_has_the_figures_unrounded() -> None:
    found = json.loads(rendered(report(), "json"))
    assert (found["format"], found["report"], found["run_id"]) == (FORMAT, "run", raw()["run_id"])
    figures = {each["key"]: each["value"] for each in found["headlines"]}
    assert figures["test_accuracy"] == raw()["result"]["test_accuracy"]
    losses = [event["train_loss"] for event in raw_metrics() if event["event"] == "epoch"]
    assert [epoch["train_loss"] for epoch in found["curves"]["epochs"]] == losses
    assert found == json.loads(json.dumps(run_document(report())))


def test_each_format_begins_as_such_files_do() -> None:
    starts = {"html": "<!doctype html>\n", "md": "# ", "json": '{\n "format"'}
    assert {kind: rendered(report(), kind)[: len(starts[kind])] for kind in FORMATS} == starts


def test_files_lie_beside_the_run_unless_another_place_is_given(tmp_path: Path) -> None:
    default = tmp_path / "run" / "report"
    assert destinations("", default, ("html", "md")) == {
        "html": tmp_path / "run" / "report.html",
        "md": tmp_path / "run" / "report.md",
    }
    assert destinations(str(tmp_path), default, ("md",)) == {"md": tmp_path / "report.md"}
    assert destinations("new/", default, ("json",)) == {"json": Path("new/report.json")}
    assert destinations("a.html", default, ("html",)) == {"html": Path("a.html")}
    with pytest.raises(UsageError, match="must be a directory"):
        destinations("a.html", default, ("html", "md"))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeepcdkError, match="cannot be written") as raised:
        write(tmp_path / "file" / "report.html", "text")
    assert "file/report.html" in raised.value.where and "--into" in raised.value.remedy
    write(tmp_path / "new" / "report.html", "text")
    assert (tmp_path / "new" / "report.html").read_text() == "text"
