"""The dashboard's body, held to CloudWatch's description of it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stacks.dashboard import COLUMNS, body
from stacks.metrics import MetricSources

ALARM = "arn:aws:cloudwatch:us-east-1:123456789012:alarm:one"
PLAIN = MetricSources(
    region="us-east-1",
    groups={"master": "one-MasterGroup-1", "worker": "one-WorkerGroup-1"},
    file_system="fs-0123456789abcdef0",
    nat_gateways=("nat-1",),
    namespace="deepcdk/one",
    node_metrics=False,
    gpus=False,
    efa=False,
    log_groups=(),
)
RICH = dataclasses.replace(PLAIN, node_metrics=True, gpus=True, efa=True, log_groups=("one-NodeLogs", "one-RunLogs"))
clusters = st.builds(
    dataclasses.replace,
    st.just(PLAIN),
    nat_gateways=st.sampled_from([(), ("nat-1",), ("nat-1", "nat-2")]),
    node_metrics=st.booleans(),
    gpus=st.booleans(),
    efa=st.booleans(),
    log_groups=st.sampled_from([(), ("one-NodeLogs",), RICH.log_groups]),
)


def check_widget(widget: dict[str, Any]) -> None:
    """Hold one widget to "Dashboard Body Structure and Syntax"."""
    assert set(widget) == {"type", "x", "y", "width", "height", "properties"}
    assert 0 <= widget["x"] < widget["x"] + widget["width"] <= COLUMNS
    assert widget["y"] >= 0
    assert 1 <= widget["height"] <= 1000
    properties = widget["properties"]
    match widget["type"]:
        case "text":
            assert properties["markdown"]
        case "alarm":
            assert all(arn.startswith("arn:") for arn in properties["alarms"])
        case "log":
            assert {"query", "region"} <= set(properties)
        case "metric":
            assert {"title", "metrics", "region", "period", "view"} <= set(properties)
            assert properties["period"] % 60 == 0
            assert properties["metrics"]
            for line in properties["metrics"]:
                check_line(line)
        case other:
            raise AssertionError(other)


def check_line(line: list[Any]) -> None:
    """Hold one line of a graph to "Metric Widget: Format for Each Metric in the Array"."""
    *names, rendering = line
    if "expression" in rendering:
        assert names == []
        assert re.fullmatch(
            r"SEARCH\('\{\"[^\"]+\",InstanceId\} MetricName=\"\w+\"', '\w+', \d+\)", line[0]["expression"]
        )
        return
    assert len(names) >= 2
    assert len(names) % 2 == 0, "namespace and name, then names and values of dimensions"
    assert all(isinstance(name, str) and name for name in names)
    assert rendering["stat"] in {"Average", "Minimum", "Maximum", "Sum"}


def cells(widget: dict[str, Any]) -> set[tuple[int, int]]:
    columns = range(widget["x"], widget["x"] + widget["width"])
    rows = range(widget["y"], widget["y"] + widget["height"])
    return set(itertools.product(columns, rows))


def metrics(sources: MetricSources) -> str:
    return json.dumps([widget["properties"].get("metrics") for widget in body(sources)["widgets"]])


@given(clusters, st.sampled_from([(), (ALARM,)]))
def test_any_clusters_dashboard_is_well_formed_and_nothing_lies_over_another(
    sources: MetricSources, alarms: tuple[str, ...]
) -> None:
    widgets = json.loads(json.dumps(body(sources, alarms)))["widgets"]
    assert 0 < len(widgets) <= 500
    taken: set[tuple[int, int]] = set()
    for widget in widgets:
        check_widget(widget)
        assert not taken & cells(widget)
        taken |= cells(widget)


def test_every_concern_has_a_widget_even_without_agents() -> None:
    shown = metrics(PLAIN)
    for name in (
        "GroupInServiceInstances",
        "StatusCheckFailed",
        "CPUUtilization",
        "NetworkIn",
        "EBSReadBytes",
        "BurstCreditBalance",
        "PercentIOLimit",
        "ErrorPortAllocation",
    ):
        assert f'"{name}"' in shown, name
    assert PLAIN.namespace not in shown


def test_the_agents_metrics_come_in_where_there_are_agents() -> None:
    shown = metrics(RICH)
    for name in (
        "cpu_usage_active",
        "mem_used_percent",
        "disk_used_percent",
        "net_bytes_sent",
        "nvidia_smi_utilization_gpu",
        "nvidia_smi_memory_used",
        "efa_tx_bytes",
        "efa_rdma_write_bytes",
    ):
        assert name in shown, name


def test_each_nat_gateway_has_a_line_and_a_foreign_vpc_has_none() -> None:
    two = metrics(dataclasses.replace(PLAIN, nat_gateways=("nat-1", "nat-2")))
    assert '"nat-1"' in two
    assert '"nat-2"' in two
    assert "NATGateway" not in metrics(dataclasses.replace(PLAIN, nat_gateways=()))


def test_the_newest_errors_are_looked_for_in_every_log_group() -> None:
    (widget,) = [widget for widget in body(RICH)["widgets"] if widget["type"] == "log"]
    query = widget["properties"]["query"]
    assert query.startswith("SOURCE 'one-NodeLogs' | SOURCE 'one-RunLogs' | fields")
    assert "deepcdk: failed" in query
