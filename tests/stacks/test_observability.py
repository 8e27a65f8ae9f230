"""Log groups, the agents' parameters and permissions, and the dashboard, in the template."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from stacks.dashboard import COLUMNS
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template, filled
from tests.stacks.conftest import Variant


def test_a_cluster_without_it_has_nothing_of_it(template: Template) -> None:
    services = {item["Type"].split("::")[1] for item in template.resources.values()}
    assert not services & {"Logs", "SNS"}
    assert not template.of("AWS::CloudWatch::Dashboard")
    assert "DEEPCDK_AGENT" not in template.user_data("WorkerGroup")


def test_log_groups_expire_and_outlive_a_cluster_whose_data_is_kept(variant: Variant) -> None:
    for name in ("NodeLogs", "RunLogs"):
        kept, gone = (variant(each).resources[name] for each in ("GPU block", "temporary"))
        assert (kept["DeletionPolicy"], kept["Properties"]["RetentionInDays"]) == ("Retain", 30)
        assert (gone["DeletionPolicy"], gone["Properties"]["RetentionInDays"]) == ("Delete", 7)
        assert "LogGroupName" not in kept["Properties"], "a retained group would block the name for the next cluster"


def test_each_role_boots_with_its_own_configuration_of_the_agent(variant: Variant) -> None:
    whole, found = variant("GPU block"), {}
    for group in ("MasterGroup", "WorkerGroup"):
        (line,) = [line for line in whole.user_data(group).splitlines() if line.startswith("export DEEPCDK_AGENT=")]
        parameter = line.split("${")[1].split("}")[0]
        found[group] = json.loads(filled(whole.of("AWS::SSM::Parameter")[parameter]["Value"]))
    logs = {
        group: {entry["log_group_name"] for entry in document["logs"]["logs_collected"]["files"]["collect_list"]}
        for group, document in found.items()
    }
    assert logs == {"MasterGroup": {"NodeLogs", "RunLogs"}, "WorkerGroup": {"NodeLogs"}}
    assert {document["metrics"]["namespace"] for document in found.values()} == {"deepcdk/deepcdk"}
    efa = {group for group, document in found.items() if "efa" in document["metrics"]["metrics_collected"]}
    assert efa == {"WorkerGroup"}


def test_logs_alone_take_no_permission_for_metrics(variant: Variant) -> None:
    template = variant("temporary")
    policies = template.of("AWS::IAM::Policy")
    allowed = {name for name, each in policies.items() if "cloudwatch:PutMetricData" in json.dumps(each)}
    assert len(allowed) == template.text().count("cloudwatch:PutMetricData") == 1
    assert next(iter(allowed)).startswith("BoundsMasterStops"), "that a run is live, by the master alone"
    assert all('"metrics":' not in filled(item["Value"]) for item in template.of("AWS::SSM::Parameter").values())


def widgets(template: Template) -> list[dict[str, Any]]:
    (board,) = template.of("AWS::CloudWatch::Dashboard").values()
    found: list[dict[str, Any]] = json.loads(filled(board["DashboardBody"]))["widgets"]
    return found


def lines(template: Template) -> list[list[Any]]:
    """Return the metrics of all graphs."""
    return [line for widget in widgets(template) for line in widget["properties"].get("metrics", [])]


def test_widgets_fit_the_grid_and_do_not_overlap(variant: Variant) -> None:
    taken: set[tuple[int, int]] = set()
    for widget in widgets(variant("GPU block")):
        columns = range(widget["x"], widget["x"] + widget["width"])
        cells = {(x, y) for x in columns for y in range(widget["y"], widget["y"] + widget["height"])}
        assert columns[-1] < COLUMNS
        assert not taken & cells
        taken |= cells


def test_every_concern_is_shown_without_agents(variant: Variant) -> None:
    template = variant("watched")
    shown = {line[1] for line in lines(template) if isinstance(line[0], str)}
    assert shown >= {
        *("GroupInServiceInstances", "StatusCheckFailed", "CPUUtilization", "NetworkIn", "EBSReadBytes"),
        *("BurstCreditBalance", "PercentIOLimit", "ErrorPortAllocation"),
    }
    assert "deepcdk/deepcdk" not in str(lines(template))
    assert {widget["type"] for widget in widgets(template)} == {"text", "metric", "alarm"}


def test_agent_metrics_are_searched_by_node(variant: Variant) -> None:
    shown = str([line[0].get("expression") for line in lines(variant("GPU block")) if isinstance(line[0], dict)])
    for name in (
        *("cpu_usage_active", "mem_used_percent", "disk_used_percent", "net_bytes_sent"),
        *("nvidia_smi_utilization_gpu", "nvidia_smi_memory_used", "efa_tx_bytes", "efa_rdma_write_bytes"),
    ):
        assert f'{{"deepcdk/deepcdk",InstanceId}} MetricName="{name}"' in shown, name


def test_alarms_and_newest_errors_are_shown(variant: Variant) -> None:
    template = variant("GPU block")
    by_type = {widget["type"]: widget["properties"] for widget in widgets(template)}
    limits = {"GuardIdle"}  # alarms that enforce a limit are not for people
    assert len(by_type["alarm"]["alarms"]) == len(template.of("AWS::CloudWatch::Alarm").keys() - limits)
    assert by_type["log"]["query"].startswith("SOURCE 'NodeLogs' | SOURCE 'RunLogs' | fields")
    assert "deepcdk: failed" in by_type["log"]["query"]


def test_each_nat_gateway_of_the_cluster_is_watched(variant: Variant, inspected: Callable[[str], Inspected]) -> None:
    for template, gateways in ((inspected("everything").template, 2), (variant("existing VPC"), 0)):
        assert len([id for id in template.of("AWS::CloudWatch::Alarm") if "NatPorts" in id]) == gateways
        shown = [line for line in lines(template) if line[:2] == ["AWS/NATGateway", "ErrorPortAllocation"]]
        assert len(shown) == gateways
