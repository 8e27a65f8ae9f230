"""Real hosts with alarms: busy hosts stay, idle hosts are terminated, and the group grows again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.templates import nodes
from waiting import eventually

pytestmark = pytest.mark.root
ROOT = Path(__file__).resolve().parent
NAME = f"idle{os.getpid()}"
# A period of five minutes lasts a second. Three idle periods scale the group to zero.
SPEED = "300"
PERIODS = 3
WORK = "#!/bin/sh\nwhile [ ! -e /tmp/rest ]; do :; done\n"


def call(command: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of the cloud's commands."""
    return subprocess.run(
        [sys.executable, "-m", "localcloud", command, "--name", NAME, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def aws(*words: str) -> Any:
    """Run the AWS CLI on the laptop."""
    answer = call("run", "--", "aws", "--output", "json", *words).stdout
    return json.loads(answer) if answer.strip() else None


def hosts() -> list[str]:
    """Return the ids of the instances that have a host."""
    return [host["instance_id"] for host in json.loads(call("status", "--json").stdout)["hosts"]]


def status() -> str:
    """Return the stack's status."""
    return str(aws("cloudformation", "describe-stacks", "--stack-name", "one")["Stacks"][0]["StackStatus"])


def template() -> str:
    resources = nodes(1, data={"UserData": {"Fn::Base64": WORK}})
    resources["Nodes"]["Properties"]["MetricsCollection"] = [{"Granularity": "1Minute"}]
    resources["Empty"] = {
        "Type": "AWS::AutoScaling::ScalingPolicy",
        "Properties": {
            "AutoScalingGroupName": {"Ref": "Nodes"},
            "PolicyType": "StepScaling",
            "AdjustmentType": "ExactCapacity",
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 0}],
        },
    }

    def metric(id: str, namespace: str, name: str, statistic: str) -> dict[str, Any]:
        group = [{"Name": "AutoScalingGroupName", "Value": {"Ref": "Nodes"}}]
        named = {"Namespace": namespace, "MetricName": name, "Dimensions": group}
        return {"Id": id, "ReturnData": False, "MetricStat": {"Metric": named, "Period": 300, "Stat": statistic}}

    resources["Idle"] = {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "Metrics": [
                {"Id": "idle", "Expression": "IF(FILL(size, REPEAT) > 0, IF(FILL(cpu, REPEAT) >= 5, 0, 1), 0)"},
                metric("size", "AWS/AutoScaling", "GroupInServiceInstances", "Minimum"),
                metric("cpu", "AWS/EC2", "CPUUtilization", "Maximum"),
            ],
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": 0.5,
            "EvaluationPeriods": PERIODS,
            "TreatMissingData": "notBreaching",
            "AlarmActions": [{"Ref": "Empty"}],
        },
    }
    return json.dumps({"Resources": resources})


@pytest.fixture
def deployed() -> Iterator[None]:
    """Deploy a group with one busy host, and an alarm that terminates the host when it is idle."""
    try:
        call("start", "--metrics-speed", SPEED)
        aws("cloudformation", "create-stack", "--stack-name", "one", "--template-body", template())
        eventually(lambda: status() == "CREATE_COMPLETE")
        yield
    finally:
        call("stop")


def test_busy_host_is_kept_and_idle_host_is_terminated_and_may_return(deployed: None) -> None:
    eventually(lambda: len(hosts()) == 1)
    (worker,) = hosts()
    time.sleep(2.0 * PERIODS)  # twice the time of an idle group
    assert hosts() == [worker]
    call("exec", worker, "--", "touch", "/tmp/rest")
    eventually(lambda: hosts() == [], timeout_s=60)
    (alarm,) = aws("cloudwatch", "describe-alarms", "--alarm-name-prefix", "one-Idle")["MetricAlarms"]
    group = aws("autoscaling", "describe-auto-scaling-groups")["AutoScalingGroups"][0]["AutoScalingGroupName"]

    def state() -> str:
        (found,) = aws("cloudwatch", "describe-alarms", "--alarm-names", alarm["AlarmName"])["MetricAlarms"]
        return str(found["StateValue"])

    eventually(lambda: state() == "OK")
    aws("autoscaling", "set-desired-capacity", "--auto-scaling-group-name", group, "--desired-capacity", "1")
    eventually(lambda: len(hosts()) == 1)
    again = hosts()
    time.sleep(2.0 * PERIODS)
    assert hosts() == again
