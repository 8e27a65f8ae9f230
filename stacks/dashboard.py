"""The cluster's CloudWatch dashboard: a section per subject, and a graph per question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from stacks.config import WORKER
from stacks.metrics import ROLES, MetricSources

COLUMNS: Final = 24
"""Width of CloudWatch's grid."""
_WIDTH: Final = 8
_HEIGHT: Final = 6
_PERIOD_S: Final = 60
_ERRORS: Final = "/deepcdk: failed|Traceback|No space left on device|CUDA error|NCCL WARN/"

Lines = list[tuple[str, cloudwatch.Metric]]
"""The lines of one graph: labels and metrics."""


def rows(sources: MetricSources, alarms: list[cloudwatch.IAlarm]) -> list[list[cloudwatch.IWidget]]:
    """Return the rows of the dashboard: alarms, a section for each subject, and the newest errors.

    Graphs of parts that the cluster does not have are left out.
    """
    found: list[list[cloudwatch.IWidget]] = []
    if alarms:
        found.append([cloudwatch.AlarmStatusWidget(title="Alarms", alarms=alarms, width=COLUMNS, height=3)])
    sections = {
        "Nodes": _nodes(sources),
        "CPU and GPU": _processors(sources),
        "Network": _network(sources),
        "Disk": _disks(sources),
        "Shared file system": _files(sources),
        "NAT gateway": _gateways(sources),
    }
    for title, graphs in sections.items():
        if widgets := list(graphs):
            found += [[cloudwatch.TextWidget(markdown=f"## {title}", width=COLUMNS, height=1)], widgets]
    if sources.log_groups:
        found.append(
            [
                cloudwatch.LogQueryWidget(
                    title="Latest errors",
                    log_group_names=list(sources.log_groups),
                    query_lines=[
                        "fields @timestamp, @logStream, @message",
                        f"filter @message like {_ERRORS}",
                        "sort @timestamp desc",
                        "limit 50",
                    ],
                    width=COLUMNS,
                    height=_HEIGHT,
                )
            ]
        )
    return found


def _nodes(sources: MetricSources) -> Iterator[cloudwatch.IWidget]:
    counts = {
        "wanted": "GroupDesiredCapacity",
        "in service": "GroupInServiceInstances",
        "starting": "GroupPendingInstances",
    }
    yield _graph(
        "Nodes", [(f"{role}: {word}", sources.group(role, name)) for role in ROLES for word, name in counts.items()]
    )
    failed: Lines = [(role, sources.instances(role, "StatusCheckFailed", "Maximum")) for role in ROLES]
    yield _graph("Failed status checks", failed)
    if sources.node_metrics:
        yield _by_node(sources, "Memory by node", "mem_used_percent", "Maximum", percent=True)


def _processors(sources: MetricSources) -> Iterator[cloudwatch.IWidget]:
    yield _graph("CPU", [(role, sources.instances(role, "CPUUtilization")) for role in ROLES], percent=True)
    if sources.node_metrics:
        yield _by_node(sources, "CPU by node", "cpu_usage_active", percent=True)
    if sources.node_metrics and sources.gpus:
        utilization = "nvidia_smi_utilization_gpu"
        yield _by_node(sources, "GPU by node", utilization, percent=True)
        yield _by_node(sources, "Least used GPU by node (%)", utilization, "Minimum", percent=True)
        yield _by_node(sources, "GPU memory by node (MiB)", "nvidia_smi_memory_used", "Maximum")
        yield _by_node(sources, "Hottest GPU by node (°C)", "nvidia_smi_temperature_gpu", "Maximum")


def _network(sources: MetricSources) -> Iterator[cloudwatch.IWidget]:
    yield _graph("Network (bytes)", _of_instances(sources, {"in": "NetworkIn", "out": "NetworkOut"}))
    if sources.node_metrics:
        yield _by_node(sources, "Bytes sent by node", "net_bytes_sent", "Sum")
        limits = {"bandwidth in": "bw_in", "bandwidth out": "bw_out", "packets": "pps"}
        yield _graph(
            "Worker packets queued or dropped by EC2's limits (since boot)",
            [
                (word, sources.agents(WORKER, f"ethtool_{name}_allowance_exceeded", "Maximum"))
                for word, name in limits.items()
            ],
        )
    if sources.node_metrics and sources.efa:
        yield _by_node(sources, "EFA: bytes sent by node", "efa_tx_bytes", "Sum")
        yield _by_node(sources, "EFA: RDMA writes by node (bytes)", "efa_rdma_write_bytes", "Sum")
        yield _by_node(sources, "EFA: retransmitted bytes by node", "efa_retrans_bytes", "Sum")


