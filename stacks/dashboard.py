"""The body of the cluster's dashboard ("Dashboard Body Structure and Syntax" of CloudWatch)."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from stacks.config import WORKER
from stacks.metrics import ROLES, Metric, MetricSources

# CloudWatch's grid is 24 columns wide.
COLUMNS: Final = 24
_WIDTH: Final = 8
_HEIGHT: Final = 6
_PERIOD_S: Final = 60
_ERRORS: Final = "/deepcdk: failed|Traceback|No space left on device|CUDA error|NCCL WARN/"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """One graph: lines, each a metric with its label, or one search that finds a line for each node."""

    title: str
    lines: tuple[tuple[str, Metric], ...] = ()
    search: str = ""
    """A metric of the agents, with one line for each node."""
    statistic: str = "Average"
    """Statistic of the search."""
    percent: bool = False
    """Fix the axis at 0 to 100."""


def body(sources: MetricSources, alarms: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the dashboard: a section for each concern. `alarms`: ARNs of the cluster's alarms."""
    widgets: list[dict[str, Any]] = []
    y = 0
    if alarms:
        widgets.append(_place({"type": "alarm", "properties": {"title": "Alarms", "alarms": list(alarms)}}, 0, y, 3))
        y += 3
    for title, charts in _sections(sources):
        widgets.append(_place({"type": "text", "properties": {"markdown": f"## {title}"}}, 0, y, 1))
        y += 1
        for index, chart in enumerate(charts):
            column, row = index % (COLUMNS // _WIDTH), index // (COLUMNS // _WIDTH)
            widget = {"type": "metric", "properties": _chart(chart, sources)}
            widgets.append(_place(widget, column * _WIDTH, y + row * _HEIGHT, _HEIGHT, _WIDTH))
        y += _HEIGHT * -(-len(charts) // (COLUMNS // _WIDTH))
    if sources.log_groups:
        widgets.append(_place({"type": "log", "properties": _errors(sources)}, 0, y, _HEIGHT))
    return {"widgets": widgets}


def _place(widget: dict[str, Any], x: int, y: int, height: int, width: int = COLUMNS) -> dict[str, Any]:
    return {**widget, "x": x, "y": y, "width": width, "height": height}


def _sections(sources: MetricSources) -> list[tuple[str, list[Chart]]]:
    found = [
        ("Nodes", _nodes(sources)),
        ("CPU and GPU", _processors(sources)),
        ("Network", _network(sources)),
        ("Disk", _disks(sources)),
        ("Shared file system", _files(sources)),
    ]
    if sources.nat_gateways:
        found.append(("NAT gateway", _gateways(sources)))
    return found


def _nodes(sources: MetricSources) -> list[Chart]:
    wanted = [
        (f"{role}: {word}", sources.group(role, name))
        for role in ROLES
        for word, name in (
            ("wanted", "GroupDesiredCapacity"),
            ("in service", "GroupInServiceInstances"),
            ("starting", "GroupPendingInstances"),
        )
    ]
    failed = [(role, sources.instances(role, "StatusCheckFailed", "Maximum")) for role in ROLES]
    found = [
        Chart(title="Nodes", lines=tuple(wanted)),
        Chart(title="Failed status checks", lines=tuple(failed)),
    ]
    if sources.node_metrics:
        found.append(Chart(title="Memory by node", search="mem_used_percent", statistic="Maximum", percent=True))
    return found


def _processors(sources: MetricSources) -> list[Chart]:
    cpu = [(role, sources.instances(role, "CPUUtilization")) for role in ROLES]
    found = [Chart(title="CPU", lines=tuple(cpu), percent=True)]
    if sources.node_metrics:
        found.append(Chart(title="CPU by node", search="cpu_usage_active", percent=True))
    if sources.node_metrics and sources.gpus:
        found += [
            Chart(title="GPU by node", search="nvidia_smi_utilization_gpu", percent=True),
            Chart(title="Idlest GPU by node", search="nvidia_smi_utilization_gpu", statistic="Minimum", percent=True),
            Chart(title="GPU memory by node (MiB)", search="nvidia_smi_memory_used", statistic="Maximum"),
            Chart(title="Hottest GPU by node (°C)", search="nvidia_smi_temperature_gpu", statistic="Maximum"),
        ]
    return found


def _network(sources: MetricSources) -> list[Chart]:
    traffic = [
        (f"{role}: {word}", sources.instances(role, name, "Sum"))
        for role in ROLES
        for word, name in (("in", "NetworkIn"), ("out", "NetworkOut"))
    ]
    found = [Chart(title="Network (bytes)", lines=tuple(traffic))]
    if sources.node_metrics:
        found.append(Chart(title="Bytes sent by node", search="net_bytes_sent", statistic="Sum"))
        held = [
            (word, sources.agents(WORKER, f"ethtool_{name}_allowance_exceeded", "Maximum"))
            for word, name in (("bandwidth in", "bw_in"), ("bandwidth out", "bw_out"), ("packets", "pps"))
        ]
        found.append(Chart(title="Workers' packets held back by EC2's limits (since boot)", lines=tuple(held)))
    if sources.node_metrics and sources.efa:
        found += [
            Chart(title="EFA: bytes sent by node", search="efa_tx_bytes", statistic="Sum"),
            Chart(title="EFA: RDMA writes by node (bytes)", search="efa_rdma_write_bytes", statistic="Sum"),
            Chart(title="EFA: retransmitted bytes by node", search="efa_retrans_bytes", statistic="Sum"),
        ]
    return found


def _disks(sources: MetricSources) -> list[Chart]:
    volumes = [
        (f"{role}: {word}", sources.instances(role, name, "Sum"))
        for role in ROLES
        for word, name in (("read", "EBSReadBytes"), ("written", "EBSWriteBytes"))
    ]
    found = [Chart(title="Volumes (bytes)", lines=tuple(volumes))]
    if sources.node_metrics:
        found.append(
            Chart(title="Fullest disk by node (%)", search="disk_used_percent", statistic="Maximum", percent=True)
        )
    return found


def _files(sources: MetricSources) -> list[Chart]:
    traffic = (
        ("read", sources.files("DataReadIOBytes", "Sum")),
        ("written", sources.files("DataWriteIOBytes", "Sum")),
        ("metadata", sources.files("MetadataIOBytes", "Sum")),
    )
    limits = (
        ("burst credits (bytes)", sources.files("BurstCreditBalance", "Minimum")),
        ("permitted (bytes/s)", sources.files("PermittedThroughput", "Minimum")),
    )
    return [
        Chart(title="EFS: bytes", lines=traffic),
        Chart(title="EFS: burst credits and permitted throughput", lines=limits),
        Chart(
            title="EFS: share of the limit of operations (%)",
            lines=(("share", sources.files("PercentIOLimit", "Maximum")),),
            percent=True,
        ),
    ]


def _gateways(sources: MetricSources) -> list[Chart]:
    def lines(*names: tuple[str, str, str]) -> tuple[tuple[str, Metric], ...]:
        return tuple(
            (f"{word} {number}" if len(sources.nat_gateways) > 1 else word, sources.gateway(nat, name, statistic))
            for number, nat in enumerate(sources.nat_gateways, start=1)
            for word, name, statistic in names
        )

    return [
        Chart(
            title="NAT: bytes",
            lines=lines(("out", "BytesOutToDestination", "Sum"), ("in", "BytesInFromDestination", "Sum")),
        ),
        Chart(title="NAT: connections", lines=lines(("open", "ActiveConnectionCount", "Maximum"))),
        Chart(
            title="NAT: no port left, packets dropped",
            lines=lines(("no port left", "ErrorPortAllocation", "Sum"), ("dropped", "PacketsDropCount", "Sum")),
        ),
    ]


def _chart(chart: Chart, sources: MetricSources) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "title": chart.title,
        "view": "timeSeries",
        "region": sources.region,
        "period": _PERIOD_S,
        "metrics": [_line(label, metric) for label, metric in chart.lines],
    }
    if chart.search:
        properties["metrics"] = [[{"expression": _search(chart, sources), "id": "nodes", "label": ""}]]
    if chart.percent:
        properties["yAxis"] = {"left": {"min": 0, "max": 100}}
    return properties


def _line(label: str, metric: Metric) -> list[Any]:
    dimensions = [text for pair in metric.dimensions.items() for text in pair]
    return [metric.namespace, metric.name, *dimensions, {"stat": metric.statistic, "label": label}]


def _search(chart: Chart, sources: MetricSources) -> str:
    """Return a search over nodes, which come and go; a name with a slash is quoted in it."""
    schema = f'{{"{sources.namespace}",InstanceId}} MetricName="{chart.search}"'
    return f"SEARCH('{schema}', '{chart.statistic}', {_PERIOD_S})"


def _errors(sources: MetricSources) -> dict[str, Any]:
    groups = " | ".join(f"SOURCE '{name}'" for name in sources.log_groups)
    query = f"{groups} | fields @timestamp, @logStream, @message | filter @message like {_ERRORS}"
    return {
        "title": "What went wrong, newest first",
        "region": sources.region,
        "view": "table",
        "query": f"{query} | sort @timestamp desc | limit 50",
    }
