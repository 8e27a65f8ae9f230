"""A cluster that tells of itself: boot logs, metrics and a dashboard, from hosts that really boot."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

SETTINGS = (
    "name=told",
    "ssh_cidr=100.64.0.2/32",
    "retain_data=false",
    "workers=1",
    "node_logs=true",
    "node_metrics=true",
    "metrics_interval_s=1",
    "dashboard=true",
    "budget_usd=1000",
)


@pytest.fixture(scope="module")
def told(cloud: EmbeddedCloud) -> Iterator[EmbeddedCloud]:
    """Deploy a second cluster beside the others, and delete it."""
    cloud.laptop("fab", "up", "--yes", *(word for setting in SETTINGS for word in ("--set", setting)))
    yield cloud
    cloud.aws("cloudformation", "delete-stack", "--stack-name", "told")
    cloud.laptop("aws", "cloudformation", "wait", "stack-delete-complete", "--stack-name", "told")
    assert not log_groups(cloud)


def log_groups(cloud: EmbeddedCloud) -> list[str]:
    found = cloud.aws("logs", "describe-log-groups", "--log-group-name-prefix", "told-")["logGroups"]
    return [group["logGroupName"] for group in found]


def nodes(cloud: EmbeddedCloud) -> set[str]:
    pages = cloud.aws("ec2", "describe-instances", "--filters", "Name=tag:deepcdk:cluster,Values=told")["Reservations"]
    return {instance["InstanceId"] for page in pages for instance in page["Instances"]}


def test_every_nodes_boot_log_arrives_to_its_last_line(told: EmbeddedCloud) -> None:
    (group,) = [name for name in log_groups(told) if "NodeLogs" in name]
    last = "cloud-init: user data ended with exit code 0"

    def arrived() -> set[str]:
        events = told.aws("logs", "filter-log-events", "--log-group-name", group)["events"]
        return {event["logStreamName"] for event in events if event["message"] == last}

    wanted = {f"{id}/boot" for id in nodes(told)}
    assert len(wanted) == 2
    eventually(lambda: arrived() == wanted, what=arrived)


def test_every_node_sends_metrics_of_its_own(told: EmbeddedCloud) -> None:
    def senders() -> set[str]:
        metrics = told.aws("cloudwatch", "list-metrics", "--namespace", "deepcdk/told")["Metrics"]
        dimensions = [
            each for metric in metrics if metric["MetricName"] == "cpu_usage_active" for each in metric["Dimensions"]
        ]
        return {dimension["Value"] for dimension in dimensions}

    eventually(lambda: senders() == nodes(told) | {"master", "worker"}, what=senders)


def test_the_dashboard_is_kept_with_every_reference_filled_in(told: EmbeddedCloud) -> None:
    body = told.aws("cloudwatch", "get-dashboard", "--dashboard-name", "told-us-east-1")["DashboardBody"]
    text = json.dumps(json.loads(body))
    assert "Token[" not in text
    assert all(name in text for name in log_groups(told))


def test_a_budget_that_holds_nobody_back_has_nothing_to_release(told: EmbeddedCloud) -> None:
    done = told.laptop("fab", "release", "--json", "--set", "name=told")
    assert json.loads(done.stdout) == {"stack": "told", "released": False}
    assert "the budget holds no workers back" in done.stderr
