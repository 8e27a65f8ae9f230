"""The control groups that limit each host's processor time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localcloud.hosts.cpu_limit import PERIOD_US, CpuLimit, NoCpuControllerError, remove_groups


def make_version_1(root: Path) -> Path:
    (root / "cpu").mkdir(parents=True)
    (root / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    return root


def make_version_2(root: Path) -> Path:
    root.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    return root


def test_version_2_has_one_quota_file_and_enables_controller_from_root(tmp_path: Path) -> None:
    groups = make_version_2(tmp_path / "groups")
    procs = CpuLimit(cloud="one", cpus=0.25, groups=groups).make("i-1")
    assert procs == groups / "localcloud/one/i-1/cgroup.procs"
    assert (procs.parent / "cpu.max").read_text() == f"{PERIOD_US // 4} {PERIOD_US}"
    for above in (groups, groups / "localcloud", groups / "localcloud/one"):
        assert (above / "cgroup.subtree_control").read_text() == "+cpu"


def test_version_1_has_quota_in_two_files(tmp_path: Path) -> None:
    groups = make_version_1(tmp_path / "groups")
    procs = CpuLimit(cloud="one", cpus=1.5, groups=groups).make("i-1")
    assert procs == groups / "cpu/localcloud/one/i-1/cgroup.procs"
    assert (procs.parent / "cpu.cfs_quota_us").read_text() == str(PERIOD_US * 3 // 2)
    assert (procs.parent / "cpu.cfs_period_us").read_text() == str(PERIOD_US)


def test_hosts_are_spread_over_processors() -> None:
    limit = CpuLimit(cloud="one", cpus=0.2, present=frozenset({0, 1, 5}))
    assert [limit.processors(f"i-{n}") for n in range(4)] == [(0,), (1,), (5,), (0,)]
    assert limit.processors("i-1") == (1,), "as before, also after a reboot"
    limit.remove("i-1")
    assert limit.processors("i-4") == (1,)
    assert CpuLimit(cloud="one", cpus=1.5, present=frozenset({0, 1, 5})).processors("i-1") == (0, 1)
    assert CpuLimit(cloud="one", cpus=8.0, present=frozenset({0, 1})).processors("i-1") == (0, 1)


def test_machine_without_the_controller_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    with pytest.raises(NoCpuControllerError, match="no cpu controller"):
        CpuLimit(cloud="one", cpus=1.0, groups=tmp_path).check()
    remove_groups("one", tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for control groups")
def test_process_is_limited_by_its_group_which_is_removed() -> None:
    limit = CpuLimit(cloud=f"t{os.getpid()}", cpus=0.1)
    try:
        limit.check()
    except NoCpuControllerError as error:
        pytest.skip(str(error))
    assert not limit.directory.exists(), "the check leaves nothing"
    procs = limit.make("i-1")
    busy = subprocess.Popen(["sh", "-c", 'echo $$ >"$0" && while :; do :; done', str(procs)])
    try:
        time.sleep(2.0)
        fields = Path(f"/proc/{busy.pid}/stat").read_text().rpartition(")")[2].split()
        used_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        joins = (
            f"from localcloud.hosts.cpu_limit import *; join({busy.pid}); print(Path('/proc/self/cgroup').read_text())"
        )
        joined = subprocess.run([sys.executable, "-c", joins], capture_output=True, text=True, check=True).stdout
    finally:
        busy.kill()
        busy.wait()
        limit.remove("i-1")
    assert used_s < 0.6, "of 2 s and more"
    assert f"/localcloud/{limit.cloud}/i-1\n" in joined
    assert not limit.directory.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for control groups")
def test_remaining_groups_of_cloud_are_removed() -> None:
    limit = CpuLimit(cloud=f"t{os.getpid()}", cpus=0.1)
    try:
        limit.check()
    except NoCpuControllerError as error:
        pytest.skip(str(error))
    for instance in ("i-1", "i-2"):
        limit.make(instance)
    remove_groups(limit.cloud)
    assert not limit.directory.exists()
