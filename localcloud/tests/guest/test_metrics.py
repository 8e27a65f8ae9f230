"""The metrics of the stand-in for the CloudWatch agent, and their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localcloud.guest.cloudwatch_agent.metrics import Sample, data, figures, read_network, take

NETWORK = """Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  999      9    0    0    0     0          0         0   999      9    0    0    0     0       0          0
  eth0: 1000     10    0    1    0     0          0         0  2000     20    0    2    0     0       0          0
"""
CONFIG = {
    "append_dimensions": {"InstanceId": "${aws:InstanceId}"},
    "aggregation_dimensions": [["InstanceId"], ["Role"]],
    "metrics_collected": {
        "cpu": {
            "measurement": ["usage_active", "usage_iowait"],
            "append_dimensions": {"Role": "worker"},
            "drop_original_metrics": ["usage_active", "usage_iowait"],
        },
        "nvidia_gpu": {"measurement": ["utilization_gpu"]},
    },
}


def sample(at_s: float, **changes: float) -> Sample:
    network = {"bytes_recv": 0, "drop_in": 0, "bytes_sent": int(changes.get("sent", 0)), "drop_out": 0}
    return Sample(
        at_s=at_s, cpu_s=changes.get("cpu_s", 0.0), memory_bytes=250, network=network, disk_percent=40.0, inodes_free=7
    )


def test_loopback_does_not_count_as_a_network() -> None:
    assert read_network(NETWORK) == {"bytes_recv": 1000, "drop_in": 1, "bytes_sent": 2000, "drop_out": 2}


@pytest.mark.parametrize("text", ["", "no table at all\n", "eth0: 1 2 3\n"])
def test_truncated_table_counts_nothing(text: str) -> None:
    assert set(read_network(text).values()) == {0}


def test_processor_time_is_a_share_of_all_processors() -> None:
    values = figures(sample(0), sample(10, cpu_s=10.0, sent=500), cpus=2, memory_bytes=1000)
    assert values["cpu"]["usage_active"] == 50.0
    assert values["mem"]["used_percent"] == 25.0
    assert values["net"]["bytes_sent"] == 500.0
    assert values["disk"] == {"used_percent": 40.0, "inodes_free": 7.0}


@pytest.mark.parametrize(("cpu_s", "percent"), [(-3.0, 0.0), (99.0, 100.0)])
def test_started_and_exited_processes_keep_load_within_bounds(cpu_s: float, percent: float) -> None:
    values = figures(sample(0), sample(10, cpu_s=cpu_s), cpus=2, memory_bytes=1000)
    assert values["cpu"]["usage_active"] == percent


def test_metrics_are_sent_only_by_node_and_role() -> None:
    sent = list(data(CONFIG, {"cpu": {"usage_active": 50.0}}, "i-1"))
    assert [(each.name, each.dimensions) for each in sent] == [
        ("cpu_usage_active", {"InstanceId": "i-1"}),
        ("cpu_usage_active", {"Role": "worker"}),
    ]
    assert all(each.values == [50.0] and each.unit == "Percent" for each in sent)


def test_this_machine_can_be_measured() -> None:
    before = take(Path("/proc"), Path("/"), 0.0)
    sum(range(10**6))
    now = take(Path("/proc"), Path("/"), 1.0)
    values = figures(before, now, cpus=os.cpu_count() or 1, memory_bytes=10**15)
    assert now.cpu_s > 0
    assert 0 <= values["disk"]["used_percent"] <= 100
    assert values["mem"]["used_percent"] > 0
