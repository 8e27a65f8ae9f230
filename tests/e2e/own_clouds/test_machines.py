"""Boot a cluster of QEMU machines with Debian's kernel, systemd and NFS client, and a file server.

Run it with `make machines`; emulated, it takes half an hour. The tests depend on each other and run in order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cluster import demo
from tests.e2e.conftest import KEPT_CLOUD, EmbeddedCloud, start_cloud
from tests.waiting import eventually

WANTED: Final = "DEEPCDK_MACHINES"
"""Set to 1 by `make machines`; otherwise no test in this file runs."""
IMAGE: Final = "debian-12"
SLOW_S: Final = 1800.0
"""How long a step may take on emulated machines."""
SEMAPHORE: Final = "/var/lib/cloud/instance/sem/config_scripts_user"
"""cloud-init's marker that user data has run on this instance."""

ADDS_UP: Final = """\
import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
print("the sum of", hvd.size(), "ranks is", int(hvd.allreduce(tf.constant([hvd.rank() + 1.0]), op=hvd.Sum)[0]))
"""

pytestmark = [
    pytest.mark.skipif(os.environ.get(WANTED) != "1", reason="half an hour in machines: run `make machines`"),
    pytest.mark.timeout(2 * SLOW_S),
]


@pytest.fixture(scope="module")
def cluster_of_machines() -> Iterator[EmbeddedCloud]:
    """Deploy a master and two workers with a file server, or use the cloud in DEEPCDK_CLOUD unchanged."""
    if kept := os.environ.get(KEPT_CLOUD):
        yield EmbeddedCloud(name=kept)
        return
    with start_cloud(f"vm{os.getpid()}", "--hosts", "vm", timeout_s=SLOW_S) as cloud:
        fab(cloud, "up", "--yes")
        yield cloud


def fab(cloud: EmbeddedCloud, *words: str) -> str:
    """Run a task with the settings for a slow cluster on Debian; return its output."""
    settings = (*demo.settings(2, IMAGE), "--set", "ready_timeout_min=60")
    own = words.index("--") if "--" in words else len(words)
    command = ("env", "CDK_VALIDATION=false", "fab", *words[:own], *settings, *words[own:])
    return cloud.laptop(*command, timeout_s=SLOW_S).stdout


def on(cloud: EmbeddedCloud, instance_id: str, script: str) -> str:
    """Run a shell script as root in a machine; return its output."""
    return cloud.localcloud("exec", instance_id, "--", "bash", "-c", script).stdout


def ids(cloud: EmbeddedCloud, *roles: str) -> list[str]:
    return [instance["InstanceId"] for role in roles or ("master", "worker") for instance in cloud.instances(role)]


def registered(cloud: EmbeddedCloud) -> dict[str, str]:
    """Return the master's list of nodes: names by instance id."""
    rows = [line.split() for line in on(cloud, ids(cloud, "master")[0], "cat /opt/deeplearning/nodes").splitlines()]
    return {row[2]: row[0] for row in rows}


def test_every_node_is_a_machine_set_up_by_cloud_init(cluster_of_machines: EmbeddedCloud) -> None:
    boots = set()
    for instance in ids(cluster_of_machines):
        said = on(cluster_of_machines, instance, "uname -r; systemd-detect-virt; cat /proc/1/comm; id -un 1000").split()
        assert said[0].endswith("-cloud-amd64")
        assert said[1:] == ["amazon", "systemd", "admin"]
        result = on(
            cluster_of_machines, instance, "cloud-init status --wait >/dev/null; cat /run/cloud-init/result.json"
        )
        assert ("DataSourceEc2" in result, '"errors": []' in result) == (True, True), result
        boots.add(on(cluster_of_machines, instance, "cat /proc/sys/kernel/random/boot_id"))
    assert len(boots) == 3
    hosts = json.loads(cluster_of_machines.localcloud("status", "--json").stdout)["hosts"]
    assert [host["user_data"] for host in hosts] == ["done"] * 3


def test_network_is_configured_by_dhcp(cluster_of_machines: EmbeddedCloud) -> None:
    for instance in ids(cluster_of_machines):
        assert "proto dhcp" in on(cluster_of_machines, instance, "ip route show default")


def test_shared_file_system_is_nfs_4_1_with_locks(cluster_of_machines: EmbeddedCloud) -> None:
    one, other = ids(cluster_of_machines, "worker")
    for instance in (one, other):
        assert "vers=4.1" in on(cluster_of_machines, instance, "findmnt -no OPTIONS -t nfs4 /mnt/efs")
    on(cluster_of_machines, one, "echo seen >/mnt/efs/word; setsid flock /mnt/efs/word sleep 60 >/dev/null 2>&1 &")
    assert on(cluster_of_machines, other, "cat /mnt/efs/word") == "seen\n"
    assert on(cluster_of_machines, other, "flock -n /mnt/efs/word true || echo held") == "held\n"


