"""Real hosts from hand-made snapshots: their connections, boots and reboots."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcloud import reconciler
from localcloud.errors import CommandError, UnknownInstanceError
from localcloud.hosts.host import Host
from localcloud.hosts.namespace_host import NamespaceHosts
from localcloud.network.addressing import OUTSIDE_ADDRESS
from localcloud.network.namespaces import run
from localcloud.network.router import Router
from localcloud.snapshot import Rule, SecurityGroup, Snapshot
from testbed import (
    HIDDEN,
    MASTER,
    MASTER_IP,
    MASTER_PUBLIC,
    NAT_PUBLIC,
    OTHER,
    OTHER_IP,
    VPC,
    WORKER,
    WORKER_IP,
    SmallCloud,
    instance,
    reachable,
    running,
    seen_from,
    snapshot,
)
from waiting import eventually

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCloud]:
    with running(tmp_path_factory.mktemp("testbed")) as testbed:
        testbed.show(snapshot(MASTER, WORKER, OTHER, HIDDEN))
        yield testbed


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[SmallCloud]:
    with running(tmp_path) as testbed:
        yield testbed


@pytest.fixture
def sized_world(own_world: SmallCloud) -> SmallCloud:
    """Skip a test of volumes' sizes if this machine cannot enforce them."""
    if why := own_world.reconciler.kind.why_unlimited:
        pytest.skip(why)
    return own_world


def test_laptop_reaches_master_on_ssh_only(testbed: SmallCloud) -> None:
    laptop = testbed.internet.laptop
    assert reachable(laptop, MASTER_PUBLIC, 22)
    with testbed.namespace(MASTER).listen("0.0.0.0", 8888):
        assert not reachable(laptop, MASTER_PUBLIC, 8888)


def test_outside_host_is_rejected_by_the_cidr_of_the_rule(testbed: SmallCloud) -> None:
    assert not reachable(testbed.internet.namespace, MASTER_PUBLIC, 22)


def test_laptop_reaches_no_private_address(testbed: SmallCloud) -> None:
    for address in (WORKER_IP, MASTER_IP, NAT_PUBLIC):
        assert not reachable(testbed.internet.laptop, address, 22)


def test_master_and_workers_reach_each_other(testbed: SmallCloud) -> None:
    assert reachable(testbed.namespace(MASTER), WORKER_IP, 22)
    assert reachable(testbed.namespace(WORKER), MASTER_IP, 22)
    assert seen_from(testbed.namespace(WORKER), testbed.namespace(OTHER), OTHER_IP) == WORKER_IP


def test_master_uses_its_own_public_address(testbed: SmallCloud) -> None:
    assert seen_from(testbed.namespace(MASTER), testbed.internet.namespace, OUTSIDE_ADDRESS) == MASTER_PUBLIC


def test_worker_uses_address_of_nat_gateway(testbed: SmallCloud) -> None:
    assert seen_from(testbed.namespace(WORKER), testbed.internet.namespace, OUTSIDE_ADDRESS) == NAT_PUBLIC


def test_host_without_route_cannot_reach_internet(testbed: SmallCloud) -> None:
    assert seen_from(testbed.namespace(HIDDEN), testbed.internet.namespace, OUTSIDE_ADDRESS) == ""


def test_worker_reaches_masters_public_address_only_if_a_rule_allows_the_nat(testbed: SmallCloud) -> None:
    assert not reachable(testbed.namespace(WORKER), MASTER_PUBLIC, 22)


def test_host_cannot_use_the_address_of_another(testbed: SmallCloud) -> None:
    testbed.execute(WORKER, "ip addr add 10.0.1.77/32 dev lo; ip route add 10.0.1.11/32 dev eth0 src 10.0.1.77")
    try:
        assert not reachable(testbed.namespace(WORKER), OTHER_IP, 22)
    finally:
        testbed.execute(WORKER, "ip route del 10.0.1.11/32; ip addr del 10.0.1.77/32 dev lo")
    assert reachable(testbed.namespace(WORKER), OTHER_IP, 22)


