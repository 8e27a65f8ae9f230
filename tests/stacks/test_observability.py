"""Log groups, the agents' parameters and permissions, and the dashboard, in the template."""

from __future__ import annotations

import json
from typing import Any

from tests.stacks.clusters.template import Template, filled
from tests.stacks.conftest import Variant


def test_log_groups_of_cluster_without_retained_data_are_removed(variant: Variant) -> None:
    for name in ("NodeLogs", "RunLogs"):
        gone = variant("temporary").resources[name]
        assert (gone["DeletionPolicy"], gone["Properties"]["RetentionInDays"]) == ("Delete", 7)


def test_each_role_has_its_own_agent_configuration(variant: Variant) -> None:
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


def test_logs_without_metrics_need_no_permission_for_metrics(variant: Variant) -> None:
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


def test_dashboard_is_complete_without_agents(variant: Variant) -> None:
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


def test_nat_gateways_of_existing_vpc_are_not_monitored(variant: Variant) -> None:
    template = variant("existing VPC")
    assert not [id for id in template.of("AWS::CloudWatch::Alarm") if "NatPorts" in id]
    assert not [line for line in lines(template) if line[0] == "AWS/NATGateway"]