def test_nodes_resolve_each_others_names(cluster_of_machines: EmbeddedCloud) -> None:
    eventually(lambda: len(registered(cluster_of_machines)) == 3, timeout_s=SLOW_S)
    names = registered(cluster_of_machines)
    assert sorted(names.values()) == ["deeplearning-master", "deeplearning-worker1", "deeplearning-worker2"]
    addresses = {
        names[node["InstanceId"]]: node["PrivateIpAddress"]
        for role in ("master", "worker")
        for node in cluster_of_machines.instances(role)
    }
    for instance in ids(cluster_of_machines):
        found = on(cluster_of_machines, instance, f"getent hosts {' '.join(addresses)}").splitlines()
        assert {line.split()[1]: line.split()[0] for line in found} == addresses
        assert on(cluster_of_machines, instance, "systemctl is-active deepcdk-registry").strip() == "active"


def test_login_verifies_host_key_from_console(cluster_of_machines: EmbeddedCloud) -> None:
    for instance in ids(cluster_of_machines):
        key = on(cluster_of_machines, instance, "cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub").strip()
        console = cluster_of_machines.ask("ec2", "get_console_output", InstanceId=instance, Latest=True)["Output"]
        assert key in console
    assert fab(cluster_of_machines, "run", "--", "hostname").count("ip-10-") == 2
    assert "ip-10-" in fab(cluster_of_machines, "run", "--master", "--", "hostname")


def test_reboot_keeps_disk_and_name_and_does_not_run_the_user_data_again(cluster_of_machines: EmbeddedCloud) -> None:
    worker = ids(cluster_of_machines, "worker")[0]
    names = registered(cluster_of_machines)
    look = f"cat /proc/sys/kernel/random/boot_id; stat -c %Y {SEMAPHORE}; cat /etc/ssh/ssh_host_ed25519_key.pub"
    before = on(cluster_of_machines, worker, look).splitlines()
    cluster_of_machines.aws("ec2", "reboot-instances", "--instance-ids", worker)

    def ready() -> Any:
        script = "cat /proc/sys/kernel/random/boot_id; mountpoint /mnt/efs && systemctl is-active deepcdk-registry"
        done = cluster_of_machines.localcloud("exec", worker, "--", "bash", "-c", script, check=False)
        return done.returncode == 0 and done.stdout.splitlines()[0] != before[0]

    eventually(ready, timeout_s=SLOW_S, what="a worker that is up again")
    assert on(cluster_of_machines, worker, look).splitlines()[1:] == before[1:]
    eventually(lambda: registered(cluster_of_machines) == names, timeout_s=SLOW_S)
    assert fab(cluster_of_machines, "run", "--", "hostname").count("ip-10-") == 2


def test_two_ranks_pass_preflight_and_allreduce(cluster_of_machines: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "add_up.py").write_text(ADDS_UP)
    words = ("--nodes", "2", "--payload", str(tmp_path), "--entry", "add_up.py", "--controller", "gloo", "--yes")
    said = fab(cluster_of_machines, "train", *words)
    assert said.count("the sum of 2 ranks is 3") == 2
    found = json.loads(fab(cluster_of_machines, "show", "--json"))
    checked = found["preflight"]
    assert (found["state"]["state"], checked["findings"], checked["allowed"]) == ("succeeded", [], [])
    assert checked["lines"][-1] == "pre-flight: 2 nodes are healthy"
    assert "-" not in {row[checked["columns"].index("allreduce")] for row in checked["rows"]}


def test_replaced_node_boots_and_takes_the_name(cluster_of_machines: EmbeddedCloud) -> None:
    names = registered(cluster_of_machines)
    (lost,) = (instance for instance, name in names.items() if name == "deeplearning-worker2")
    fab(cluster_of_machines, "replace", "deeplearning-worker2", "--yes")
    after = registered(cluster_of_machines)
    assert (sorted(after.values()), lost in after) == (sorted(names.values()), False)
    assert fab(cluster_of_machines, "run", "--", "hostname").count("ip-10-") == 2
    (new,) = after.keys() - names.keys()
    assert on(cluster_of_machines, new, "cat /proc/1/comm; findmnt -no FSTYPE /mnt/efs").split() == ["systemd", "nfs4"]
