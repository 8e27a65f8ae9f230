"""The options of a launch: contradictions are rejected before any question."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.spec.horovod import Knobs
from agent.spec.run import RunSpec
from agent.spec.run_limits import RunLimits
from cluster.cli.flags import call, flags_of
from cluster.errors import UsageError
from cluster.runs.recipe_or_program import Training
from cluster.runs.run_options import LimitOptions, PreflightOptions, RankOptions, RestartOptions, RunOptions
from cluster.runs.train_request import TrainRequest
from cluster.session import Session
from cluster.tasks.resume import ResumeRequest
from tests.factories import make_spec, make_stack


def test_at_most_one_flag_selects_preflight() -> None:
    chosen = (PreflightOptions(), PreflightOptions(skip_preflight=True), PreflightOptions(full_preflight=True))
    assert [each.mode for each in chosen] == ["auto", "skip", "full"]
    with pytest.raises(UsageError, match="--skip-preflight: contradicts --full-preflight"):
        PreflightOptions(skip_preflight=True, full_preflight=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"launcher": "torch"}, "--launcher = 'torch': must be one of horovod, torchrun, plain"),
        (
            {"launcher": "plain", "controller": "gloo"},
            "--controller = 'gloo': is a setting of Horovod, which --launcher plain does not use; leave it out",
        ),
    ],
)
def test_launcher_is_one_of_three_and_only_horovod_has_a_controller(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        RankOptions(**options)


def test_single_gpu_per_rank_requires_placement() -> None:
    assert RankOptions(own_gpu=True).placement == "auto"
    with pytest.raises(UsageError, match="--placement = 'no': must be auto or none"):
        RankOptions(placement="no")
    with pytest.raises(UsageError, match="--own-gpu: assigns GPUs, but --placement none leaves that to the program"):
        RankOptions(placement="none", own_gpu=True)


def test_horovod_settings_and_variables_require_horovod() -> None:
    knobs, given = Knobs(cycle_time_ms=2.0), (("RANK", "0"), ("NAME", "value"))
    RunOptions(knobs=knobs, environment=given)
    for launcher in ("torchrun", "plain"):
        ranks = RankOptions(launcher=launcher)
        with pytest.raises(
            UsageError,
            match=f"--cycle-time-ms: is a setting of Horovod, which --launcher {launcher} does not use; leave it out",
        ):
            RunOptions(ranks=ranks, knobs=knobs)
        with pytest.raises(UsageError, match=f"--env = 'RANK': is set by --launcher {launcher}"):
            RunOptions(ranks=ranks, environment=given)
        with pytest.raises(UsageError, match="--secret = 'MASTER_PORT': is set by"):
            RunOptions(ranks=ranks, secrets=("MASTER_PORT",))


def read(group: type, **typed: str) -> Any:
    """Return a group of flags built from command-line input."""
    return call(
        group, {flag.parameter: flag.parse(typed.get(flag.parameter, flag.typed_default)) for flag in flags_of(group)}
    )


def test_rank_is_stuck_after_10_or_given_minutes_or_never() -> None:
    assert read(RestartOptions).stall_minutes == 10
    assert read(RestartOptions, stall_minutes="0").stall_minutes == 0
    with pytest.raises(UsageError, match=r"--stall-minutes = .*: must be a whole number from 0 to 1440"):
        read(RestartOptions, stall_minutes="1441")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e9", "five"])
def test_limit_is_a_number_above_0(value: str) -> None:
    with pytest.raises(UsageError, match=f"--max-cost = '{value}': must be"):
        read(LimitOptions, max_cost=value)
    with pytest.raises(UsageError, match=f"--max-hours = '{value}': must be"):
        read(LimitOptions, max_hours=value)


def test_omitted_limit_is_unchanged() -> None:
    before = RunLimits(max_hours=2.0, max_usd=5.0)
    assert LimitOptions().over(before) == before
    assert read(LimitOptions, max_cost="7.5").over(before) == RunLimits(max_hours=2.0, max_usd=7.5)


def test_limit_of_an_earlier_attempt_can_be_dropped() -> None:
    before = RunLimits(max_hours=2.0, max_usd=5.0)
    assert read(LimitOptions, max_cost="none").over(before) == RunLimits(max_hours=2.0)
    assert read(LimitOptions, max_cost="none", max_hours="none").over(before) == RunLimits()


POLICY = "arn:aws:autoscaling:eu-west-1:123456789012:scalingPolicy:stop"


def resumed(bounds: LimitOptions, *, keep_workers: bool = False, notify: tuple[str, ...] | None = None) -> RunSpec:
    """Return the spec of a resumed run that had a limit, --then-stop and --notify."""
    before = make_spec(bounds=RunLimits(max_usd=5.0), stop_policy=POLICY, notify=("mail me",))
    request = ResumeRequest(
        nodes=0,
        bounds=bounds,
        keep_workers=keep_workers,
        stall_minutes=None,
        notify=notify,
        preflight=PreflightOptions(),
        secrets={},
    )
    session = SimpleNamespace(stack=make_stack(stop_policy=POLICY), config=SimpleNamespace(then_stop=True))
    record = {"run_id": before.run_id, "state": {"state": "stopped"}, "spec": json.loads(before.to_json())}
    return request.changed(record, cast("Session", session))


def test_resumed_run_keeps_or_drops_its_limit_then_stop_and_notify() -> None:
    kept, dropped = resumed(LimitOptions()), resumed(LimitOptions(max_cost=0.0), keep_workers=True, notify=())
    assert (kept.bounds, kept.stop_policy, kept.notify) == (RunLimits(max_usd=5.0), POLICY, ("mail me",))
    assert (dropped.bounds, dropped.stop_policy, dropped.notify) == (RunLimits(), "", ())
    with pytest.raises(UsageError, match="--keep-workers: contradicts --then-stop"):
        resumed(LimitOptions(then_stop=True), keep_workers=True)


def test_min_nodes_needs_restarts_and_no_more_nodes_than_the_run_has() -> None:
    assert read(RestartOptions, min_nodes="2").min_nodes == 2
    with pytest.raises(UsageError, match="--min-nodes = 2: has no effect without restarts"):
        read(RestartOptions, restarts="0", min_nodes="2")
    options = RunOptions(restarts=RestartOptions(min_nodes=3))
    assert TrainRequest(work=Training(), nodes=3, options=options, secrets={}).nodes == 3
    with pytest.raises(UsageError, match="--min-nodes = 3: must not exceed the 2 nodes of the run"):
        TrainRequest(work=Training(), nodes=2, options=options, secrets={})
