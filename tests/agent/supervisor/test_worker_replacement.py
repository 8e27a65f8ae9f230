"""Replacing workers: the AWS calls, their answers, and the log on the master's disk."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.remote.ssh import Completed
from agent.spec.run_limits import Replacements
from agent.supervisor.worker_replacement import AwsCallError, HostReplacements, Replacement, ReplacementLog, WorkerGroup
from tests.factories import make_node

SETTINGS = Replacements(group="workers", region="us-east-1", max_per_hour=4)
ONE = Replacement(time=100.0, node="deeplearning-worker1", instance_id="i-00000001", reason="it is silent")


def group(answer: Any = None, status: int = 0, *, calls: list[list[str]] | None = None) -> WorkerGroup:
    """Return a group with AWS's answer `answer`: JSON values, or the text of an error."""

    def run(command: Sequence[str], timeout_s: float) -> Completed:
        if calls is not None:
            calls.append(list(command))
        return Completed(status=status, output=answer if status else json.dumps(answer))

    return WorkerGroup(settings=SETTINGS, run=run)


def test_members_in_service_and_healthy_may_be_replaced() -> None:
    instances = [
        ["i-1", "InService", "Healthy"], ["i-2", "InService", "HEALTHY"], ["i-3", "InService", "Unhealthy"],
        ["i-4", "Terminating:Wait", "Healthy"], ["i-5", "Standby", "Healthy"], ["i-6", "Pending", "Healthy"],
    ]  # fmt: skip
    found = group([instances, ["AZRebalance"]]).members()
    assert [instance_id for instance_id, is_well in found.items() if is_well] == ["i-1", "i-2"]
    assert len(found) == 6
    assert not any(group([instances, ["ReplaceUnhealthy"]]).members().values()), "as during a rolling update"


@pytest.mark.parametrize("answer", [None, [], [None, None], "text", [[["i-1"]], []], [[3], []]])
def test_unexpected_answers_are_errors(answer: Any) -> None:
    with pytest.raises(AwsCallError):
        group(answer).members()


def test_worker_is_marked_regardless_of_grace_period() -> None:
    calls: list[list[str]] = []
    group({}, calls=calls).mark_unhealthy(make_node(3))
    (command,) = calls
    words = "set-instance-health --instance-id i-00000003 --health-status Unhealthy --no-should-respect-grace-period"
    assert words in " ".join(command)
    with pytest.raises(AwsCallError, match=r"^An error occurred \(AccessDenied\) when calling$"):
        group("\nAn error occurred (AccessDenied) when calling\n", status=254).mark_unhealthy(make_node(3))


def test_capacity_is_known_from_latest_launch() -> None:
    failed = ["2026-11-28T12:00:00Z", "Launching a new EC2 instance.  Status Reason: x", "Failed", "no capacity"]
    launched = ["2026-11-28T12:05:00.123000+00:00", "Launching a new EC2 instance: i-1", "Successful", None]
    ended = ["2026-11-28T12:09:00Z", "Terminating EC2 instance: i-2", "Successful", None]
    at = 1795867200.0  # 12:00:00 UTC
    assert group([ended, failed]).launch_failure(at - 60) == "no capacity"
    assert group([ended, failed]).launch_failure(at + 60) == "", "an old failure says nothing"
    assert group([launched, failed]).launch_failure(at - 60) == ""
    assert group([ended]).launch_failure(at - 60) == group([]).launch_failure(at - 60) == ""
    assert group("throttled", status=254).launch_failure(at - 60) == group("x").launch_failure(at - 60) == ""


def test_log_keeps_replacements_and_survives_a_half_line(tmp_path: Path) -> None:
    path = tmp_path / "below/replacements.jsonl"
    log = ReplacementLog(path)
    assert log.read() == []
    log.add(ONE)
    with path.open("a") as file:
        file.write('{"time": 3, "no')
    now = time.time()
    again = Replacement(time=now, node="n", instance_id="i", reason="r", trouble="no")
    made = Replacement(time=now - 60, node="n", instance_id="i", reason="r")
    log.add(made)
    log.add(again)
    assert log.read() == [ONE, made, again]
    assert log.read(since=200.0) == [made, again]
    assert log.made(now) == 1, "within the last hour, and done"


def test_run_gets_replacements_of_its_hosts(tmp_path: Path) -> None:
    log = ReplacementLog(tmp_path / "log")
    log.add(ONE)
    log.add(Replacement(time=150.0, node="deeplearning-worker2", instance_id="i-00000002", reason="it is silent"))

    def seen(*hosts: str, answer: Any = ()) -> HostReplacements:
        return HostReplacements(group=group(list(answer)), log=log, hosts=frozenset(hosts), since=50.0)

    assert seen("i-00000001").found() == [ONE]
    assert (seen("i-00000001").latest(), seen("i-9").latest()) == (100.0, 0.0)
    assert seen("i-00000001").obstacle() == ""
    failed = [["2026-11-28T12:00:00Z", "Launching a new EC2 instance", "Failed", "no capacity"]]
    assert seen("i-00000001", answer=failed).obstacle() == "no capacity"
    log.add(Replacement(time=200.0, node="n", instance_id="i-00000001", reason="r", trouble="the limit"))
    assert seen("i-00000001").obstacle() == "the limit"
    assert seen("i-00000001").latest() == 100.0
