"""The router of a VPC: its namespace, its rules, and the services at its addresses."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from localcloud.fd_poller import FdPoller
from localcloud.network import addressing, nftables, resolver
from localcloud.network.instance_metadata import Credentials, MetadataServer
from localcloud.network.namespaces import ROUTER_SYSCTLS, NetworkNamespace
from localcloud.snapshot import Instance, Snapshot

_BURST_MS: Final = 4
"""Maximum burst, as transmission time of the link: one tick of a 250 Hz kernel."""
_QUEUED_BYTES: Final = 8 << 20
"""Size of a link's queue, larger than a sender's data in flight (4 MiB, `tcp_wmem`).

A real network card makes its senders wait. With a queue of 50 ms (625 KB at 100 Mbit/s), the ends of messages were
dropped, 64 KiB at a time as the kernel passes them on here. Allreduces of 4 MB took up to twice as long.
"""


def limit_command(interface: str, mbit: int) -> str:
    """Return the router's `tc` command that limits the traffic to an instance. Its root user cannot change the limit.

    `mbit` is in Mbit/s. In a ring, this limits both directions of each link, because one node receives what another
    sends.
    """
    burst = max(65536, mbit * 1000 // 8 * _BURST_MS)
    return f"qdisc add dev {interface} root tbf rate {mbit}mbit burst {burst} limit {_QUEUED_BYTES}"


class Router:
    """Enforces a VPC's routes and security groups, and serves instance metadata, DNS and mount targets."""

    def __init__(
        self,
        *,
        vpc_id: str,
        index: int,
        fd_poller: FdPoller,
        credentials: Credentials,
        outside: Mapping[str, str],
        answers_mounts: bool = True,
        link_mbit: int = 0,
    ) -> None:
        """Create the router, without links.

        With `answers_mounts`, it listens at the IP addresses of mount targets; otherwise file servers do. `link_mbit`
        is the bandwidth of each instance's link in Mbit/s, or 0 for no limit.
        """
        self._link_mbit = link_mbit
        self._answers_mounts = answers_mounts
        self.vpc_id, self.index, self.outside = vpc_id, index, outside
        self._fd_poller = fd_poller
        self._snapshot = Snapshot()
        self._instances: dict[str, Instance] = {}
        self._addresses: set[str] = set()
        self._ruleset = ""
        self._targets: dict[str, socket.socket] = {}
        self.namespace = NetworkNamespace(ROUTER_SYSCTLS)
        # Load rules first, so that no packet passes without them.
        self._load(nftables.ruleset(Snapshot(), vpc_id))
        self._set_addresses([addressing.METADATA_ADDRESS, addressing.RESOLVER_ADDRESS])
        self._metadata = MetadataServer(
            self.namespace.listen(addressing.METADATA_ADDRESS, 80),
            find=lambda address: self._instances.get(address),
            credentials=credentials,
        )
        self._names = self.namespace.listen(addressing.RESOLVER_ADDRESS, 53, socket.SOCK_DGRAM)
        self._names.setblocking(False)
        fd_poller.watch(self._names.fileno(), self._resolve)

    def apply(self, snapshot: Snapshot, cut: Iterable[str]) -> None:
        """Update rules, addresses and services to match the snapshot. Raises CommandError or OSError.

        `cut` contains private addresses. All packets from and to them are dropped.
        """
        self._snapshot = snapshot
        self._instances = {i.private_ip: i for i in snapshot.instances if i.vpc_id == self.vpc_id}
        self._load(nftables.ruleset(snapshot, self.vpc_id, cut))
        own = snapshot if self._answers_mounts else dataclasses.replace(snapshot, mount_targets=())
        self._set_addresses(addressing.router_addresses(own, self.vpc_id))
        wanted = {target.ip: target for target in own.mount_targets if target.vpc_id == self.vpc_id}
        for ip in self._targets.keys() - wanted.keys():
            self._close_target(ip)
        for ip in wanted.keys() - self._targets.keys():
            listener = self.namespace.listen(ip, wanted[ip].port)
            listener.setblocking(False)
            self._targets[ip] = listener
            self._fd_poller.watch(listener.fileno(), self._answer_with_id(listener, wanted[ip].file_system_id))

    def connect(self, links: Sequence[tuple[Instance, str]]) -> None:
        """Link instances to the router. `links`: each instance with the path of its network namespace.

        Raises CommandError.
        """
        self.namespace.ip([line for instance, path in links for line in addressing.link_commands(instance, path)])
        # By default, a proxied ARP answer waits up to 0.8 s. New links inherit the machine's setting.
        names = [addressing.interface(instance.id) for instance, _ in links]
        self.namespace.tc([limit_command(name, self._link_mbit) for name in names if self._link_mbit])
        self.namespace.set_sysctls({f"ipv4/neigh/{name}/proxy_delay": "0" for name in names})

    def disconnect(self, instances: Iterable[Instance]) -> None:
        """Remove the links that `connect` made for these instances. Raises CommandError if a link does not exist."""
        self.namespace.ip([f"link delete {addressing.interface(instance.id)}" for instance in instances])

    def close(self) -> None:
        """Stop the services and close the namespace."""
        for ip in list(self._targets):
            self._close_target(ip)
        self._fd_poller.forget(self._names.fileno())
        self._names.close()
        self._metadata.close()
        self.namespace.close()

    def _load(self, ruleset: str) -> None:
        """Load a ruleset, if it has changed."""
        if ruleset != self._ruleset:
            self.namespace.nft(ruleset)
            self._ruleset = ruleset

    def _set_addresses(self, addresses: Iterable[str]) -> None:
        wanted = set(addresses)
        commands = [f"addr delete {address}/32 dev lo" for address in sorted(self._addresses - wanted)]
        commands += [f"addr add {address}/32 dev lo" for address in sorted(wanted - self._addresses)]
        self.namespace.ip(commands)
        self._addresses = wanted

    def _close_target(self, ip: str) -> None:
        listener = self._targets.pop(ip)
        self._fd_poller.forget(listener.fileno())
        listener.close()

    def _answer_with_id(self, listener: socket.socket, file_system_id: str) -> Callable[[], None]:
        """Return a callback that accepts a mount's connection and answers with the file system's id."""

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.send(f"{file_system_id}\n".encode())

        return answer

    def _resolve(self) -> None:
        """Answer one DNS query."""
        query, asker = self._names.recvfrom(4096)

        def find(name: str) -> str:
            return resolver.lookup(self._snapshot, self.vpc_id, name, asker[0], self.outside)

        answer = resolver.respond(query, find)
        if answer:
            self._names.sendto(answer, asker)
