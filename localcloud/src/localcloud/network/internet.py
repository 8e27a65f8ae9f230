"""The internet of the cloud and the laptop: two namespaces, linked to each other and not to the machine's own."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Final

from localcloud.network.addressing import (
    API_ADDRESS,
    LAPTOP_ADDRESS,
    LAPTOP_GATEWAY,
    OUTSIDE_ADDRESS,
    UPLINK,
    uplink_addresses,
)
from localcloud.network.forwarder import Forwarder
from localcloud.network.namespaces import ROUTER_SYSCTLS, NetworkNamespace

API_PORT: Final = 80
_INTERNET_SYSCTLS: Final = {"ipv4/ip_forward": "1"}


class Internet:
    """Own both namespaces, and route public addresses to the VPCs that have them."""

    def __init__(self) -> None:
        self.namespace = NetworkNamespace(_INTERNET_SYSCTLS)
        self.laptop = NetworkNamespace()
        self._routes: dict[str, int] = {}
        self.namespace.ip(
            [
                f"addr add {API_ADDRESS}/32 dev lo",
                f"addr add {OUTSIDE_ADDRESS}/32 dev lo",
                f"link add name laptop type veth peer name eth0 netns {self.laptop.path}",
                f"addr add {LAPTOP_GATEWAY}/30 dev laptop",
                "link set laptop up",
                # The default source address is that of the outside host.
                f"route replace 100.64.0.0/30 dev laptop src {OUTSIDE_ADDRESS}",
            ]
        )
        self.laptop.ip(
            [
                f"addr add {LAPTOP_ADDRESS}/30 dev eth0",
                "link set eth0 up",
                # Without quickack, SSH waits twice 40 ms for a delayed acknowledgement.
                f"route add default via {LAPTOP_GATEWAY} quickack 1",
            ]
        )
        self.namespace.await_link("laptop")

    def listen(self, port: int = API_PORT) -> socket.socket:
        """Open a listening socket at the API's public address."""
        return self.namespace.listen(API_ADDRESS, port)

    def forward(self, hosts: Iterable[str], ports: Iterable[int] = ()) -> dict[str, str]:
        """Open hosts of the real internet to the VPCs, also at `ports`; return the address of each in this one."""

        def listen(address: str, port: int) -> socket.socket:
            self.namespace.ip([f"addr replace {address}/32 dev lo"])
            return self.namespace.listen(address, port)

        return Forwarder(hosts, listen, ports).addresses

    def attach(self, index: int, router: NetworkNamespace) -> None:
        """Link the VPC with number `index` (from 0)."""
        ours, theirs = uplink_addresses(index)
        self.namespace.ip(
            [
                f"link add name vpc{index} type veth peer name {UPLINK} netns {router.path}",
                f"addr add {ours}/30 dev vpc{index}",
                f"link set vpc{index} up",
            ]
        )
        router.ip([f"addr add {theirs}/30 dev {UPLINK}", f"link set {UPLINK} up", f"route add default via {ours}"])
        self.namespace.await_link(f"vpc{index}")

    def detach(self, index: int) -> None:
        """Unlink a VPC, and remove the routes to it."""
        self._routes = {address: owner for address, owner in self._routes.items() if owner != index}
        self.namespace.ip([f"link delete vpc{index}"])

    def route(self, routes: dict[str, int]) -> None:
        """Route public addresses to the VPCs with these numbers; remove all other routes."""
        commands = [f"route delete {address}/32" for address in self._routes if address not in routes]
        for address, index in routes.items():
            if self._routes.get(address) != index:
                commands.append(f"route replace {address}/32 via {uplink_addresses(index)[1]} src {OUTSIDE_ADDRESS}")
        self.namespace.ip(commands)
        self._routes = dict(routes)

    def close(self) -> None:
        """Close both namespaces."""
        self.laptop.close()
        self.namespace.close()


def new_router() -> NetworkNamespace:
    """Create the namespace of a VPC's router."""
    return NetworkNamespace(ROUTER_SYSCTLS)
