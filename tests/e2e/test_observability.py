"""A second cluster on the shared cloud: boot logs, metrics, a dashboard, and Session Manager instead of open ports."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.e2e.test_network import CLOSED, probe
from tests.waiting import eventually

SETTINGS = (
    "name=told",
    "ssh_access=session-manager",
    "vpc_cidr=10.7.0.0/20",
    "retain_data=false",
    "workers=1",
    "node_logs=true",
    "node_metrics=true",
    "metrics_interval_s=1",
    "dashboard=true",
    "alarms=true",
    "alarm_emails=ops@example.com",
    "budget_usd=1000",
)


def fab(cloud: EmbeddedCloud, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a task with this cluster's settings, which come before the dashes."""
    chosen = [word for setting in SETTINGS for word in ("--set", setting)]
    return cloud.laptop("fab", *words[:1], *chosen, *words[1:], check=check)


@pytest.fixture(scope="module")
def told(cloud: EmbeddedCloud) -> Iterator[EmbeddedCloud]:
    """Deploy a second cluster next to the others, and delete it afterwards."""
    fab(cloud, "up", "--yes")
    yield cloud
    fab(cloud, "down", "--yes")
    assert not log_groups(cloud)


def log_groups(cloud: EmbeddedCloud) -> list[str]:
    found = cloud.aws("logs", "describe-log-groups", "--log-group-name-prefix", "told-")["logGroups"]
    return [group["logGroupName"] for group in found]


def nodes(cloud: EmbeddedCloud) -> set[str]:
    pages = cloud.aws("ec2", "describe-instances", "--filters", "Name=tag:deepcdk:cluster,Values=told")["Reservations"]
    return {instance["InstanceId"] for page in pages for instance in page["Instances"]}


def test_tasks_reach_a_cluster_without_an_open_port(told: EmbeddedCloud) -> None:
    (master,), (worker,) = told.instances("master", "told"), told.instances("worker", "told")
    assert not any("PublicIpAddress" in node for node in (master, worker))
    names = {"ip-" + node["PrivateIpAddress"].replace(".", "-") for node in (master, worker)}
    assert {
        fab(told, "run", "--", "hostname").stdout.split()[-1],
        fab(told, "run", "--master", "--", "hostname").stdout.split()[-1],
    } == names
    for place in ("run", "outside"):
        assert probe(told, [place], master["PrivateIpAddress"], 22) == CLOSED
    known = told.aws("ssm", "describe-instance-information")["InstanceInformationList"]
    assert [each["InstanceId"] for each in known] == [master["InstanceId"]]
    told.laptop("sh", "-c", "fab ssh-config --set name=told --set ssh_access=session-manager")
    done = told.laptop("sh", "-c", "ssh -F ~/.ssh/deepcdk/told.config told-worker1 hostname")
    assert done.stdout.split() == ["ip-" + worker["PrivateIpAddress"].replace(".", "-")]


def test_every_nodes_boot_log_arrives_to_its_last_line(told: EmbeddedCloud) -> None:
    (group,) = [name for name in log_groups(told) if "NodeLogs" in name]
    last = "cloud-init: user data ended with exit code 0"

    def arrived() -> set[str]:
        events = told.aws("logs", "filter-log-events", "--log-group-name", group)["events"]
        return {event["logStreamName"] for event in events if event["message"] == last}

    wanted = {f"{id}/boot" for id in nodes(told)}
    assert len(wanted) == 2
    eventually(lambda: arrived() == wanted, what=arrived)


def test_every_node_sends_its_own_metrics(told: EmbeddedCloud) -> None:
    def senders() -> set[str]:
        metrics = told.aws("cloudwatch", "list-metrics", "--namespace", "deepcdk/told")["Metrics"]
        dimensions = [
            each for metric in metrics if metric["MetricName"] == "cpu_usage_active" for each in metric["Dimensions"]
        ]
        return {dimension["Value"] for dimension in dimensions}

    eventually(lambda: senders() == nodes(told) | {"master", "worker"}, what=senders)


def test_dashboard_is_stored_with_resolved_references(told: EmbeddedCloud) -> None:
    body = told.aws("cloudwatch", "get-dashboard", "--dashboard-name", "told-us-east-1")["DashboardBody"]
    text = json.dumps(json.loads(body))
    assert "Token[" not in text
    assert all(name in text for name in log_groups(told))


def test_budget_below_its_limit_has_nothing_to_release(told: EmbeddedCloud) -> None:
    done = fab(told, "release", "--json")
    assert json.loads(done.stdout) == {"stack": "told", "released": False}
    assert "the budget does not block workers" in done.stderr


def test_topic_of_the_alarms_reports_a_run(told: EmbeddedCloud, tmp_path: Path) -> None:
    (stack,) = told.ask("cloudformation", "describe_stacks", StackName="told")["Stacks"]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}
    topic = outputs["AlarmTopicArns"]
    (mail,) = told.ask("sns", "list_subscriptions_by_topic", TopicArn=topic)["Subscriptions"]
    assert (mail["Protocol"], mail["Endpoint"]) == ("email", "ops@example.com")
    queue = told.ask("sqs", "create_queue", QueueName="events")["QueueUrl"]
    try:
        of_queue = told.ask("sqs", "get_queue_attributes", QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
        told.ask("sns", "subscribe", TopicArn=topic, Protocol="sqs", Endpoint=of_queue["QueueArn"])
        (tmp_path / "program.py").touch()
        words = ("--payload", str(tmp_path), "--entry", "false", "--notify", "topic", "--skip-preflight")
        done = fab(told, "train", "--nodes", "1", "--yes", *words, check=False)
        assert done.returncode == 1
        found = re.search(r"run (\S+) failed", done.stdout + done.stderr)
        assert found is not None, done.stderr

        def messages() -> list[dict[str, str]]:
            received = told.ask("sqs", "receive_message", QueueUrl=queue, MaxNumberOfMessages=10)
            return [json.loads(each["Body"]) for each in received.get("Messages", [])]

        got = eventually(lambda: [each for each in messages() if each["Subject"].startswith("deepcdk: ")])
        assert got[0]["Subject"] == f"deepcdk: {found[1]} failed"
        event = json.loads(got[0]["Message"])
        assert (event["event"], event["run_id"], event["state"]) == ("failed", found[1], "failed")
        assert "could not report" not in fab(told, "show", found[1]).stdout
        # The alarm for idle workers reads this metric. The master's role may publish it.
        wanted = {"Namespace": "deepcdk/told", "MetricName": "LiveRuns"}
        assert eventually(lambda: told.ask("cloudwatch", "list_metrics", **wanted)["Metrics"])
    finally:
        told.ask("sqs", "delete_queue", QueueUrl=queue)
