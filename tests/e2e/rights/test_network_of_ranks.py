"""Network access of a rank: attacks and a port scan from a worker, as the user of the ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.e2e.rights.test_rank_user import shell, train
from tests.waiting import eventually

PROGRAM = """\
import errno, json, os, resource, select, socket, subprocess, sys, time

def attempt(family, kind, protocol, address, port):
    try:
        with socket.socket(family, kind, protocol) as client:
            client.settimeout(3)
            client.connect((address, port))
            client.send(b"x")
            return "sent"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)

def attacks(target, port):
    v4, v6, stream, datagram = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
    mptcp, lite = 262, 136
    return {
        "TCP": attempt(v4, stream, 0, target, port),
        "TCP of IPv6": attempt(v6, stream, 0, "::ffff:" + target, port),
        "MPTCP": attempt(v4, stream, mptcp, target, port),
        "UDP": attempt(v4, datagram, 0, target, port),
        "UDP of IPv6": attempt(v6, datagram, 0, "::ffff:" + target, port),
        "UDP-Lite": attempt(v4, datagram, lite, target, port),
    }

def open_ports(address, end):
    ports, waiting, found = iter(range(1, end)), {}, []
    poll = select.epoll()
    while True:
        while len(waiting) < AT_ONCE and (port := next(ports, None)) is not None:
            client = socket.socket()
            client.setblocking(False)
            if client.connect_ex((address, port)) == errno.EINPROGRESS:
                waiting[client.fileno()] = client, port, time.monotonic()
                poll.register(client, select.EPOLLOUT)
        if not waiting:
            return found
        for descriptor, _ in poll.poll(0.2):
            client, port, _ = waiting.pop(descriptor)
            if client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                found.append(port)
            client.close()
        for descriptor, (client, _, began) in list(waiting.items()):
            if time.monotonic() - began > 1:
                del waiting[descriptor]
                client.close()

