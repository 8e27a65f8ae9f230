"""The CloudWatch agent's configuration: valid entries, and the data that the agent sends."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.cloudwatch_agent import BOOT_LOG, NODE, ROLE, AgentSettings, configuration

PLAIN = AgentSettings(
    role="worker",
    namespace="deepcdk/one",
    metrics=True,
    interval_s=60,
    gpus=False,
    efa=False,
    boot_logs="one-NodeLogs-0123456789AB",
    run_logs="",
    runs="/mnt/efs/runs",
)
# Sections of metrics and the names that the agent accepts in them, from its user guide.
KNOWN = {
    "cpu": {"usage_active", "usage_iowait"},
    "mem": {"used_percent"},
    "disk": {"used_percent", "inodes_free"},
    "net": {"bytes_sent", "bytes_recv", "drop_in", "drop_out"},
    "nvidia_gpu": {"utilization_gpu", "utilization_memory", "memory_used", "temperature_gpu", "power_draw"},
    "efa": {
        "efa_tx_bytes",
        "efa_rx_bytes",
        "efa_rx_dropped",
        "efa_rdma_read_bytes",
        "efa_rdma_write_bytes",
        "efa_retrans_bytes",
    },
}
settings = st.builds(
    AgentSettings,
    role=st.sampled_from(["master", "worker"]),
    namespace=st.from_regex(r"deepcdk/[a-z][a-z0-9-]{0,31}", fullmatch=True),
    metrics=st.booleans(),
    interval_s=st.integers(1, 3600),
    gpus=st.booleans(),
    efa=st.booleans(),
    boot_logs=st.sampled_from(["", "l" * 255]),
    run_logs=st.sampled_from(["", "r" * 255]),
    runs=st.just("/mnt/efs/runs"),
)


def document(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(configuration(dataclasses.replace(PLAIN, **changes)))
    return found


@given(settings)
def test_any_configuration_fits_standard_parameter_with_known_metrics(given: AgentSettings) -> None:
    text = configuration(given)
    assert len(text) <= 4096  # A larger parameter is an advanced one, which costs money.
    found = json.loads(text)
    assert set(found) <= {"agent", "metrics", "logs"}
    assert ("metrics" in found) == given.metrics
    for section, values in found.get("metrics", {}).get("metrics_collected", {}).items():
        if section != "ethtool":
            assert set(values["measurement"]) <= KNOWN[section]


@given(settings)
def test_every_metric_has_only_node_and_role_as_dimensions(given: AgentSettings) -> None:
    metrics = json.loads(configuration(given)).get("metrics")
    if metrics is None:
        return
    assert metrics["aggregation_dimensions"] == [[NODE], [ROLE]]
    for section, values in metrics["metrics_collected"].items():
        names = [f"ethtool_{name}" for name in values["metrics_include"]] if section == "ethtool" else None
        assert values["drop_original_metrics"] == (names or values["measurement"])
        if section != "efa":
            assert values["append_dimensions"] == {ROLE: given.role}


def test_gpus_and_efa_are_measured_if_present() -> None:
    plain = document()["metrics"]["metrics_collected"]
    rich = document(gpus=True, efa=True)["metrics"]["metrics_collected"]
    assert set(rich) - set(plain) == {"nvidia_gpu", "efa"}


def test_network_file_systems_are_not_measured_as_disks() -> None:
    ignored = document()["metrics"]["metrics_collected"]["disk"]["ignore_file_system_types"]
    assert {"nfs4", "lustre", "tmpfs"} <= set(ignored)


def test_each_node_has_a_log_stream_for_its_boot_log() -> None:
    (entry,) = document()["logs"]["logs_collected"]["files"]["collect_list"]
    assert entry["file_path"] == BOOT_LOG
    assert entry["log_group_name"] == PLAIN.boot_logs
    assert "{instance_id}" in entry["log_stream_name"]


def test_log_of_every_run_gets_a_stream_if_shipped() -> None:
    entries = document(role="master", run_logs="one-RunLogs")["logs"]["logs_collected"]["files"]["collect_list"]
    assert entries[1]["file_path"] == "/mnt/efs/runs/*/launcher.log"
    assert entries[1]["publish_multi_logs"] is True


@pytest.mark.parametrize(("changes", "absent"), [({"boot_logs": ""}, "logs"), ({"metrics": False}, "metrics")])
def test_only_requested_values_are_printed(changes: dict[str, Any], absent: str) -> None:
    assert absent not in document(**changes)