def test_laptop_and_hosts_see_nothing_of_the_machine(testbed: SmallCloud) -> None:
    for namespace in (testbed.internet.laptop, testbed.namespace(WORKER)):
        links = namespace.enter(lambda: Path("/proc/thread-self/net/dev").read_text())
        assert {line.split(":")[0].strip() for line in links.splitlines()[2:]} == {"lo", "eth0"}
    found = testbed.execute(WORKER, "ls -A / /root /home /tmp /mnt /srv /opt").stdout
    expected = {"bin", "dev", "etc", "lib", "proc", "sys", "usr", "var", "ec2-user", "ubuntu"}
    assert expected <= set(found.split())
    assert testbed.execute(WORKER, "ls -A /root /tmp /mnt /srv").stdout.split() == ["/mnt:", "/root:", "/srv:", "/tmp:"]
    assert testbed.execute(WORKER, f"ls {Path(__file__)}").returncode != 0
    assert testbed.execute(WORKER, "cut -d: -f2 /etc/shadow | sort -u").stdout == "*\n"


def test_each_host_has_its_own_name(testbed: SmallCloud) -> None:
    assert testbed.execute(WORKER, "hostname").stdout == "ip-10-0-1-10\n"
    assert testbed.execute(WORKER, "getent hosts ip-10-0-1-11.ec2.internal").stdout.split()[0] == OTHER_IP
    assert testbed.execute(WORKER, "getent hosts example.com").returncode != 0


def test_shared_file_system_is_mounted_by_name_on_all_hosts(testbed: SmallCloud) -> None:
    mount = "mkdir -p /mnt/efs && mount -t nfs4 -o nfsvers=4.1 fs-0123abcd.efs.us-east-1.amazonaws.com:/ /mnt/efs"
    try:
        for host in (MASTER, WORKER):
            assert testbed.execute(host, mount).stderr == ""
        testbed.execute(MASTER, "echo seen > /mnt/efs/word")
        assert testbed.execute(WORKER, "cat /mnt/efs/word").stdout == "seen\n"
        assert testbed.execute(OTHER, "ls -A /mnt").stdout == ""
    finally:
        for host in (MASTER, WORKER):
            testbed.execute(host, "umount /mnt/efs; rmdir /mnt/efs")


def test_mounted_directories_are_read_only_for_all_users(testbed: SmallCloud) -> None:
    assert testbed.execute(WORKER, "cat /opt/shown/here/word", user="ec2-user").stdout == "seen\n"
    assert "Read-only file system" in testbed.execute(WORKER, "touch /opt/shown/here/word").stderr


def test_hosts_have_this_python_and_the_aws_cli(testbed: SmallCloud) -> None:
    python = f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}"
    assert testbed.execute(WORKER, f"{python} -c 'print(1)'", user="ec2-user").stdout == "1\n"
    assert testbed.execute(WORKER, "aws --version", user="ec2-user").stdout.startswith("aws-cli/")


def test_unknown_file_system_is_rejected(testbed: SmallCloud) -> None:
    done = testbed.execute(WORKER, "mount -t nfs4 fs-99999999.efs.us-east-1.amazonaws.com:/ /mnt")
    assert done.returncode != 0
    assert "Failed to resolve" in done.stderr


def test_boto3_finds_credentials_and_region_by_the_metadata_service(own_world: SmallCloud) -> None:
    own_world.show(snapshot(dataclasses.replace(WORKER, role_name="node", profile_arn="arn:aws:iam::1:x/node")))
    fetch = "curl -s -m 5 http://169.254.169.254/latest/meta-data/"
    assert own_world.execute(WORKER, f"{fetch}instance-id -o /dev/null -w '%{{http_code}}'").stdout == "401"
    token = "$(curl -s -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)"
    header = f'-H "X-aws-ec2-metadata-token: {token}"'
    assert own_world.execute(WORKER, f"{fetch}instance-id {header}").stdout == WORKER.id
    assert "KEY-node" in own_world.execute(WORKER, f"{fetch}iam/security-credentials/node {header}").stdout
    missing = own_world.execute(WORKER, f"{fetch}spot/instance-action {header} -o /dev/null -w '%{{http_code}}'")
    assert missing.stdout == "404"


def test_user_data_that_is_not_a_script_fails(own_world: SmallCloud) -> None:
    host = dataclasses.replace(WORKER, user_data=b"#cloud-config\npackages: [git]\n")
    own_world.show(snapshot(host))
    eventually(lambda: own_world.reconciler.consoles.result(host.id) == 1)
    assert "user data is not a script" in own_world.console(host)