# Each of the 65,000 ports that drop packets takes the whole second.
AT_ONCE = 3000
resource.setrlimit(resource.RLIMIT_NOFILE, (AT_ONCE + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
nodes = {line.split()[0]: line.split()[1] for line in open("/opt/deeplearning/nodes")}
server = next(line.split(":")[0] for line in open("/etc/fstab") if " nfs4 " in line)
metadata, nfs = "169.254.169.254", socket.gethostbyname(server)
if sys.argv[1:] == ["attack"]:
    print(json.dumps({"NFS": attacks(nfs, 2049), "metadata": attacks(metadata, 80)}))
    sys.exit()
as_root = ["unshare", "--user", "--map-root-user", sys.executable, __file__, "attack"]
services = {"the file server": nfs, "the metadata service": metadata, "the resolver": "169.254.169.253"}
# Of nodes all ports below those that the kernel takes for connections; of services, which answer few, the lower ones.
targets = {**dict.fromkeys(nodes.items(), 32768), **dict.fromkeys(services.items(), 2100)}
told = {
    "user": os.getuid(),
    "attacks": {"NFS": attacks(nfs, 2049), "Lustre": attacks(nfs, 988), "metadata": attacks(metadata, 80),
                "credentials": attacks("169.254.170.2", 80), "an address of the link": attacks("169.254.1.1", 2000)},
    "root of a namespace": json.loads(subprocess.run(as_root, capture_output=True, text=True, check=True).stdout),
    "open": {name: open_ports(address, end) for (name, address), end in targets.items()},
}
with open("told.json", "w") as file:
    json.dump(told, file)
"""
REFUSED = {
    **dict.fromkeys(("TCP", "TCP of IPv6", "MPTCP"), "ECONNREFUSED"),
    **dict.fromkeys(("UDP", "UDP of IPv6", "UDP-Lite"), "EPERM"),
}
REACHED = {
    "deeplearning-master": [],
    "deeplearning-worker1": [22],
    "deeplearning-worker2": [],
    "the file server": [],
    "the metadata service": [],
    "the resolver": [],
}
"""TCP ports that answer a rank on worker1, the only node of its run."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "train.py").write_text(PROGRAM)
    (root / "token").write_text("swordfish")
    return root


@pytest.fixture(scope="module")
def told(cluster: EmbeddedCloud, project: Path) -> Iterator[dict[str, Any]]:
    """Run the scan as a rank; fetch its results."""
    train(cluster, project)
    run_id = json.loads(cluster.fab("show", "--json").stdout)["run_id"]
    cluster.fab("fetch", "--run", run_id)
    yield json.loads((demo.ROOT / "runs" / run_id / "work" / "told.json").read_text())
    cluster.fab("rm", "--run", run_id, "--yes")


def test_rank_reaches_neither_file_servers_nor_the_metadata_service(told: dict[str, Any]) -> None:
    assert told["user"] == 60900
    assert told["attacks"] == dict.fromkeys(told["attacks"], REFUSED)


def test_root_in_user_namespace_has_no_more_access_than_rank(told: dict[str, Any]) -> None:
    assert told["root of a namespace"] == {"NFS": REFUSED, "metadata": REFUSED}


def test_scan_as_a_rank_finds_these_ports_and_no_others(told: dict[str, Any]) -> None:
    assert told["open"] == REACHED


def test_root_of_a_worker_reaches_file_servers_and_metadata_service(cluster: EmbeddedCloud) -> None:
    asked = "curl -fsS -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token"
    assert shell(cluster, asked)


def test_rebooted_node_loads_the_firewall_again(cluster: EmbeddedCloud) -> None:
    (master,) = cluster.instances("master")
    listed = cluster.on(master["InstanceId"], "cat", "/opt/deeplearning/nodes").stdout
    rebooted = next(line.split()[2] for line in listed.splitlines() if line.startswith("deeplearning-worker2 "))
    boot_id = ("cat", "/proc/sys/kernel/random/boot_id")
    before = cluster.on(rebooted, *boot_id).stdout
    helper = "/usr/sbin/mount.nfs4"
    cluster.on(rebooted, "mv", helper, f"{helper}.away")
    cluster.ask("ec2", "reboot_instances", InstanceIds=[rebooted])

    def is_up() -> bool:
        after = cluster.on(rebooted, *boot_id, check=False).stdout
        return after not in ("", before) and cluster.on(rebooted, "cat", "/run/deepcdk-firewall").stdout == after

    eventually(is_up)
    assert "skuid 60900" in cluster.on(rebooted, "nft", "list", "table", "inet", "deepcdk").stdout
    # If the file system cannot be mounted, it is mounted as soon as possible.
    assert cluster.on(rebooted, "mountpoint", "/mnt/efs", check=False).returncode != 0
    cluster.on(rebooted, "mv", f"{helper}.away", helper)
    eventually(lambda: cluster.on(rebooted, "mountpoint", "/mnt/efs", check=False).returncode == 0)


@pytest.mark.parametrize(
    ("undo", "message"),
    [
        ("rm /run/deepcdk-firewall", "deeplearning-worker1 has no firewall"),
        ("nft delete table inet deepcdk", "cannot isolate the ranks of this run from other runs"),
    ],
)
def test_node_without_the_firewall_gets_no_rank(cluster: EmbeddedCloud, project: Path, undo: str, message: str) -> None:
    shell(cluster, undo)
    try:
        failed = train(cluster, project, "--restarts", "0", check=False)
    finally:
        shell(cluster, "/var/lib/cloud/scripts/per-boot/deepcdk-firewall")
    assert failed.returncode == 1
    assert message in failed.stdout + failed.stderr
    assert "`fab replace" in failed.stdout + failed.stderr
    cluster.fab("rm", "--run", json.loads(cluster.fab("show", "--json").stdout)["run_id"], "--yes")
