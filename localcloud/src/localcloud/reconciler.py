"""Updates networks and hosts to match the state of the API."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

from localcloud.cloud_paths import Layout
from localcloud.errors import CommandError, LocalCloudError, UnknownInstanceError, error_text
from localcloud.fd_poller import FdPoller
from localcloud.hosts.console import Consoles, last_line
from localcloud.hosts.host import Host
from localcloud.network import addressing
from localcloud.network.internet import Internet
from localcloud.network.router import Router
from localcloud.snapshot import Instance, Snapshot, Subnet

log = logging.getLogger("localcloud.reconciler")

_CLOSING_GRACE_S: Final = 1.0
"""Maximum time of the hosts' shutdown when the cloud stops."""
_CONCURRENT_HOSTS: Final = 16
_BOOTS_WITHIN_S: Final = 30.0
"""A host that exits earlier counts as not started. A group stops replacing such hosts after some attempts."""


class CloudState(Protocol):
    """The parts of the API that the reconciler uses."""

    def snapshot(self) -> Snapshot:
        """Return all networks, instances and file systems that should exist now."""

    def set_console_output(self, instance_id: str, text: str) -> None:
        """Set the console output of an instance."""

    def instance_failed(self, instance_id: str, reason: str, *, has_run: bool) -> None:
        """Report that a host could not be started or has died, and terminate the instance.

        `has_run`: the host failed after its boot, so its group does not count the failure as a failed start.
        """

    def role_credentials(self, role_name: str, session_name: str) -> dict[str, Any]:
        """Return new credentials of a role, for a session with this name: AccessKeyId, SecretAccessKey, Token and
        Expiration.
        """


class HostKind(Protocol):
    """A kind of host, including its shared file systems."""

    @property
    def answers_mounts(self) -> bool:
        """Return whether the VPCs' routers listen at the IP addresses of mount targets. If not, file servers do."""

    @property
    def why_unlimited(self) -> str:
        """Return why the hosts' volumes do not have the sizes of their launch templates, or "" if they do."""

    def directory(self, instance_id: str) -> Path:
        """Return the path of the directory for a host's files. `make` creates the directory."""

    def make(self, instance: Instance, subnet: Subnet, directory: Path) -> Host:
        """Create an instance's host, with its files in the new directory `directory`. `Host.boot` starts it.

        Raises OSError or LocalCloudError on failure. The directory may then exist.
        """

    def share(self, snapshot: Snapshot, routers: Mapping[str, Router]) -> None:
        """Serve exactly the shared file systems of a snapshot. `routers` are the routers of its VPCs, by VPC id."""

    def close(self) -> None:
        """Stop serving the shared file systems."""


