"""The timeline of a run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from cluster.report.run_files import RunFiles
from cluster.report.timeline import (
    CHECKING,
    CHECKPOINT,
    CLOSING,
    ENDED,
    FAULT,
    FIRST_STEP,
    JOINED,
    PREPARING,
    RESUMED,
    STARTING,
    STRAGGLER,
    TRAINING,
    timeline_of,
)
from tests.cluster.report import recorded_runs
from tests.cluster.report.recorded_runs import changed, raw, raw_metrics, report, with_events

BEGAN: float = raw()["state"]["started"]


def events(files: RunFiles, *kinds: str) -> list[tuple[str, str]]:
    """Return kind and text of the events of these kinds."""
    return [(event.kind, event.text) for event in timeline_of(files).events if event.kind in kinds]


def faults(files: RunFiles) -> list[str]:
    """Return the texts of the faults."""
    return [text for _, text in events(files, FAULT)]


def phases(files: RunFiles) -> list[tuple[int, str, float, float]]:
    """Return attempt, name, begin and end of each phase."""
    return [(phase.attempt, phase.name, phase.begin_s, phase.end_s) for phase in timeline_of(files).phases]


def metrics(*told: tuple[str, float], **values: Any) -> Sequence[dict[str, Any]]:
    """Return events with these names and times; the last one has `values`."""
    found = [{"event": name, "time": BEGAN + at} for name, at in told]
    return (*found[:-1], {**found[-1], **values})


def test_phases_are_recorded_by_supervisor_and_rank_0() -> None:
    times, written = raw()["course"]["times"], raw_metrics()
    first_step = raw_metrics(kind="step")[0]["time"]
    marks = [times["started"], times["prepared"], times["inspected"], written[0]["time"], first_step]
    found = report().timeline.phases
    assert [phase.name for phase in found] == [PREPARING, CHECKING, STARTING, FIRST_STEP, TRAINING, CLOSING]
    assert [phase.begin_s + BEGAN for phase in found] == pytest.approx([*marks, written[-1]["time"]])
    assert found[-1].end_s + BEGAN == pytest.approx(times["ended"])
    assert all(one.end_s == other.begin_s for one, other in itertools.pairwise(found))


def test_nodes_join_when_they_are_checked_and_leave_at_the_end() -> None:
    record, timeline = raw(), report().timeline
    times = record["course"]["times"]
    assert [node.name for node in timeline.nodes] == ["deeplearning-worker1", "deeplearning-worker2"]
    for node, host in zip(timeline.nodes, record["spec"]["hosts"], strict=True):
        assert (node.address, node.zone, node.ranks) == (host["address"], host["zone"], host["slots"])
        assert node.instance_type == record["origin"]["instance_types"][host["instance_id"]]
        assert (node.joined_s, node.left_s) == pytest.approx((times["inspected"] - BEGAN, times["ended"] - BEGAN))
        assert (node.placement, dict(node.checks)["ssh"]) == ("CPUs 0-1", "ok")
    joined = next(event for event in timeline.events if event.kind == JOINED)
    assert joined.text == "2 nodes prepared and checked"


def test_each_checkpoint_is_an_event_with_its_size() -> None:
    found = [event for event in report().timeline.events if event.kind == CHECKPOINT]
    assert [event.text for event in found] == [f"{e['checkpoint']}, 3.5 MB" for e in raw_metrics(kind="checkpoint")]


def test_resumed_run_has_the_phases_of_both_attempts_and_its_checkpoint() -> None:
    timeline = report(recorded_runs.RESUMED).timeline
    names = [(phase.attempt, phase.name) for phase in timeline.phases]
    assert names[:3] == [(1, FIRST_STEP), (1, TRAINING), (2, PREPARING)]
    assert all(one.end_s <= other.begin_s for one, other in itertools.pairwise(timeline.phases))
    assert all(phase.begin_s >= 0 for phase in timeline.phases)
    start = raw_metrics(recorded_runs.RESUMED, "start")[-1]
    told = {event.kind: event.text for event in timeline.events}
    assert told[RESUMED] == f"resumed from {start['resumed_from']} on 2 ranks"
    ends = [event.text for event in timeline.events if event.kind == ENDED]
    assert ends[0].startswith("stopped in epoch ") and ends[-1] == "succeeded"


def test_errors_are_faults() -> None:
    assert faults(changed(state={"state": "failed", "reason": "worker2: connection lost"})) == [
        "failed: worker2: connection lost"
    ]
    finding = {"node": "worker1", "check": "clock", "what": "40 s behind", "remedy": "wait"}
    assert faults(changed(preflight={"findings": [finding, "words"]})) == [
        "pre-flight: worker1: clock: 40 s behind",
        "pre-flight: words",
    ]
    assert faults(
        with_events(
            {"event": "checkpoint_missed", "checkpoint": "step-9", "reason": "full"},
            {"event": "epoch", "epoch": 3, "weights_agree": False},
        )
    ) == ["checkpoint step-9 was not written: full", "the ranks' weights differ after epoch 3"]


def test_replaced_workers_are_faults_with_their_reason() -> None:
    made = {"time": BEGAN + 0.5, "node": "worker4", "instance_id": "i-1", "reason": "silent", "trouble": ""}
    assert faults(changed(course={"replaced": [made, {**made, "trouble": "the limit"}, "junk"]})) == [
        "worker4 replaced: silent",
        "worker4 not replaced (the limit): silent",
    ]


def test_restarts_are_faults_with_their_reason_and_cost_where_recorded() -> None:
    restarts = [{"time": BEGAN + n / 4, "for": f"fault {n}", "waited_s": 0.1, "hosts": []} for n in range(3)]
    costs = [{"steps_lost": 1, "seconds": 9.54}, {"steps_lost": "many", "seconds": None}]
    assert faults(changed(course={"restarts": [*restarts, "junk"]}, restart_costs=costs)) == [
        "restart 1: fault 0 (1 step repeated, 9.5 s without a step)",
        "restart 2: fault 1",
        "restart 3: fault 2",
    ]


def test_preparation_begins_with_the_restart() -> None:
    times = {**raw()["course"]["times"], "restarted": BEGAN + 0.5}
    assert phases(changed(course={"times": times}))[0][1:3] == (PREPARING, 0.5)


def test_run_that_starts_over_because_all_checkpoints_are_damaged() -> None:
    files = with_events({"event": "start", "passed_over": "step-8: cut", "resumed_from": None})
    assert events(files, FAULT, RESUMED) == [
        (FAULT, "step-8: cut"),
        (RESUMED, "restarted from the beginning, because no checkpoint was intact"),
    ]


def test_straggler_does_not_count_as_a_fault() -> None:
    files = with_events({"event": "straggler", "text": "rank 1 is slow"}, {"event": "straggler", "text": "no longer"})
    assert events(files, FAULT, STRAGGLER) == [(STRAGGLER, "rank 1 is slow"), (STRAGGLER, "no longer")]


def test_attempt_without_an_end_is_a_fault() -> None:
    told = metrics(("start", 1), ("epoch", 2), ("start", 5), passed_over="step-1: cut")
    files = RunFiles(record=raw() | {"attempts": 2}, metrics=tuple(told))
    assert faults(files) == ["attempt 1 ended without a result", "step-1: cut"]


def test_run_failed_in_its_checks_has_phases_until_failure() -> None:
    files = RunFiles(record=changed(course={"times": {"started": BEGAN, "prepared": BEGAN + 2}}).record)
    assert [name for _, name, _, _ in phases(files)] == [PREPARING, CHECKING]
    assert [node.joined_s for node in timeline_of(files).nodes] == [None, None]


def test_early_failed_attempt_has_no_steps_of_previous_attempt() -> None:
    at = {"started": 0, "prepared": 10, "inspected": 20, "launched": 25, "restarted": 500, "ended": 600}
    times = {step: BEGAN + seconds for step, seconds in at.items()}
    record = changed(course={"times": times}, state={"updated": BEGAN + 600}, attempts=2).record
    assert phases(RunFiles(record=record)) == [(2, PREPARING, 500, 600)]
    trained = RunFiles(record=record, metrics=tuple(metrics(("start", 30), ("step", 40), ("epoch", 490))))
    assert phases(trained) == [(1, FIRST_STEP, 30, 40), (1, TRAINING, 40, 490), (2, PREPARING, 500, 600)]
    assert events(trained, JOINED) == []
    assert [node.joined_s for node in timeline_of(trained).nodes] == [None, None]
