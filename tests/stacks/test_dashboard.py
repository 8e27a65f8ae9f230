"""The dashboard: it shows each concern, and what the agents measure if there are agents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stacks.dashboard import COLUMNS
from tests.stacks.clusters.template import Template, filled
from tests.stacks.conftest import Synthesise

EVERYTHING: dict[str, Any] = {"node_logs": True, "node_metrics": True, "dashboard": True, "alarms": True}


def widgets(template: Template) -> list[dict[str, Any]]:
    (board,) = template.of("AWS::CloudWatch::Dashboard").values()
    assert filled(board["DashboardName"]) == "deepcdk-AWS-Region"
    found: list[dict[str, Any]] = json.loads(filled(board["DashboardBody"]))["widgets"]
    return found


def metrics(template: Template) -> str:
    return json.dumps([widget["properties"].get("metrics") for widget in widgets(template)])


def cells(widget: dict[str, Any]) -> set[tuple[int, int]]:
    columns = range(widget["x"], widget["x"] + widget["width"])
    return {(x, y) for x in columns for y in range(widget["y"], widget["y"] + widget["height"])}


@pytest.fixture
def whole(synthesise: Synthesise) -> Template:
    return synthesise(**EVERYTHING, worker_instance_type="p5.48xlarge", efa=True)


def test_widgets_fit_the_grid_and_do_not_overlap(whole: Template) -> None:
    taken: set[tuple[int, int]] = set()
    for widget in widgets(whole):
        assert widget["x"] + widget["width"] <= COLUMNS
        assert not taken & cells(widget)
        taken |= cells(widget)


def test_every_concern_is_shown_without_agents(synthesise: Synthesise) -> None:
    template = synthesise(dashboard=True)
    shown = metrics(template)
    for name in (
        *("GroupInServiceInstances", "StatusCheckFailed", "CPUUtilization", "NetworkIn", "EBSReadBytes"),
        *("BurstCreditBalance", "PercentIOLimit", "ErrorPortAllocation"),
    ):
        assert f'"{name}"' in shown, name
    assert "deepcdk/deepcdk" not in shown
    assert {widget["type"] for widget in widgets(template)} == {"text", "metric"}


def test_agent_metrics_are_searched_by_node(whole: Template) -> None:
    shown = metrics(whole)
    for name in (
        *("cpu_usage_active", "mem_used_percent", "disk_used_percent", "net_bytes_sent"),
        *("nvidia_smi_utilization_gpu", "nvidia_smi_memory_used", "efa_tx_bytes", "efa_rdma_write_bytes"),
    ):
        search = f'SEARCH(\'{{"deepcdk/deepcdk",InstanceId}} MetricName="{name}"\''
        assert json.dumps(search)[1:-1] in shown, name


def test_alarms_and_newest_errors_are_shown(whole: Template) -> None:
    by_type = {widget["type"]: widget["properties"] for widget in widgets(whole)}
    bounds = {"GuardIdle"}  # an alarm that carries a limit out is not for people
    assert len(by_type["alarm"]["alarms"]) == len(whole.of("AWS::CloudWatch::Alarm").keys() - bounds)
    assert by_type["log"]["query"].startswith("SOURCE 'NodeLogs' | SOURCE 'RunLogs' | fields")
    assert "deepcdk: failed" in by_type["log"]["query"]


def test_each_nat_gateway_of_the_cluster_is_watched(synthesise: Synthesise) -> None:
    zones = {"availability_zones": 2, "nat_gateways": "one-per-zone"}
    existing = {
        "vpc_id": "vpc-0123456789abcdef0",
        "public_subnet_ids": ("subnet-00000000000000001",),
        "private_subnet_ids": ("subnet-00000000000000002",),
    }
    for values, gateways in ((zones, 2), (existing, 0)):
        template = synthesise(**values, alarms=True, dashboard=True)
        assert len([id for id in template.of("AWS::CloudWatch::Alarm") if "NatPorts" in id]) == gateways
        lines = [
            line
            for widget in widgets(template)
            for line in widget["properties"].get("metrics", [])
            if line[:2] == ["AWS/NATGateway", "ErrorPortAllocation"]
        ]
        assert len(lines) == gateways