class Reconciler:
    """Owner of routers and hosts. Call `reconcile` from one thread only, which must live as long as the hosts."""

    def __init__(
        self,
        *,
        cloud: CloudState,
        layout: Layout,
        internet: Internet,
        kind: HostKind,
        outside: Mapping[str, str],
        link_mbit: int = 0,
    ) -> None:
        """Take `outside`, the addresses of reachable hosts of the real internet, by name.

        `link_mbit` is the bandwidth of each host's link in Mbit/s, or 0 for no limit.
        """
        self.link_mbit = link_mbit
        self.cloud, self.layout, self.internet, self.kind = cloud, layout, internet, kind
        self.outside = outside
        self.fd_poller = FdPoller()
        self.routers: dict[str, Router] = {}
        self.hosts: dict[str, Host] = {}
        self.cut: set[str] = set()
        """Ids of the instances whose network is cut."""
        self._given_up: set[str] = set()
        self._booted_at: dict[str, float] = {}
        """Boot time by instance id, from time.monotonic."""
        self.consoles = Consoles(layout, cloud.set_console_output)

    def reconcile(self) -> None:
        """Compare once with the API's state, and apply the differences to hosts, networks and shared file systems.

        Hosts that have exited or could not be started are reported to the API, and are not started again. Other errors
        are raised; call it again later.
        """
        self._report_deaths()
        snapshot = self.cloud.snapshot()
        wanted = {instance.id: instance for instance in snapshot.instances}
        self._given_up &= wanted.keys()
        self._booted_at = {id: at for id, at in self._booted_at.items() if id in wanted}
        self.cut &= wanted.keys()
        self._remove([self.hosts[id] for id in self.hosts.keys() - wanted.keys()])
        self._route(snapshot)
        self.kind.share(snapshot, self.routers)
        self._launch(snapshot, [i for i in snapshot.instances if i.id not in self.hosts and i.id not in self._given_up])
        for host in self.hosts.values():
            host.instance = wanted[host.instance.id]
        if rebooted := [host for host in self.hosts.values() if host.reboots != host.instance.reboots]:
            self._reboot(rebooted)

    @property
    def has_dead_host(self) -> bool:
        """Return whether a host has exited unexpectedly since the last `reconcile`."""
        return any(host.exit_code is not None for host in self.hosts.values())

    def set_cut(self, instance_id: str, is_cut: bool) -> None:
        """Choose whether an instance's packets are dropped. The next `reconcile` applies the choice.

        Raises UnknownInstanceError.
        """
        if instance_id not in self.hosts:
            raise UnknownInstanceError(instance_id, sorted(self.hosts))
        if is_cut:
            self.cut.add(instance_id)
        else:
            self.cut.discard(instance_id)

    def close(self) -> None:
        """Shut down and remove all hosts, file servers and routers. Hosts that do not exit within 1 s are killed."""
        self._remove(list(self.hosts.values()), grace_s=_CLOSING_GRACE_S)
        self.kind.close()
        for router in self.routers.values():
            router.close()
        self.routers.clear()
        self.fd_poller.close()

    def _report_deaths(self) -> None:
        """Remove hosts that have exited, and report them to the API."""
        for host in list(self.hosts.values()):
            code = host.exit_code
            if code is not None:
                self.consoles.reader(host)()
                last = last_line(self.consoles.text(host.instance.id))
                self._remove([host])
                reason = (
                    f"its host exited unexpectedly (exit status {code}); last line of its console: {last or 'nothing'}"
                )
                now = time.monotonic()
                has_run = now - self._booted_at.get(host.instance.id, now) >= _BOOTS_WITHIN_S
                self._give_up(host.instance.id, reason, has_run=has_run)

    def _give_up(self, instance_id: str, reason: str, *, has_run: bool = False) -> None:
        """Report a host's failure to the API, which terminates the instance. The host is not started again.

        `has_run`: the host failed after its boot, so its group does not count the failure as a failed start.
        """
        log.error("%s: %s", instance_id, reason)
        self._given_up.add(instance_id)
        self.cloud.instance_failed(instance_id, reason, has_run=has_run)

    def _route(self, snapshot: Snapshot) -> None:
        """Create and remove routers as the snapshot requires, and update their rules and the public routes.

        Only VPCs with instances, mount targets or NAT gateways have a router.
        """
        vpcs = {vpc.id for vpc in snapshot.vpcs if _is_used(snapshot, vpc.id)}
        for vpc_id in self.routers.keys() - vpcs:
            router = self.routers.pop(vpc_id)
            self.internet.detach(router.index)
            router.close()
        for vpc_id in sorted(vpcs - self.routers.keys()):
            index = min(set(range(len(self.routers) + 1)) - {router.index for router in self.routers.values()})
            router = Router(
                vpc_id=vpc_id,
                index=index,
                fd_poller=self.fd_poller,
                credentials=self.cloud.role_credentials,
                outside=self.outside,
                answers_mounts=self.kind.answers_mounts,
                link_mbit=self.link_mbit,
            )
            self.internet.attach(index, router.namespace)
            self.routers[vpc_id] = router
        cut = {instance.private_ip for instance in snapshot.instances if instance.id in self.cut}
        routes: dict[str, int] = {}
        for vpc_id, router in self.routers.items():
            router.apply(snapshot, cut)
            routes.update(dict.fromkeys(addressing.public_addresses(snapshot, vpc_id), router.index))
        self.internet.route(routes)

    def _launch(self, snapshot: Snapshot, instances: Sequence[Instance]) -> None:
        """Create, link and start hosts for instances. Failures are reported to the API."""
        if not instances:
            return
        started = time.monotonic()
        subnets = {subnet.id: subnet for subnet in snapshot.subnets}
        with ThreadPoolExecutor(_CONCURRENT_HOSTS) as pool:  # each host waits for the kernel to mount its volume
            made = list(pool.map(lambda instance: self._make(instance, subnets), instances))
        for instance, host in zip(instances, made, strict=True):
            if isinstance(host, str):
                self._give_up(instance.id, f"its host could not be created: {host}")
        hosts = self._connect([host for host in made if isinstance(host, Host)])
        for host in hosts:
            self.hosts[host.instance.id] = host
            self.consoles.open(host)
            self.fd_poller.watch(host.console, self.consoles.reader(host))
            self._boot(host)
        log.info("started %d hosts in %.2f s", len(hosts), time.monotonic() - started)

    def _make(self, instance: Instance, subnets: Mapping[str, Subnet]) -> Host | str:
        """Return a new host, or the reason if it could not be created."""
        directory = self.kind.directory(instance.id)
        try:
            return self.kind.make(instance, subnets[instance.subnet_id], directory)
        except (LocalCloudError, OSError) as error:
            reason = error_text(error)
        except KeyError as error:
            reason = f"{error} does not exist"
        shutil.rmtree(directory, ignore_errors=True)
        return reason

    def _boot(self, host: Host) -> None:
        """Start a host. If that fails, remove the host and report the failure to the API."""
        self._booted_at[host.instance.id] = time.monotonic()
        try:
            host.boot()
        except OSError as error:  # for example, out of memory; if ignored, the host would count as up forever
            self._remove([host])
            self._give_up(host.instance.id, f"its host failed to start: {error_text(error)}")

    def _reboot(self, hosts: Sequence[Host]) -> None:
        """Shut hosts down and boot them again with the same disk and address. Failures are reported to the API."""
        self._shut_down(hosts)
        for host in hosts:
            host.unplug()
            host.reboots = host.instance.reboots
        linked = self._connect(hosts)
        for host in hosts:
            if host in linked:
                self._boot(host)

    def _shut_down(self, hosts: Sequence[Host], grace_s: float | None = None) -> None:
        """Shut hosts down, kill hosts that take too long, and unlink them from their routers.

        `grace_s` is the time that all of them have together; None: the longest that one of them needs.
        """
        for host in hosts:
            host.shut_down()
        longest_s = max((host.grace_s for host in hosts), default=0.0)
        deadline = time.monotonic() + (longest_s if grace_s is None else grace_s)
        for host in hosts:
            host.wait_until(deadline)
            host.kill()
        for vpc_id, router in self.routers.items():
            router.disconnect(host.instance for host in hosts if host.instance.vpc_id == vpc_id)

    def _connect(self, hosts: Sequence[Host]) -> list[Host]:
        """Link new hosts to their routers, in one batch per router; return the linked hosts.

        If a batch fails, its hosts are removed, and the failure is reported to the API.
        """
        linked = []
        for vpc_id, router in self.routers.items():
            mine = [host for host in hosts if host.instance.vpc_id == vpc_id]
            try:
                router.connect([(host.instance, host.network.path) for host in mine])
                linked += mine
            except CommandError as error:
                for host in mine:
                    self._discard(host)
                    self._give_up(host.instance.id, f"its network could not be created: {error}")
        return linked

    def _remove(self, hosts: Iterable[Host], grace_s: float | None = None) -> None:
        """Shut hosts down and remove them."""
        hosts = list(hosts)
        self._shut_down(hosts, grace_s)
        for host in hosts:
            self._discard(host)

    def _discard(self, host: Host) -> None:
        """Remove a host that is shut down or was never booted, and close its console, if that was opened."""
        if self.hosts.pop(host.instance.id, None):
            self.consoles.reader(host)()
            self.fd_poller.forget(host.console)
            self.consoles.close(host.instance.id)
        host.remove()


def _is_used(snapshot: Snapshot, vpc_id: str) -> bool:
    """Return whether a VPC needs a router. An account's default VPC has subnets, but usually nothing in them."""
    used = {instance.vpc_id for instance in snapshot.instances}
    used |= {target.vpc_id for target in snapshot.mount_targets}
    used |= {nat.vpc_id for nat in snapshot.nat_gateways}
    return vpc_id in used
