"""The report of one run: each of its values is from the record."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cluster.report.run_files import RunFiles, read_run
from cluster.report.run_report import (
    COST,
    DATA_WAIT,
    FIRST_STEP_AFTER,
    SECONDS,
    SPEED_PER_NODE,
    TEST_ACCURACY,
    TRAINING_SHARE,
    report_of,
)
from tests.cluster.report.recorded_runs import DIGITS, RESUMED, changed, raw, raw_metrics, report


@pytest.mark.parametrize("directory", [DIGITS, RESUMED])
def test_each_headline_is_from_the_record(directory: Path) -> None:
    record = raw(directory)
    state, result = record["state"], record["result"]
    seconds = state["updated"] - state["started"]
    steps = [event for event in raw_metrics(directory, "step") if event["time"] > state["started"]]
    assert {each.key: each.value for each in report(directory).headlines} == {
        TEST_ACCURACY: result["test_accuracy"],
        SECONDS: pytest.approx(seconds),
        COST: record["usd"],
        SPEED_PER_NODE: pytest.approx(result["images_per_s"] / 2),
        TRAINING_SHARE: pytest.approx(result["training_seconds"] / seconds),
        FIRST_STEP_AFTER: pytest.approx(steps[0]["time"] - state["started"]),
        DATA_WAIT: pytest.approx(result["data_wait_seconds"] / result["training_seconds"]),
    }


def test_head_shows_what_ran_where_and_the_best_epoch() -> None:
    found, record = report(), raw()
    assert (found.run_id, found.recipe, found.state) == (record["run_id"], "digits", "succeeded")
    assert (found.nodes, found.ranks, found.attempts) == (2, 2, 1)
    assert found.started == record["state"]["started"]
    best = max(raw_metrics(kind="epoch"), key=lambda event: event["test_accuracy"])
    note = found.headline(TEST_ACCURACY).note
    assert note == f"after 20 epochs; best {best['test_accuracy']:.2%} in epoch {best['epoch']}"
    assert found == report_of(read_run(DIGITS))


def test_time_and_cost_of_a_resumed_run_are_those_of_the_last_attempt() -> None:
    found = report(RESUMED)
    assert found.attempts == 2
    assert found.headline(SECONDS).note == "only attempt 2"
    assert "only attempt 2" in found.headline(COST).note
    assert any("For earlier attempts" in sentence for sentence in found.missing)


def test_run_without_a_result_shows_the_figures_of_its_epochs() -> None:
    found = report_of(changed(result=None, state={"state": "failed", "reason": "worker2 was lost"}))
    last = raw_metrics(kind="epoch")[-1]
    assert found.headline(TEST_ACCURACY).value == last["test_accuracy"]
    assert found.headline(SPEED_PER_NODE).value == pytest.approx(last["images_per_s"] / 2)
    share = found.headline(TRAINING_SHARE)
    assert (share.value, share.text, share.note) == (None, "unknown", "")
    assert found.reason == "worker2 was lost"
    assert any("There is no result" in sentence for sentence in found.missing)


def test_run_with_only_its_state_has_a_report() -> None:
    names = ("run_id", "directory", "state", "checkpoints", "attempts", "files", "bytes")
    bare = {name: raw()[name] for name in names}
    bare["state"] = {**bare["state"], "state": "running", "epoch": None, "last": None, "hosts": []}
    found = report_of(RunFiles(record=bare, skipped_lines=3))
    assert [each.key for each in found.headlines if each.value is not None] == [SECONDS]
    assert (found.nodes, found.curves.epochs, found.timeline.nodes, found.confusion) == (0, (), (), None)
    assert len(found.missing) == 5
    assert "Left out of metrics.jsonl: 3 lines without a valid event." in found.missing


def test_only_a_recipe_can_lack_a_confusion_matrix() -> None:
    files = dataclasses.replace(read_run(DIGITS), confusion=None)
    assert any("-- --confusion-matrix" in sentence for sentence in report_of(files).missing)
    for words in (["train.py"], ["-m", "payload.bench.ranks"]):
        other = dataclasses.replace(changed(spec={"command": words}), confusion=None)
        assert not any("confusion" in sentence for sentence in report_of(other).missing)


def test_cost_shows_its_prices() -> None:
    unknown = report_of(changed(usd=None)).headline(COST)
    assert (unknown.value, unknown.text, unknown.note) == (None, "unknown", "no price is known for its instances")
    known = report_of(changed(spot={"hosts": 2, "usd": 0.25, "prices_of": "2026-11-20"})).headline(COST)
    assert known.note.endswith("$0.2500 with 2 nodes on spot (prices of 2026-11-20)")
    less = report_of(changed(spot={"hosts": 1, "usd": None, "prices_of": ""})).headline(COST)
    assert less.note.endswith("less with 1 node on spot")
