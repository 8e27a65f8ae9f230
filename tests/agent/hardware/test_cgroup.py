from __future__ import annotations

import math
from pathlib import Path

import pytest

from agent.hardware.cgroup import parse_cpu_max, read_limits
from tests.agent.hardware.machines import RECORDED, write

CPU = "sys/fs/cgroup/cpu,cpuacct"


def test_the_recorded_machine_grants_all_its_cpus(tmp_path: Path) -> None:
    limits = read_limits(write(tmp_path, RECORDED))
    assert limits.quota_cpus == math.inf
    assert limits.cpus == frozenset({0, 1})


def test_the_tightest_group_of_version_2_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/system.slice/train.service",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-7",
        "sys/fs/cgroup/system.slice/cpu.max": "350000 100000",
        "sys/fs/cgroup/system.slice/train.service/cpu.max": "max 100000",
        "sys/fs/cgroup/system.slice/train.service/cpuset.cpus.effective": "2-3",
    }
    limits = read_limits(write(tmp_path, files))
    assert limits.quota_cpus == 3.5
    assert limits.cpus == frozenset({2, 3})


def test_a_container_that_sees_its_group_as_the_root_is_limited_all_the_same(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/docker/abc", "sys/fs/cgroup/cpu.max": "200000 100000"}
    assert read_limits(write(tmp_path, files)).quota_cpus == 2


def test_version_1_is_read_where_controllers_share_a_mount(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/batch\n3:cpuset:/batch",
        f"{CPU}/batch/cpu.cfs_quota_us": "150000",
        f"{CPU}/batch/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpuset/batch/cpuset.cpus": "4-5",
    }
    limits = read_limits(write(tmp_path, files))
    assert limits.quota_cpus == 1.5
    assert limits.cpus == frozenset({4, 5})


def test_a_machine_without_groups_and_one_with_damaged_files_limit_nothing(tmp_path: Path) -> None:
    assert read_limits(tmp_path / "none").quota_cpus == math.inf
    files = {
        "proc/self/cgroup": "nonsense\n0::relative\n0::/a/../..\n1:cpu:/",
        "sys/fs/cgroup/cpu.max": "9 9",
        "sys/fs/cgroup/cpuset.cpus.effective": "x",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "soon",
    }
    limits = read_limits(write(tmp_path / "damaged", files))
    assert (limits.quota_cpus, limits.cpus) == (math.inf, None)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("max 100000", math.inf), ("-1 100000", math.inf), ("", math.inf), ("0 0", math.inf), ("50000 100000", 0.5)],
)
def test_a_quota_is_time_over_period(text: str, cpus: float) -> None:
    assert parse_cpu_max(text) == cpus
