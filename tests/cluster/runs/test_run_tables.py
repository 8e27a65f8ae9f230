"""The tables of runs: newest first, plain values of results, and the nodes of each run."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.runs import run_owner
from cluster.runs.run_tables import record_table, result_table, runs_table
from cluster.tasks import runs as tasks
from cluster.terminal.units import duration


def test_runs_come_newest_first_with_short_reasons() -> None:
    base = {"started": 0.0, "updated": 61.0, "hosts": ["w1", "w2"], "reason": "", "epoch": None}
    validated = {"epoch": 2, "validation_accuracy": 0.5}
    table = runs_table(
        [
            {**base, "run_id": "old", "state": "failed", "reason": "x" * 100 + "\nmore", "epoch": validated},
            {**base, "run_id": "new", "state": "succeeded", "epoch": {"epoch": 5, "test_accuracy": 0.9812}},
        ]
    )
    assert table.rows[0] == ("new", "succeeded", "2", "5", "98.12%", "1:01", "-", "")
    assert len(table.rows[1][-1]) == 60
    assert (table.columns[4], table.rows[1][4]) == ("accuracy", "50.00% validation")


def test_waiting_run_shows_its_place_in_the_queue() -> None:
    waiting = {"run_id": "one", "state": "queued", "position": 2, "started": 0, "updated": 61, "epoch": None}
    assert runs_table([waiting]).rows[0] == ("one", "queued 2", "0", "-", "-", "-", "-", "")


def test_runs_of_a_sweep_show_its_name_and_their_parameters() -> None:
    base = {"run_id": "one", "state": "succeeded", "started": 0.0, "updated": 61.0, "hosts": ["w1"], "epoch": None}
    trial = {"sweep": "s1", "number": 3, "parameters": [["lr", "0.1"], ["depth", "3"]], "repeat": 2, "seed": 5}
    table = runs_table([base, {**base, "trial": trial}])
    assert table.columns[-3:] == ("sweep", "parameters", "reason")
    assert [row[-3:-1] for row in table.rows] == [("s1", "lr=0.1, depth=3, repeat 2"), ("-", "-")]
    assert "sweep" not in runs_table([base]).columns


def test_runs_can_be_listed_by_person_with_total_cost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    me, other = run_owner.here(), {"user": "alice", "host": "desk", "laptop": "0" * 32}
    base = {"state": "succeeded", "reason": "", "started": 0.0, "updated": 9.0, "hosts": [], "last_lines": []}
    listed = [
        {**base, "run_id": "a1", "started_by": other, "spent": {"seconds": 3600.0, "usd": 2.0}},
        {**base, "run_id": "mine", "started_by": me, "spent": {"seconds": 60.0, "usd": 0.5}},
        {**base, "run_id": "nobody", "started_by": None, "spent": None},
        {**base, "run_id": "a2", "started_by": other, "spent": {"seconds": 1800.0, "usd": None}},
    ]
    session = SimpleNamespace(
        connect=lambda: contextlib.nullcontext(), supervisor=lambda _: SimpleNamespace(runs=lambda: listed)
    )
    monkeypatch.setattr(tasks, "Session", lambda *_words, **_named: session)
    monkeypatch.setattr(tasks, "archived", lambda *_words, **_named: None)

    def printed(**options: bool) -> Any:
        tasks.runs.body(json=True, **options)
        return json.loads(capsys.readouterr().out)

    assert [run["run_id"] for run in printed(mine=True)] == ["mine"]
    mine = {"started_by": run_owner.describe(me), "runs": 1, "seconds": 60.0, "usd": 0.5, "unpriced": 0}
    alice = {"started_by": "alice@desk", "runs": 2, "seconds": 5400.0, "usd": 2.0, "unpriced": 1}
    nobody = {"started_by": "", "runs": 1, "seconds": 0.0, "usd": 0.0, "unpriced": 0}
    assert printed(cost=True) == [alice, mine, nobody]
    assert printed(cost=True, mine=True) == [mine]
    tasks.runs.body(cost=True)
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()][1:3] == [
        "started by runs time cost",
        "alice@desk 2 1:30:00 about $2.00; the cost of 1 run is unknown",
    ]


def test_live_run_shows_which_nodes_it_has() -> None:
    live = {"run_id": "one", "state": "running", "started": 0, "updated": 61, "hosts": ["deeplearning-worker2"]}
    assert runs_table([live]).rows[0][2] == "1 (worker2)"
    assert runs_table([{**live, "state": "failed"}]).rows[0][2] == "1"


def test_result_shows_its_plain_values(tmp_path: Path) -> None:
    values = {"recipe": "digits", "test_accuracy": 0.98333, "steps": 1200, "hosts": ["w1", "w2"], "finished": 0.0,
              "versions": {"keras": "3"}, "weights_agree": True, "data_dir": None,
              "epoch_seconds": [2.51234, 0.25]}  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(values))
    assert {row[0]: row[1] for row in result_table(tmp_path).rows} == {
        "recipe": "digits", "test accuracy": "98.33%", "steps": "1,200", "hosts": "w1, w2",
        "finished": "1970-01-01 00:00:00 UTC", "weights agree": "yes",
        "epoch seconds": "2.512, 0.25",
    }  # fmt: skip


def test_run_without_a_result_shows_its_state(tmp_path: Path) -> None:
    assert result_table(tmp_path).rows == (("state", "unknown"),)
    (tmp_path / "state.json").write_text('{"state": "stopped", "reason": "stopped on request"}')
    assert result_table(tmp_path).rows == (("state", "stopped"), ("reason", "stopped on request"))
    (tmp_path / "state.json").write_text('{"state": "running", "reason": ""}')
    assert result_table(tmp_path).rows == (("state", "running"),)


def test_result_and_state_of_any_size_are_left_out(tmp_path: Path) -> None:
    for name in ("result.json", "state.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 42)
    assert result_table(tmp_path).rows == (("state", "unknown"),)


def test_record_shows_program_nodes_and_end_of_run() -> None:
    record = {
        "run_id": "one", "directory": "/mnt/efs/runs/one", "attempts": 2, "files": 3, "bytes": 2048, "result": None,
        "checkpoints": ["step-00000001", "step-00000007"],
        "state": {"state": "failed", "reason": "no room", "started": 0, "updated": 61, "exit_code": 1,
                  "last_lines": ["[bold]disk full"]},
        "spec": {"command": ["-m", "payload.train", "--data-dir", "/a b"], "payload": "0123456789abcdef",
                 "hosts": [{"name": "deeplearning-worker1", "address": "10.0.1.1", "slots": 8}],
                 "program": "fedcba9876543210"},
        "launch": {"command": ["python", "-m", "agent.launch.horovodrun", "-H", "a b:1"]},
    }  # fmt: skip
    table = record_table(record)
    rows = {row[0]: row[1] for row in table.rows}
    assert (rows["state"], rows["time"]) == ("failed: no room", "1:01, attempt 2")
    assert rows["checkpoints"] == "2, last step-00000007"
    assert rows["nodes"] == "deeplearning-worker1 (10.0.1.1, 8 slots)"
    assert rows["command"] == "python -m payload.train --data-dir '/a b'"
    assert rows["launched"] == "python -m agent.launch.horovodrun -H 'a b:1'"
    assert rows["program"] == "fedcba9876543210"
    assert table.footer == ("  [bold]disk full",)


def rows_of(**more: Any) -> dict[str, str]:
    """Return the rows of a run of 61 s with these parts of a record."""
    record = {
        "run_id": "one", "directory": "/d", "attempts": 1, "files": 3, "bytes": 2048, "result": None, "checkpoints": [],
        "state": {"state": "succeeded", "reason": "", "started": 0, "updated": 61}, "spec": None, "launch": None,
        **more,
    }  # fmt: skip
    return {row[0]: row[1] for row in record_table(record).rows}


def test_cost_at_older_prices_has_their_date() -> None:
    dated = rows_of(usd=1.25, origin={"prices_of": "2026-07-20"})
    assert dated["cost"] == "about $1.25 for its instances (prices of 2026-07-20)"
    assert rows_of(usd=1.25, origin={"prices_of": ""})["cost"] == "about $1.25 for its instances"


@pytest.mark.parametrize(
    ("spot", "told"),
    [
        (None, None),
        (
            {"hosts": 2, "usd": 0.5, "prices_of": "2026-11-20"},
            "2 nodes; about $0.50 with spot prices (prices of 2026-11-20)",
        ),
        (
            {"hosts": 1, "usd": None, "prices_of": ""},
            "1 node, cheaper than on demand; `fab prices --refresh` reads the spot prices for later runs",
        ),
    ],
)
def test_spot_nodes_are_shown_with_their_cost(spot: dict[str, Any] | None, told: str | None) -> None:
    assert rows_of(usd=1.25, spot=spot).get("on spot") == told


@pytest.mark.parametrize(
    ("course", "copy"),
    [
        ({"archive": "s3://b/runs/one"}, "s3://b/runs/one"),
        ({"archive": "s3://b/runs/one", "trouble": "denied"}, "s3://b/runs/one (incomplete: denied)"),
        ({"archive": "", "trouble": "origin.json is invalid"}, "none: origin.json is invalid"),
        ({"archive": ""}, None),
    ],
)
def test_copy_in_the_bucket_is_shown_or_why_there_is_none(course: dict[str, Any], copy: str | None) -> None:
    assert rows_of(course=course).get("copy") == copy


def test_limited_run_shows_used_part_of_limit() -> None:
    rows = rows_of(spec={"bounds": {"max_usd": 5.0}}, spent={"seconds": 3600, "usd": 5.01})
    assert rows["bound"] == "--max-cost 5: $5.01 of $5 after 1 h"


def test_record_shows_cost_of_each_restart() -> None:
    restart = {"time": 5, "for": "w2 rebooted", "waited_s": 7.5, "hosts": ["w1", "w2"]}
    costs = [
        {"went_on_at": 20, "steps_lost": 13, "seconds": 90.4, "usd": 0.042},
        {"went_on_at": 40, "steps_lost": 1, "seconds": None, "usd": None},
        {"went_on_at": None, "steps_lost": None, "seconds": None, "usd": None},
    ]
    rows = rows_of(attempts=5, course={"restarts": [restart] * 4}, restart_costs=costs)
    told = "w2 rebooted; after 7.5 s on w1, w2"
    assert rows["restart 1"] == f"{told}; 13 steps repeated from step 20, {duration(90.4)} without a step, about $0.04"
    assert rows["restart 2"] == f"{told}; 1 step repeated from step 40"
    assert rows["restart 3"] == rows["restart 4"] == told


def test_run_with_allowed_idle_gpus_shows_this() -> None:
    allowed = [{"node": "deeplearning-worker1", "what": "TensorFlow sees 0 of 1"}, {"node": "", "what": "slow"}]
    degraded = rows_of(preflight={"allowed": allowed})["degraded"]
    assert degraded == "deeplearning-worker1: TensorFlow sees 0 of 1; slow"
    warning = {"node": "", "what": "NCCL 2.32.3 with aws-ofi-nccl 1.18.0"}
    assert rows_of(preflight={"warnings": [warning]})["warning"] == warning["what"]
    assert "degraded" not in rows_of(preflight=None)


ESTIMATE = {"seconds": {"low": 10.0, "value": 40.0, "high": 90.0}, "usd": {"low": 0, "value": 0.012, "high": 1}}


def test_record_shows_expected_beside_actual_values() -> None:
    assert (
        rows_of(origin={"estimate": ESTIMATE}, usd=0.02)["estimated"] == "40 s (10 s to 1:30), $0.01; took 1:01, $0.02"
    )
    assert rows_of(origin={"estimate": {**ESTIMATE, "usd": None}})["estimated"] == "40 s (10 s to 1:30); took 1:01"


def test_record_warns_of_an_unpublished_metric_unless_the_reason_does() -> None:
    course, state = {"unpublished": "AWS rejects the metric LiveRuns"}, {"started": 0, "updated": 61}
    assert rows_of(course=course)["warning"] == course["unpublished"]
    assert "warning" not in rows_of(course={"unpublished": ""})
    said = rows_of(course=course, state={**state, "state": "running", "reason": course["unpublished"]})
    assert "warning" not in said


def test_record_shows_expected_beside_actual_time_of_each_part() -> None:
    parts = {"start_up": 30, "compute": 8, "communication": 2, "input": 0, "evaluation": 1}
    result = {"epoch_seconds": [20, 20], "training_seconds": 35, "images_per_s": 500}
    rows = rows_of(origin={"estimate": {**ESTIMATE, "parts": parts, "images_per_s": 1000}}, result=result)
    assert rows["  start-up"] == "30 s, was 21 s (-30%)"
    assert rows["  training steps"] == "10 s, was 35 s (+250%)"
    assert rows["  evaluation"] == "1.0 s, was 5.0 s (+400%)"
    assert rows["  images/s"] == "1,000, was 500 (-50%)"


@pytest.mark.parametrize(
    "estimate", [None, {}, [], {"seconds": 3, "usd": None}, {"seconds": {"low": "x"}, "usd": None}]
)
def test_record_without_estimate_mentions_none(estimate: Any) -> None:
    assert "estimated" not in rows_of(origin={"estimate": estimate})
