"""The configuration of the CloudWatch agent on a node.

Sections, fields and metrics come from the agent's own schema, and from "Manually create or edit the CloudWatch agent
configuration file" in the CloudWatch user guide.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

# Dimensions of the agent's metrics: a single node, or all nodes of a role.
NODE: Final = "InstanceId"
ROLE: Final = "Role"

BOOT_LOG: Final = "/var/log/cloud-init-output.log"
_CPU: Final = ("usage_active", "usage_iowait")
_DISK: Final = ("used_percent", "inodes_free")
_NETWORK: Final = ("bytes_sent", "bytes_recv", "drop_in", "drop_out")
_GPU: Final = ("utilization_gpu", "utilization_memory", "memory_used", "temperature_gpu", "power_draw")
# Packets that were delayed or dropped by the instance type's allowances, as counted by the ENA driver since it started.
_ALLOWANCES: Final = (
    "bw_in_allowance_exceeded",
    "bw_out_allowance_exceeded",
    "pps_allowance_exceeded",
    "conntrack_allowance_exceeded",
)
# NCCL and libfabric move gradients by RDMA reads and writes if the device supports them.
_EFA: Final = (
    "efa_tx_bytes",
    "efa_rx_bytes",
    "efa_rdma_read_bytes",
    "efa_rdma_write_bytes",
    "efa_rx_dropped",
    "efa_retrans_bytes",
)
# File systems that are not on a disk of the node.
_NO_DISKS: Final = ("sysfs", "devtmpfs", "tmpfs", "squashfs", "nfs4", "lustre", "vfat")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of the agent for the nodes of one role. Texts may be CDK tokens."""

    role: str
    namespace: str
    """Namespace of the metrics. Each cluster has its own, so that clusters cannot write each other's metrics."""
    metrics: bool
    interval_s: int
    gpus: bool
    efa: bool
    boot_logs: str
    """Log group for boot logs; empty: boot logs are not shipped."""
    run_logs: str
    """Log group for the logs of runs, which only one node ships; empty: this node does not."""
    runs: str
    """Directory of the runs on the shared file system."""


def configuration(settings: AgentSettings) -> str:
    """Return the text of the agent's configuration file, as compact JSON."""
    # The agent runs as root, because other users cannot read the boot log and the runs.
    document: dict[str, Any] = {"agent": {"metrics_collection_interval": settings.interval_s, "run_as_user": "root"}}
    if settings.metrics:
        document["metrics"] = _metrics(settings)
    if settings.boot_logs or settings.run_logs:
        document["logs"] = {"logs_collected": {"files": {"collect_list": _logs(settings)}}}
    return json.dumps(document, separators=(",", ":"))


def _metrics(settings: AgentSettings) -> dict[str, Any]:
    """Return the metrics section.

    Each metric is sent only by node and by role, EFA's only by node, because AWS bills each combination of dimensions
    as a metric. An aggregated metric keeps its minimum and maximum, which still show the fullest disk and the least
    used GPU.
    """
    collected: dict[str, Any] = {
        "cpu": {**_measured(_CPU, settings), "totalcpu": True},
        "mem": _measured(("used_percent",), settings),
        "disk": {
            **_measured(_DISK, settings),
            "resources": ["*"],
            "ignore_file_system_types": list(_NO_DISKS),
        },
        "net": {**_measured(_NETWORK, settings), "resources": ["*"]},
        "ethtool": {
            "metrics_include": list(_ALLOWANCES),
            "append_dimensions": {ROLE: settings.role},
            "drop_original_metrics": [f"ethtool_{name}" for name in _ALLOWANCES],
        },
    }
    if settings.gpus:
        collected["nvidia_gpu"] = _measured(_GPU, settings)
    if settings.efa:  # this section does not accept more dimensions, so these metrics are only by node
        collected["efa"] = {"measurement": list(_EFA), "drop_original_metrics": list(_EFA)}
    return {
        "namespace": settings.namespace,
        "append_dimensions": {NODE: "${aws:InstanceId}"},
        "aggregation_dimensions": [[NODE], [ROLE]],
        "metrics_collected": collected,
    }


def _measured(names: tuple[str, ...], settings: AgentSettings) -> dict[str, Any]:
    """Return the settings for metrics of one section. The agent adds the section to each name: `cpu_usage_active`."""
    return {
        "measurement": list(names),
        "append_dimensions": {ROLE: settings.role},
        "drop_original_metrics": list(names),
    }


def _logs(settings: AgentSettings) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if settings.boot_logs:
        found.append(
            {
                "file_path": BOOT_LOG,
                "log_group_name": settings.boot_logs,
                "log_stream_name": "{instance_id}/boot",
            }
        )
    if settings.run_logs:
        found.append(
            {
                "file_path": f"{settings.runs}/*/launcher.log",
                "log_group_name": settings.run_logs,
                # The agent appends the file's path, which contains the run's ID.
                "log_stream_name": "{instance_id}/run",
                "publish_multi_logs": True,
            }
        )
    return found
