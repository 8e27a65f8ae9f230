"""Hand-made snapshots and an API that returns them, for tests of hosts and networks."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from localcloud.cloud_paths import Layout
from localcloud.host_kinds import GUEST_ENVIRONMENT
from localcloud.hosts import nfs_client, this_machine_image
from localcloud.hosts.images import Bind, aws_cli_binds, interpreter_binds
from localcloud.hosts.namespace_host import NamespaceHosts, SharedDirectory
from localcloud.hosts.package_index import PackageIndex
from localcloud.hosts.volumes import open_volumes
from localcloud.network import namespaces
from localcloud.network.addressing import LAPTOP_ADDRESS, interface
from localcloud.network.internet import Internet
from localcloud.network.namespaces import NetworkNamespace
from localcloud.reconciler import Reconciler
from localcloud.snapshot import (
    Instance,
    MountTarget,
    NatGateway,
    Rule,
    SecurityGroup,
    Snapshot,
    Subnet,
    Vpc,
)
from waiting import eventually

VPC = "vpc-1"
NO_PACKAGES = PackageIndex()
ALL = Rule(protocol="-1", from_port=0, to_port=65535, cidrs=("0.0.0.0/0",))
SSH = Rule(protocol="tcp", from_port=22, to_port=22, cidrs=(f"{LAPTOP_ADDRESS}/32",))
AMONG = Rule(protocol="-1", from_port=0, to_port=65535, group_ids=("sg-worker", "sg-master"))
NFS = Rule(protocol="tcp", from_port=2049, to_port=2049, group_ids=("sg-worker", "sg-master"))

MASTER_IP, WORKER_IP, OTHER_IP, HIDDEN_IP = "10.0.0.10", "10.0.1.10", "10.0.1.11", "10.0.2.10"
MASTER_PUBLIC, NAT_PUBLIC = "198.18.1.1", "198.18.1.9"


def instance(number: int, *, subnet: str, ip: str, group: str, **changes: Any) -> Instance:
    """Return an instance; its id ends with `number`."""
    plain = Instance(
        id=f"i-{number:017x}",
        vpc_id=VPC,
        subnet_id=subnet,
        zone="us-east-1a",
        private_ip=ip,
        public_ip="",
        group_ids=(group,),
        image_id="ami-1",
        instance_type="t3.medium",
        user_data=b"",
        public_key="",
        key_name="key",
        profile_arn="",
        role_name="",
        metadata_tokens_required=True,
        tags=(),
    )
    return dataclasses.replace(plain, **changes)


MASTER = instance(1, subnet="subnet-public", ip=MASTER_IP, group="sg-master", public_ip=MASTER_PUBLIC)
WORKER = instance(2, subnet="subnet-private", ip=WORKER_IP, group="sg-worker")
OTHER = instance(3, subnet="subnet-private", ip=OTHER_IP, group="sg-worker")
HIDDEN = instance(4, subnet="subnet-isolated", ip=HIDDEN_IP, group="sg-worker")


def snapshot(*instances: Instance) -> Snapshot:
    """Return a snapshot of a VPC with a public, a private (NAT) and an isolated subnet, and these instances."""

    def subnet(name: str, number: int, route: str) -> Subnet:
        return Subnet(
            id=f"subnet-{name}", vpc_id=VPC, cidr=f"10.0.{number}.0/24", zone="us-east-1a", default_route=route
        )

    def group(name: str, ingress: Sequence[Rule], egress: Sequence[Rule] = (ALL,)) -> SecurityGroup:
        return SecurityGroup(id=f"sg-{name}", vpc_id=VPC, ingress=tuple(ingress), egress=tuple(egress))

    target = MountTarget(
        id="fsmt-1",
        file_system_id="fs-0123abcd",
        vpc_id=VPC,
        subnet_id="subnet-private",
        ip="10.0.1.200",
        group_ids=("sg-nfs",),
    )
    nat = NatGateway(id="nat-1", vpc_id=VPC, subnet_id="subnet-public", private_ip="10.0.0.200", public_ip=NAT_PUBLIC)
    return Snapshot(
        vpcs=(Vpc(id=VPC, cidr="10.0.0.0/16"),),
        subnets=(subnet("public", 0, "igw-1"), subnet("private", 1, "nat-1"), subnet("isolated", 2, "")),
        security_groups=(
            group("master", [SSH, AMONG]),
            group("worker", [AMONG]),
            group("nfs", [NFS]),
            group("closed", [], []),
        ),
        nat_gateways=(nat,),
        mount_targets=(target,),
        instances=instances,
    )


class FakeCloud:
    """A cloud state with a given snapshot, which records calls."""

    def __init__(self) -> None:
        self.now = Snapshot()
        self.consoles: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.have_run: dict[str, bool] = {}

    def snapshot(self) -> Snapshot:
        return self.now

    def set_console_output(self, instance_id: str, text: str) -> None:
        self.consoles[instance_id] = text

    def instance_failed(self, instance_id: str, reason: str, *, has_run: bool) -> None:
        self.failed[instance_id] = reason
        self.have_run[instance_id] = has_run

    def role_credentials(self, role_name: str, session_name: str) -> dict[str, Any]:
        return {
            "AccessKeyId": f"KEY-{role_name}-{session_name}",
            "SecretAccessKey": "secret",
            "Token": "token",
            "Expiration": "2099-01-01T00:00:00Z",
        }


class SmallCloud:
    """Run real hosts for a fake cloud."""

    def __init__(self, directory: Path, layers: Path, packages: PackageIndex, *, nfs: bool) -> None:
        self.cloud = FakeCloud()
        self.layout = Layout(name="test", run_root=directory / "run", data_root=directory / "data")
        self.layout.run.mkdir(parents=True)
        self.layout.efs.mkdir(parents=True)
        self.layout.layers.symlink_to(layers)
        environment = GUEST_ENVIRONMENT
        (layers / "image").mkdir()
        (directory / "shown").mkdir()
        (directory / "shown/word").write_text("seen\n")
        shown = Bind(source=directory / "shown", target="/opt/shown/here")
        binds = (*interpreter_binds(), *aws_cli_binds(), shown)
        self.environment = environment
        self.internet = Internet()
        image = this_machine_image.build(layers / "image", binds, environment)
        packages.install(layers / "image")
        if nfs:
            nfs_client.install(layers / "image")
        self.reconciler = Reconciler(
            cloud=self.cloud,
            layout=self.layout,
            internet=self.internet,
            kind=NamespaceHosts(
                machine=image,
                layers=self.layout.layers,
                volumes=open_volumes(self.layout.volumes),
                shared=SharedDirectory(path=self.layout.efs, caches=nfs),
            ),
            outside=self.internet.forward(packages.servers, packages.ports),
        )

    def show(self, now: Snapshot) -> None:
        """Change the testbed to this snapshot, and wait until every host's sshd answers on its loopback."""
        self.cloud.now = now
        self.reconciler.reconcile()
        for host in self.reconciler.hosts.values():
            eventually(lambda host=host: reachable(host.network, "127.0.0.1", 22))  # type: ignore[misc]
            self.reconciler.routers[host.instance.vpc_id].namespace.await_link(interface(host.instance.id))

    def namespace(self, of: Instance) -> NetworkNamespace:
        """Return an instance's network."""
        return self.reconciler.hosts[of.id].network

    def execute(self, on: Instance, script: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        """Run a shell script in a host."""
        pid = self.reconciler.hosts[on.id].init_pid
        ids = {"root": [], "ec2-user": ["--setuid", "1000", "--setgid", "1000"]}[user]
        return subprocess.run(
            ["nsenter", "--target", str(pid), "--all", "--root", "--wd", *ids, "--", "bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **self.environment},
        )

    def console(self, of: Instance) -> str:
        """Return a host's console output that was sent to the API."""
        self.reconciler.consoles.publish()
        return self.cloud.consoles.get(of.id, "")

    def close(self) -> None:
        self.reconciler.close()
        self.internet.close()


@contextlib.contextmanager
def running(directory: Path, packages: PackageIndex = NO_PACKAGES, *, nfs: bool = False) -> Iterator[SmallCloud]:
    """Yield a testbed on a memory file system, which overlays need; remove everything at the end."""
    layers = directory / "layers"
    layers.mkdir()
    namespaces.mount_tmpfs(layers, "mode=755")
    try:
        testbed = SmallCloud(directory, layers, packages, nfs=nfs)
        try:
            yield testbed
        finally:
            testbed.close()
    finally:
        subprocess.run(["umount", str(layers)], check=True)


def reachable(start: NetworkNamespace, address: str, port: int, timeout_s: float = 0.5) -> bool:
    """Return whether a TCP connection from `start` is accepted."""

    def connect() -> bool:
        try:
            with socket.create_connection((address, port), timeout=timeout_s):
                return True
        except OSError:
            return False

    return start.enter(connect)


def seen_from(start: NetworkNamespace, target: NetworkNamespace, address: str, port: int = 5000) -> str:
    """Connect from `start` to a listener at `address` in `target`; return the source address that it sees, or ""."""
    seen: list[str] = []
    with target.listen(address, port) as listener:
        listener.settimeout(60)

        def accept() -> None:
            with contextlib.suppress(OSError):
                connection, peer = listener.accept()
                connection.close()
                seen.append(peer[0])

        thread = threading.Thread(target=accept)
        thread.start()
        if not reachable(start, address, port):
            listener.settimeout(0.01)
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    return seen[0] if seen else ""
