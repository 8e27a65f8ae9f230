"""Facts about the timeline of a run."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from cluster.report.model import CHECKPOINT, ENDED, FAULT, JOINED, RESUMED, STRAGGLER
from cluster.report.run_files import RunFiles
from cluster.report.timeline import (
    CHECKING,
    CLOSING,
    FIRST_STEP,
    PREPARING,
    STARTING,
    TRAINING,
    timeline_of,
)
from tests.cluster.report import recorded_runs
from tests.cluster.report.recorded_runs import changed, raw, raw_metrics, report


def test_the_phases_are_those_that_the_supervisor_and_rank_0_recorded() -> None:
    times, metrics, began = raw()["course"]["times"], raw_metrics(), raw()["state"]["started"]
    first_step = next(event["time"] for event in metrics if event["event"] == "step")
    marks = [
        times["started"],
        times["prepared"],
        times["inspected"],
        metrics[0]["time"],
        first_step,
        metrics[-1]["time"],
    ]
    phases = report().timeline.phases
    assert [phase.name for phase in phases] == [PREPARING, CHECKING, STARTING, FIRST_STEP, TRAINING, CLOSING]
    assert [phase.begin_s for phase in phases] == pytest.approx([mark - began for mark in marks])
    assert phases[-1].end_s == pytest.approx(times["ended"] - began)
    assert all(one.end_s == other.begin_s for one, other in itertools.pairwise(phases))


def test_each_checkpoint_is_an_event_with_its_size() -> None:
    written = [event for event in raw_metrics() if event["event"] == "checkpoint"]
    found = [event for event in report().timeline.events if event.kind == CHECKPOINT]
    assert [event.text.split(",")[0] for event in found] == [event["checkpoint"] for event in written]
    assert found[0].text.endswith(", 3.5 MB")


def test_nodes_join_when_they_are_checked_and_leave_at_the_end() -> None:
    record, timeline = raw(), report().timeline
    times, began = record["course"]["times"], record["state"]["started"]
    assert [node.name for node in timeline.nodes] == ["deeplearning-worker1", "deeplearning-worker2"]
    for node, host in zip(timeline.nodes, record["spec"]["hosts"], strict=True):
        assert (node.address, node.zone, node.ranks) == (host["address"], host["zone"], host["slots"])
        assert node.instance_type == record["origin"]["instance_types"][host["instance_id"]] == "c5.2xlarge"
        assert node.joined_s == pytest.approx(times["inspected"] - began)
        assert node.left_s == pytest.approx(times["ended"] - began)
        assert node.placement == "CPUs 0-1"
        assert dict(node.checks)["ssh"] == "ok"
    joined = next(event for event in timeline.events if event.kind == JOINED)
    assert joined.text == "2 nodes prepared and checked"


def test_a_resumed_run_has_the_phases_of_both_attempts_and_says_where_it_went_on() -> None:
    timeline = report(recorded_runs.RESUMED).timeline
    names = [(phase.attempt, phase.name) for phase in timeline.phases]
    assert names[:2] == [(1, FIRST_STEP), (1, TRAINING)]
    assert next(name for attempt, name in names if attempt == 2) == PREPARING
    assert all(one.end_s <= other.begin_s for one, other in itertools.pairwise(timeline.phases))
    assert all(phase.begin_s >= 0 for phase in timeline.phases)
    resumed = next(event for event in timeline.events if event.kind == RESUMED)
    start = [event for event in raw_metrics(recorded_runs.RESUMED) if event["event"] == "start"][-1]
    assert resumed.text == f"resumed from {start['resumed_from']} on 2 ranks"
    ends = [event.text for event in timeline.events if event.kind == ENDED]
    assert ends[0].startswith("stopped in epoch ") and ends[-1] == "succeeded"


def test_a_failure_is_a_fault_with_its_reason() -> None:
    timeline = timeline_of(changed(state={"state": "failed", "reason": "worker2: connection lost"}))
    assert [event.text for event in timeline.events if event.kind == FAULT] == ["failed: worker2: connection lost"]


def test_a_restart_is_a_fault_with_its_reason_and_the_preparation_of_its_nodes_begins_there() -> None:
    began = raw()["state"]["started"]
    times = {**raw()["course"]["times"], "restarted": began + 0.5}
    restarts = [{"time": began + 0.25, "for": "its supervisor was lost", "waited_s": 0.1, "hosts": []}, "junk"]
    timeline = timeline_of(changed(course={"restarts": restarts, "times": times}))
    faults = [(event.at_s, event.text) for event in timeline.events if event.kind == FAULT]
    assert [text for _, text in faults] == ["restart 1, for its supervisor was lost"]
    preparing = next(phase for phase in timeline.phases if phase.name == PREPARING)
    assert preparing.begin_s == pytest.approx(faults[0][0] + 0.25)


def test_a_restart_tells_what_it_has_cost_where_the_record_does() -> None:
    began = raw()["state"]["started"]
    restarts = [{"time": began + n / 4, "for": f"fault {n}", "waited_s": 0.1, "hosts": []} for n in range(3)]
    recoveries = [{"steps_lost": 1, "seconds": 9.54}, {"steps_lost": "many", "seconds": None}]
    timeline = timeline_of(changed(course={"restarts": restarts}, recoveries=recoveries))
    assert [event.text for event in timeline.events if event.kind == FAULT] == [
        "restart 1, for fault 0: 1 step made again, 9.5 s without one",
        "restart 2, for fault 1",
        "restart 3, for fault 2",
    ]


def test_a_checkpoint_that_could_not_be_written_is_a_fault_of_a_run_that_goes_on() -> None:
    files = changed()
    missed = {
        "event": "checkpoint_missed",
        "time": raw()["state"]["started"] + 9,
        "checkpoint": "step-9",
        "reason": "full",
    }
    timeline = timeline_of(dataclasses.replace(files, metrics=(*files.metrics, missed)))
    assert [event.text for event in timeline.events if event.kind == FAULT] == ["no checkpoint step-9: full"]


def test_a_run_that_begins_anew_for_all_its_checkpoints_are_damaged_says_so() -> None:
    files = changed()
    start = {
        "event": "start",
        "time": raw()["state"]["started"] + 9,
        "passed_over": "step-8: cut",
        "resumed_from": None,
    }
    timeline = timeline_of(dataclasses.replace(files, metrics=(*files.metrics, start)))
    told = [(event.kind, event.text) for event in timeline.events if event.kind in (FAULT, RESUMED)]
    assert told == [(FAULT, "step-8: cut"), (RESUMED, "begun anew, for no checkpoint was whole")]


def test_a_straggler_is_no_fault_and_is_told_again_once_it_keeps_up() -> None:
    files, began = changed(), raw()["state"]["started"]
    told = [
        {"event": "straggler", "time": began + 9, "rank": 1, "is_over": False, "text": "rank 1 is a straggler"},
        {"event": "straggler", "time": began + 19, "rank": 1, "is_over": True, "text": "rank 1 keeps up again"},
    ]
    events = timeline_of(dataclasses.replace(files, metrics=(*files.metrics, *told))).events
    assert [event.text for event in events if event.kind == STRAGGLER] == [each["text"] for each in told]
    assert not [event for event in events if event.kind == FAULT]


def test_what_the_checks_found_is_a_fault() -> None:
    finding = {"node": "worker1", "check": "clock", "what": "40 s behind", "remedy": "wait"}
    timeline = timeline_of(changed(preflight={"findings": [finding, "and words"]}))
    faults = [event.text for event in timeline.events if event.kind == FAULT]
    assert faults == ["pre-flight: worker1: clock: 40 s behind", "pre-flight: and words"]


def test_an_attempt_that_ended_without_a_word_is_a_fault() -> None:
    def event(name: str, time: float, **values: Any) -> dict[str, Any]:
        return {"event": name, "time": time, **values}

    began = raw()["state"]["started"]
    metrics = (
        event("start", began + 1),
        event("epoch", began + 2),
        event("start", began + 5, passed_over="step-1: cut"),
    )
    timeline = timeline_of(RunFiles(record=raw() | {"attempts": 2}, metrics=metrics))
    faults = [event.text for event in timeline.events if event.kind == FAULT]
    assert faults == ["attempt 1 ended without a result", "step-1: cut"]


def test_ranks_whose_weights_differ_are_a_fault() -> None:
    metrics = ({"event": "epoch", "time": raw()["state"]["started"] + 9, "epoch": 3, "weights_agree": False},)
    timeline = timeline_of(RunFiles(record=raw(), metrics=metrics))
    assert "the ranks' weights differ after epoch 3" in [event.text for event in timeline.events]


def test_a_run_that_failed_in_its_checks_has_the_phases_up_to_then() -> None:
    files = changed(course={"times": {"started": raw()["state"]["started"], "prepared": raw()["state"]["started"] + 2}})
    timeline = timeline_of(RunFiles(record=files.record))
    assert [phase.name for phase in timeline.phases] == [PREPARING, CHECKING]
    assert [node.joined_s for node in timeline.nodes] == [None, None]


def test_an_attempt_that_failed_before_its_nodes_were_prepared_has_no_steps_of_the_one_before() -> None:
    began = raw()["state"]["started"]
    at = {"started": 0, "prepared": 10, "inspected": 20, "launched": 25, "restarted": 500, "ended": 600}
    times = {step: began + seconds for step, seconds in at.items()}
    files = changed(course={"times": times}, state={"updated": began + 600}, attempts=2)
    lines = (("start", 30), ("step", 40), ("epoch", 490))
    metrics = tuple({"event": event, "time": began + seconds} for event, seconds in lines)

    untrained = timeline_of(RunFiles(record=files.record))
    assert [(phase.name, phase.begin_s, phase.end_s) for phase in untrained.phases] == [(PREPARING, 500, 600)]
    trained = timeline_of(RunFiles(record=files.record, metrics=metrics))
    assert [(phase.attempt, phase.name, phase.begin_s, phase.end_s) for phase in trained.phases] == [
        (1, FIRST_STEP, 30, 40),
        (1, TRAINING, 40, 490),
        (2, PREPARING, 500, 600),
    ]
    assert JOINED not in [event.kind for event in trained.events]
    assert [node.joined_s for node in trained.nodes] == [None, None]