def test_user_data_runs_as_root_and_prints_to_console(own_world: SmallCloud) -> None:
    script = b"#!/bin/bash\nid -u\necho $AWS_ENDPOINT_URL\necho spoken > /dev/console\nexit 3\n"
    host = dataclasses.replace(WORKER, user_data=script)
    own_world.show(snapshot(host))
    eventually(lambda: own_world.reconciler.consoles.result(host.id) == 3)
    console = own_world.console(host)
    assert "-----BEGIN SSH HOST KEY KEYS-----\nssh-ed25519 " in console
    assert {"0", "http://198.18.0.1", "spoken"} <= set(console.splitlines())
    assert "exit code 3" in own_world.execute(host, "cat /var/log/cloud-init-output.log").stdout
    assert own_world.layout.console(host.id).read_text() == console


def test_full_volume_affects_only_its_host_and_survives_reboot(sized_world: SmallCloud) -> None:
    small = dataclasses.replace(WORKER, volume_gib=1)
    sized_world.show(snapshot(small, OTHER))
    assert int(sized_world.execute(small, "df --output=size -B1M / | tail -1").stdout) in range(950, 1025)
    filled = sized_world.execute(small, "echo kept >/root/kept; head -c 2G /dev/zero >/root/big")
    assert "No space left on device" in filled.stderr
    assert sized_world.execute(OTHER, "head -c 1M /dev/zero >/root/big").returncode == 0
    sized_world.execute(small, "rm /root/big")  # a host with a full volume does not boot
    sized_world.show(snapshot(dataclasses.replace(small, reboots=1), OTHER))
    assert sized_world.execute(small, "cat /root/kept").stdout == "kept\n"
    sized_world.show(snapshot(OTHER))
    assert not (sized_world.layout.volumes / small.id).exists()
    assert str(sized_world.layout.volumes / small.id) not in run(["losetup", "--list", "--output", "BACK-FILE"])


def test_machine_that_cannot_mount_files_gives_a_host_a_directory(own_world: SmallCloud) -> None:
    kind = own_world.reconciler.kind
    assert isinstance(kind, NamespaceHosts)
    directories = dataclasses.replace(kind.volumes, why_unlimited="no loop devices")
    own_world.reconciler.kind = dataclasses.replace(kind, volumes=directories)
    own_world.show(snapshot(WORKER))
    own_world.execute(WORKER, "echo kept >/root/kept")
    assert (own_world.layout.volumes / WORKER.id / "upper/root/kept").read_text() == "kept\n"
    own_world.show(snapshot())
    assert list(own_world.layout.volumes.iterdir()) == []


def test_host_without_a_volume_is_reported(sized_world: SmallCloud) -> None:
    sized_world.cloud.now = snapshot(dataclasses.replace(WORKER, volume_gib=0))
    sized_world.reconciler.reconcile()
    assert "mke2fs" in sized_world.cloud.failed[WORKER.id]
    assert not (sized_world.layout.volumes / WORKER.id).exists()


def test_growing_keeps_hosts_and_shrinking_terminates_the_rest(own_world: SmallCloud) -> None:
    own_world.show(snapshot(WORKER))
    pid = own_world.reconciler.hosts[WORKER.id].init_pid
    own_world.show(snapshot(WORKER, OTHER))
    assert own_world.reconciler.hosts[WORKER.id].init_pid == pid
    ended = own_world.reconciler.hosts[OTHER.id].init_pid
    own_world.show(snapshot(WORKER))
    assert not Path(f"/proc/{ended}").exists()
    assert [path.name for path in (own_world.layout.layers / "hosts").iterdir()] == [WORKER.id]


def test_dead_host_is_reported_once_and_not_restarted(own_world: SmallCloud) -> None:
    own_world.show(snapshot(WORKER, OTHER))
    own_world.execute(WORKER, "kill -9 -1")
    own_world.execute(WORKER, "kill -TERM 1")
    eventually(lambda: own_world.reconciler.has_dead_host)
    own_world.reconciler.reconcile()
    own_world.reconciler.reconcile()
    assert list(own_world.cloud.failed) == [WORKER.id]
    assert list(own_world.reconciler.hosts) == [OTHER.id]


