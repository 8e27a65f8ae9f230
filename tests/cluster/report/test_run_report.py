"""Facts about the report of one run: each of its figures is one of the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.report.run_files import RunFiles, read_run
from cluster.report.run_report import (
    ACCURACY,
    COST,
    DATA_WAIT,
    FIRST_STEP_AFTER,
    SECONDS,
    SPEED_PER_NODE,
    TRAINING_SHARE,
    report_of,
)
from tests.cluster.report.recorded_runs import DIGITS, RESUMED, changed, raw, raw_metrics, report


@pytest.mark.parametrize("directory", [DIGITS, RESUMED])
def test_each_headline_is_the_records(directory: Path) -> None:
    record, found = raw(directory), report(directory)
    state, result = record["state"], record["result"]
    seconds = state["updated"] - state["started"]
    values = {each.key: each.value for each in found.headlines}
    steps = [event for event in raw_metrics(directory) if event["event"] == "step" and event["time"] > state["started"]]
    assert values == {
        ACCURACY: result["test_accuracy"],
        SECONDS: pytest.approx(seconds),
        COST: record["usd"],
        SPEED_PER_NODE: pytest.approx(result["images_per_s"] / 2),
        TRAINING_SHARE: pytest.approx(result["training_seconds"] / seconds),
        FIRST_STEP_AFTER: pytest.approx(steps[0]["time"] - state["started"]),
        DATA_WAIT: pytest.approx(result["data_wait_seconds"] / result["training_seconds"]),
    }


def test_the_head_says_what_ran_where() -> None:
    found, record = report(), raw()
    assert (found.run_id, found.recipe, found.state) == (record["run_id"], "digits", "succeeded")
    assert (found.nodes, found.ranks, found.attempts) == (2, 2, 1)
    assert found.started == record["state"]["started"]


def test_the_best_epoch_is_named_beside_the_last() -> None:
    epochs = [event for event in raw_metrics() if event["event"] == "epoch"]
    best = max(epochs, key=lambda event: event["test_accuracy"])
    note = report().headline(ACCURACY).note
    assert note == f"after 20 epochs; best {best['test_accuracy']:.2%} in epoch {best['epoch']}"


def test_a_resumed_run_says_that_time_and_cost_are_of_the_last_attempt() -> None:
    found = report(RESUMED)
    assert found.attempts == 2
    assert found.headline(SECONDS).note == "attempt 2 alone"
    assert "attempt 2 alone" in found.headline(COST).note
    assert any("Of earlier attempts" in sentence for sentence in found.missing)


def test_a_run_without_a_result_shows_what_its_epochs_tell() -> None:
    found = report_of(changed(result=None, state={"state": "failed", "reason": "worker2 was lost"}))
    epochs = [event for event in raw_metrics() if event["event"] == "epoch"]
    assert found.headline(ACCURACY).value == epochs[-1]["test_accuracy"]
    assert found.headline(SPEED_PER_NODE).value == pytest.approx(epochs[-1]["images_per_s"] / 2)
    assert (found.headline(TRAINING_SHARE).value, found.headline(TRAINING_SHARE).text) == (None, "unknown")
    assert found.reason == "worker2 was lost"
    assert any("It has no result" in sentence for sentence in found.missing)


def test_a_run_of_which_nothing_is_known_but_its_state_has_a_report() -> None:
    record = raw()
    bare = {
        name: record[name] for name in ("run_id", "directory", "state", "checkpoints", "attempts", "files", "bytes")
    }
    bare["state"] = {**bare["state"], "epoch": None, "last": None, "hosts": []}
    found = report_of(RunFiles(record=bare))
    assert [each.key for each in found.headlines if each.value is not None] == [SECONDS]
    assert (found.nodes, found.curves.epochs, found.timeline.nodes, found.confusion) == (0, (), (), None)
    assert len(found.missing) == 4


def test_a_cost_without_a_price_is_unknown() -> None:
    cost = report_of(changed(usd=None)).headline(COST)
    assert (cost.value, cost.text, cost.note) == (None, "unknown", "no price is known for its instances")


def test_a_cost_tells_of_nodes_on_spot() -> None:
    known = report_of(changed(spot={"hosts": 2, "usd": 0.25, "prices_of": "2026-11-20"})).headline(COST)
    assert known.note.endswith("$0.2500 with 2 nodes on spot (prices of 2026-11-20)")
    unknown = report_of(changed(spot={"hosts": 1, "usd": None, "prices_of": ""})).headline(COST)
    assert unknown.note.endswith("less with 1 node on spot")


def test_a_live_run_says_that_it_had_not_ended() -> None:
    found = report_of(changed(state={"state": "running"}))
    assert "The run had not ended when this record was written." in found.missing


def test_the_same_files_give_the_same_report() -> None:
    assert report_of(read_run(DIGITS)) == report_of(read_run(DIGITS))
