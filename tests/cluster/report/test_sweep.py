"""The report of a sweep: the spread of repeats by combination, and runs without a result."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent.spec.sweep_trial import Trial
from cluster.errors import UsageError
from cluster.report.output_formats import SWEEP_FORMATS, parse_formats, rendered
from cluster.report.run_report import COST, SECONDS, SPEED_PER_NODE, TEST_ACCURACY, RunReport, report_of
from cluster.report.sweep import SweepReport, combinations_table, one_per_number, report_of_state, sweep_report
from tests.cluster.report.recorded_runs import MARKUP, another, changed, raw, raw_metrics


def in_sweep(number: int, parameters: Mapping[str, str], repeat: int, accuracy: float) -> RunReport:
    """Return a recorded run with a place in the sweep `s`."""
    pairs = tuple(parameters.items())
    trial = Trial(sweep="s", number=number, parameters=pairs, repeat=repeat, seed=repeat, first="run-1")
    return dataclasses.replace(another(number, accuracy=accuracy, seed=repeat), trial=trial)


def swept(values: Mapping[str, Sequence[str]], repeats: int = 2) -> SweepReport:
    """Return the report of a sweep over all combinations; every run succeeded."""
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    runs = [
        in_sweep(1 + number, parameters, 1 + number // len(combinations), 0.9 + 0.001 * number)
        for number, parameters in enumerate(combinations * repeats)
    ]
    return sweep_report("s", [state(run) for run in runs], runs)


def state(run: RunReport, **changes: Any) -> dict[str, Any]:
    trial = {**dataclasses.asdict(run.trial), "parameters": [list(pair) for pair in run.trial.parameters]}
    return {"run_id": run.run_id, "state": "succeeded", "reason": "", "trial": trial, **changes}


def test_repeats_are_averaged_by_their_parameters_and_failed_runs_are_counted() -> None:
    runs = [in_sweep(1, {"lr": "0.1"}, 1, 0.90), in_sweep(3, {"lr": "0.1"}, 2, 0.94), in_sweep(2, {"lr": "1"}, 1, 0.5)]
    failed = state(in_sweep(4, {"lr": "1"}, 2, 0.0), state="failed", reason="nan")
    found = sweep_report("s", [*map(state, runs), failed], runs)
    table = combinations_table(found)
    assert table.columns[:4] == ("", "lr", "succeeded", "Test accuracy")
    assert [row[:4] for row in table.rows] == [
        ("A", "0.1", "2 of 2", "92.00% \N{PLUS-MINUS SIGN} 2.83%"), ("B", "1", "1 of 2", "50.00%"),
    ]  # fmt: skip
    assert [(run.state, run.reason, run.trial.repeat) for run in found.unfinished] == [("failed", "nan", 2)]


def test_last_run_with_a_number_counts_unless_an_earlier_one_succeeded() -> None:
    def one(run_id: str, number: int, state: str) -> dict[str, Any]:
        return {"run_id": run_id, "state": state, "trial": {"number": number}}

    states = [one("a", 1, "failed"), one("b", 2, "succeeded"), one("c", 1, "queued"), one("d", 2, "stopped")]
    assert [each["run_id"] for each in one_per_number(states)] == ["c", "b"]


def test_sweep_page_shows_the_figures_that_compare_shows() -> None:
    record, result = raw(), raw()["result"]
    epoch, end = raw_metrics(kind="epoch")[-1], raw_metrics(kind="end")[-1]
    state = {**record["state"], "trial": {}, "spent": {"usd": record["usd"]}, "epoch": {**epoch, "images_per_s": 1.0}}
    compared = report_of(changed())
    shown = report_of_state({**state, "last": {**end, "images_per_s": result["images_per_s"]}})
    for name in (TEST_ACCURACY, SECONDS, COST, SPEED_PER_NODE):
        assert shown.headline(name).value == pytest.approx(compared.headline(name).value), name
    # A program may record steps and epochs, without a result.
    without_end = report_of_state({**state, "last": {"event": "step", "images_per_s": 7.0}})
    assert without_end.headline(SPEED_PER_NODE).value == 0.5


def test_validation_accuracy_is_exported_under_its_own_name() -> None:
    epoch = {"epoch": 1, "validation_accuracy": 0.75}
    run = {**raw()["state"], **state(in_sweep(1, {"lr": "1"}, 1, 0.0)), "epoch": epoch, "last": None}
    found = sweep_report("s", [run], [report_of_state(run)])
    (line,) = csv.DictReader(io.StringIO(rendered(found, "csv")))
    assert (line["test_accuracy"], line["validation_accuracy"]) == ("", "0.75")
    document = json.loads(rendered(found, "json"))
    assert document["succeeded"]["repeats"][0]["figures"]["validation_accuracy"]["mean"] == 0.75
    assert combinations_table(found).columns[3] == "Validation accuracy"

    metrics = tuple(
        {"event": "epoch", "time": 1.0, "epoch": number, "validation_accuracy": accuracy}
        for number, accuracy in enumerate((0.5, 0.75, 0.6), 1)
    )
    files = dataclasses.replace(changed(), metrics=({"event": "start", "time": 0.0, "validation_images": 5}, *metrics))
    assert report_of(files).headlines[0].note == "after 3 epochs; best validation accuracy 75.00% in epoch 2"
    (unfinished, *_) = report_of(dataclasses.replace(files, record={**files.record, "result": None})).headlines
    assert (unfinished.key, unfinished.value) == ("validation_accuracy", 0.6)
    assert unfinished.note == "after 3 epochs; best 75.00% in epoch 2"


def test_sweep_without_a_result_lists_its_runs() -> None:
    held = state(in_sweep(1, {"lr": "1"}, 1, 0.0), state="stopped", reason="not started: the first run failed")
    found = sweep_report("s", [held], [])
    for kind in ("html", "md"):
        assert "not started: the first run failed" in rendered(found, kind)
    assert combinations_table(found).rows == (("", "1", "0 of 1"),)


def test_csv_has_a_line_for_each_run_and_json_all_figures() -> None:
    found = swept({"lr": ["0.1", "0,2"]})
    lines = [*csv.DictReader(io.StringIO(rendered(found, "csv")))]
    assert [(line["number"], line["lr"], line["repeat"], line["seed"], line["state"]) for line in lines] == [
        ("1", "0.1", "1", "1", "succeeded"), ("2", "0,2", "1", "1", "succeeded"),
        ("3", "0.1", "2", "2", "succeeded"), ("4", "0,2", "2", "2", "succeeded"),
    ]  # fmt: skip
    assert float(lines[1]["test_accuracy"]) == pytest.approx(0.901)
    document = json.loads(rendered(found, "json"))
    assert (document["report"], document["sweep"], document["parameters"]) == ("sweep", "s", ["lr"])
    assert document["succeeded"]["repeats"][0]["figures"]["test_accuracy"]["count"] == 2


def test_page_shows_table_plots_and_curves_of_a_sweep() -> None:
    page = rendered(swept({"augmented-epochs": ["0", "25", "50"]}), "html")
    for text in ("Sweep s", "By parameter", "Test accuracy by augmented-epochs", "Time by augmented-epochs"):
        assert text in page
    assert page.count("augmented-epochs=25<") > 3  # the legends of the curves
    assert "augmented-epochs=25<" not in rendered(swept({"augmented-epochs": ["25"], "depth": ["2"]}), "html")


def test_markup_in_values_is_text_on_the_page() -> None:
    page = rendered(swept({MARKUP: [MARKUP, "b"]}), "html")
    assert "<script" not in page and "<img src=x" not in page and "&lt;script&gt;" in page


@pytest.mark.parametrize("damaged", [3, {}, {"sweep": 3}, {"sweep": "s", "parameters": [[1, 2]]}])
def test_damaged_trial_gives_a_record_no_place_in_a_sweep(damaged: Any) -> None:
    assert report_of(changed(spec={"trial": damaged})).trial == Trial()


def test_csv_is_only_for_sweeps() -> None:
    assert parse_formats("html,csv", SWEEP_FORMATS) == ("html", "csv")
    with pytest.raises(UsageError, match="must be one or several of html, md, json"):
        parse_formats("csv")