@pytest.mark.parametrize("boots_within_s", [0.0, 600.0])
def test_dead_host_counts_as_run_unless_it_died_during_boot(
    own_world: SmallCloud, monkeypatch: pytest.MonkeyPatch, boots_within_s: float
) -> None:
    monkeypatch.setattr(reconciler, "_BOOTS_WITHIN_S", boots_within_s)
    own_world.show(snapshot(WORKER))
    own_world.execute(WORKER, "kill -9 -1")
    own_world.execute(WORKER, "kill -TERM 1")
    eventually(lambda: own_world.reconciler.has_dead_host)
    own_world.reconciler.reconcile()
    assert own_world.cloud.have_run == {WORKER.id: not boots_within_s}


def test_cut_and_mended_network(own_world: SmallCloud) -> None:
    own_world.show(snapshot(WORKER, OTHER))
    own_world.reconciler.set_cut(OTHER.id, True)
    own_world.reconciler.reconcile()
    assert not reachable(own_world.namespace(WORKER), OTHER_IP, 22)
    own_world.reconciler.set_cut(OTHER.id, False)
    own_world.reconciler.reconcile()
    assert reachable(own_world.namespace(WORKER), OTHER_IP, 22)
    with pytest.raises(UnknownInstanceError, match="i-nobody"):
        own_world.reconciler.set_cut("i-nobody", True)


def test_rules_follow_the_snapshot_while_hosts_run(own_world: SmallCloud) -> None:
    own_world.show(snapshot(WORKER, OTHER))
    assert reachable(own_world.namespace(WORKER), OTHER_IP, 22)
    own_world.show(snapshot(WORKER, dataclasses.replace(OTHER, group_ids=("sg-closed",))))
    assert not reachable(own_world.namespace(WORKER), OTHER_IP, 22)
    assert not reachable(own_world.namespace(OTHER), WORKER_IP, 22)


def test_mount_through_a_closed_mount_target_is_rejected(own_world: SmallCloud) -> None:
    own_world.show(snapshot(dataclasses.replace(WORKER, group_ids=("sg-closed",))))
    mount = "MOUNT_TIMEOUT_S=1 mount -t nfs4 fs-0123abcd.efs.us-east-1.amazonaws.com:/ /mnt"
    done = own_world.execute(WORKER, mount)
    assert (done.returncode != 0, "timed out" in done.stderr) == (True, True), done.stderr


def test_lustre_is_mounted_only_if_security_groups_allow(own_world: SmallCloud) -> None:
    now = snapshot(WORKER, dataclasses.replace(OTHER, group_ids=("sg-closed",)))
    served = Rule(protocol="tcp", from_port=988, to_port=988, group_ids=("sg-worker",))
    servers = SecurityGroup(id="sg-lustre", vpc_id=VPC, ingress=(served,), egress=())
    (target,) = now.mount_targets
    lustre = dataclasses.replace(
        target, id="eni-1", file_system_id="fs-4567abcd", ip="10.0.1.201", group_ids=("sg-lustre",), service="fsx"
    )
    own_world.show(
        dataclasses.replace(now, mount_targets=(target, lustre), security_groups=(*now.security_groups, servers))
    )
    server = "fs-4567abcd.fsx.us-east-1.amazonaws.com@tcp:"
    mount = f"mkdir -p /mnt/fsx && MOUNT_TIMEOUT_S=1 mount -t lustre -o relatime,flock {server}/4567abcd /mnt/fsx"
    assert own_world.execute(WORKER, mount).stderr == ""
    assert own_world.execute(WORKER, "mountpoint -q /mnt/fsx && echo seen > /mnt/fsx/word").returncode == 0
    assert "timed out" in own_world.execute(OTHER, mount).stderr
    wrong = own_world.execute(WORKER, f"mount -t lustre {server}/other /srv")
    assert (wrong.returncode, "other" in wrong.stderr) == (32, True)
    assert own_world.execute(WORKER, "mount -t lustre fs-9.fsx.us-east-1.amazonaws.com@tcp:/9 /srv").returncode == 32