def _disks(sources: MetricSources) -> Iterator[cloudwatch.IWidget]:
    yield _graph("Volumes (bytes)", _of_instances(sources, {"read": "EBSReadBytes", "written": "EBSWriteBytes"}))
    if sources.node_metrics:
        yield _by_node(sources, "Fullest disk by node (%)", "disk_used_percent", "Maximum", percent=True)


def _files(sources: MetricSources) -> Iterator[cloudwatch.IWidget]:
    traffic = {"read": "DataReadIOBytes", "written": "DataWriteIOBytes", "metadata": "MetadataIOBytes"}
    yield _graph("EFS: bytes", [(word, sources.files(name, "Sum")) for word, name in traffic.items()])
    limits = {"burst credits (bytes)": "BurstCreditBalance", "permitted (bytes/s)": "PermittedThroughput"}
    yield _graph(
        "EFS: burst credits and permitted throughput",
        [(word, sources.files(name, "Minimum")) for word, name in limits.items()],
    )
    share: Lines = [("share", sources.files("PercentIOLimit", "Maximum"))]
    yield _graph("EFS: share of the limit of operations (%)", share, percent=True)


def _gateways(sources: MetricSources) -> Iterator[cloudwatch.IWidget]:
    def lines(names: dict[str, str], statistic: str = "Sum") -> Lines:
        several = len(sources.nat_gateways) > 1
        return [
            (f"{word} {number}" if several else word, sources.gateway(nat, name, statistic))
            for number, nat in enumerate(sources.nat_gateways, start=1)
            for word, name in names.items()
        ]

    if sources.nat_gateways:
        yield _graph("NAT: bytes", lines({"out": "BytesOutToDestination", "in": "BytesInFromDestination"}))
        yield _graph("NAT: connections", lines({"open": "ActiveConnectionCount"}, "Maximum"))
        dropped = {"no free port": "ErrorPortAllocation", "dropped": "PacketsDropCount"}
        yield _graph("NAT: no free port, packets dropped", lines(dropped))


def _of_instances(sources: MetricSources, names: dict[str, str]) -> Lines:
    """Return the sums of EC2's metrics for each role, with labels.

    `names` maps a word for the label to the name of a metric.
    """
    return [(f"{role}: {word}", sources.instances(role, name, "Sum")) for role in ROLES for word, name in names.items()]


def _graph(title: str, lines: Lines, *, percent: bool = False) -> cloudwatch.GraphWidget:
    return _widget(title, [metric.with_(label=label) for label, metric in lines], percent)


def _by_node(
    sources: MetricSources, title: str, name: str, statistic: str = "Average", *, percent: bool = False
) -> cloudwatch.GraphWidget:
    """Return a graph with a line for each node. It finds the nodes by a search, because nodes change.

    `name`: name of the metric. With `percent`, the axis is from 0 to 100.
    """
    # A namespace with a slash must be quoted in a search.
    schema = f'{{"{sources.namespace}",InstanceId}} MetricName="{name}"'
    expression = f"SEARCH('{schema}', '{statistic}', {_PERIOD_S})"
    return _widget(
        title, [cloudwatch.MathExpression(expression=expression, label="", period=Duration.seconds(_PERIOD_S))], percent
    )


def _widget(title: str, left: list[cloudwatch.IMetric], percent: bool) -> cloudwatch.GraphWidget:
    axis = cloudwatch.YAxisProps(min=0, max=100) if percent else None
    return cloudwatch.GraphWidget(
        title=title, left=left, width=_WIDTH, height=_HEIGHT, period=Duration.seconds(_PERIOD_S), left_y_axis=axis
    )