def test_networks_with_same_addresses_are_separate(own_world: SmallCloud) -> None:
    first = snapshot(MASTER, WORKER)
    second = snapshot(instance(9, subnet="subnet-private", ip=OTHER_IP, group="sg-worker"))
    renamed = Snapshot(
        vpcs=tuple(dataclasses.replace(vpc, id="vpc-2") for vpc in second.vpcs),
        subnets=tuple(dataclasses.replace(s, id=f"{s.id}-2", vpc_id="vpc-2") for s in second.subnets),
        security_groups=tuple(dataclasses.replace(group, vpc_id="vpc-2") for group in second.security_groups),
        instances=tuple(dataclasses.replace(i, vpc_id="vpc-2", subnet_id=f"{i.subnet_id}-2") for i in second.instances),
    )
    own_world.show(
        dataclasses.replace(
            first,
            vpcs=first.vpcs + renamed.vpcs,
            subnets=first.subnets + renamed.subnets,
            security_groups=first.security_groups + renamed.security_groups,
            instances=first.instances + renamed.instances,
        )
    )
    assert not reachable(own_world.namespace(WORKER), OTHER_IP, 22)
    assert reachable(own_world.internet.laptop, MASTER_PUBLIC, 22)


def test_closing_leaves_no_process_and_no_mount(tmp_path: Path) -> None:
    with running(tmp_path) as testbed:
        testbed.show(snapshot(MASTER, WORKER))
        assert str(tmp_path) in Path("/proc/self/mounts").read_text()
        pids = [host.init_pid for host in testbed.reconciler.hosts.values()]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_host_start_failure_affects_only_its_instance(own_world: SmallCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = Host.boot

    def refuse(host: Host, **arguments: Any) -> None:
        if host.instance.id == WORKER.id:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        boot(host, **arguments)

    monkeypatch.setattr(Host, "boot", refuse)
    own_world.show(snapshot(WORKER, MASTER))
    assert "failed to start" in own_world.cloud.failed[WORKER.id]
    assert own_world.reconciler.hosts.keys() == {MASTER.id}


def test_host_without_a_network_after_a_reboot_is_removed_with_its_console(
    own_world: SmallCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_world.show(snapshot(MASTER))

    def fail(self: Router, hosts: object) -> None:
        raise CommandError(["ip", "link"], 2, "File exists")

    with monkeypatch.context() as broken:
        broken.setattr(Router, "connect", fail)
        own_world.show(snapshot(dataclasses.replace(MASTER, reboots=1)))
    assert "its network could not be created" in own_world.cloud.failed[MASTER.id]
    own_world.show(snapshot(WORKER))  # its console may get the number of the removed one
    assert own_world.reconciler.hosts.keys() == {WORKER.id}


def test_rebooted_host_keeps_disk_keys_and_address_but_no_processes(own_world: SmallCloud) -> None:
    program = b"""#!/bin/bash
echo from the first boot > /kept
mkdir -p /var/lib/cloud/scripts/per-boot
printf '#!/bin/bash\ntouch /booted-again\n' > /var/lib/cloud/scripts/per-boot/mark
chmod 755 /var/lib/cloud/scripts/per-boot/mark
rm -f /booted-again
sleep 4243 &
"""
    booting = dataclasses.replace(MASTER, user_data=program)
    own_world.show(snapshot(booting))
    host = own_world.reconciler.hosts[MASTER.id]
    eventually(lambda: own_world.reconciler.consoles.result(MASTER.id) == 0)

    def said(script: str) -> str:
        return str(own_world.execute(MASTER, script).stdout)

    files = ("/etc/ssh/ssh_host_ed25519_key.pub", "/proc/sys/kernel/random/boot_id")
    before = [said(f"cat {file}") for file in files]
    own_world.show(snapshot(dataclasses.replace(booting, reboots=1)))
    assert own_world.reconciler.hosts[MASTER.id] is host
    eventually(lambda: said("ls /booted-again") == "/booted-again\n")
    key, boot_id = [said(f"cat {file}") for file in files]
    assert (key == before[0], boot_id == before[1]) == (True, False)
    assert said("cat /kept") == "from the first boot\n"
    assert "4243" not in said("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    eventually(lambda: reachable(own_world.internet.laptop, MASTER_PUBLIC, 22))
