"""The internet of the cloud and the laptop: two namespaces, linked to each other but not to the machine's own.

A reachable host of the real internet has an address in the cloud's internet. Connections to this address are forwarded
unread from the machine's own network, so TLS is end-to-end.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from localcloud.errors import error_text
from localcloud.network.addressing import (
    API_ADDRESS,
    LAPTOP_ADDRESS,
    LAPTOP_GATEWAY,
    OUTSIDE_ADDRESS,
    UPLINK,
    passage_addresses,
    uplink_addresses,
)
from localcloud.network.namespaces import NetworkNamespace

log = logging.getLogger("localcloud.internet")

API_PORT: Final = 80
FORWARDED_PORTS: Final = (80, 443)
_CHUNK_BYTES: Final = 1 << 16
_CONNECT_S: Final = 15.0
_INTERNET_SYSCTLS: Final = {"ipv4/ip_forward": "1"}


class Internet:
    """Owner of both namespaces. It routes public addresses to their VPCs."""

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
                # The default source address is the outside host's.
                f"route replace 100.64.0.0/30 dev laptop src {OUTSIDE_ADDRESS}",
            ]
        )
        self.laptop.ip(
            [
                f"addr add {LAPTOP_ADDRESS}/30 dev eth0",
                "link set eth0 up",
                # Without quickack, SSH waits 40 ms twice for a delayed acknowledgement.
                f"route add default via {LAPTOP_GATEWAY} quickack 1",
            ]
        )
        self.namespace.await_link("laptop")

    def listen(self, port: int = API_PORT) -> socket.socket:
        """Open a listening socket at the API's public address."""
        return self.namespace.listen(API_ADDRESS, port)

    def forward(self, hosts: Iterable[str], ports: Iterable[int] = ()) -> dict[str, str]:
        """Make hosts of the real internet reachable at ports 80, 443 and `ports`; return their addresses by name.

        The addresses are in the cloud's internet. Call it once, with at most 126 hosts; further hosts are left out.
        """
        addresses = passage_addresses(hosts)
        self.namespace.ip([f"addr replace {address}/32 dev lo" for address in addresses.values()])
        pass_on(
            [
                (self.namespace.listen(address, port), host, port)
                for host, address in addresses.items()
                for port in sorted({*FORWARDED_PORTS, *ports})
            ]
        )
        return addresses

    def attach(self, index: int, router: NetworkNamespace) -> None:
        """Link the VPC with number `index` (from 0) to the internet. `router` is the namespace of its router."""
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
        """Unlink the VPC with number `index` and remove its routes."""
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


def pass_on(listeners: Sequence[tuple[socket.socket, str, int]]) -> None:
    """Forward connections of each listening socket to its host and port, in a thread that stops with the process."""

    async def serve() -> None:
        servers = [
            await asyncio.start_server(functools.partial(_pass_on, host, port), sock=listener)
            for listener, host, port in listeners
        ]
        await asyncio.gather(*(server.serve_forever() for server in servers))

    if listeners:
        threading.Thread(target=lambda: asyncio.run(serve()), name="forwarder", daemon=True).start()


async def _pass_on(host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward one connection to a host and port, in both directions. Errors are logged, and close the connection."""
    try:
        there = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_S)
    except (OSError, TimeoutError) as error:
        log.warning(
            "closed a connection from the cloud to %s:%d, because this machine cannot connect there: %s",
            host,
            port,
            "no answer" if isinstance(error, TimeoutError) else error_text(error),
        )
        writer.transport.abort()
        return
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(reader, there[1]))
            both.create_task(_copy(there[0], writer))
    except* OSError as ended:
        log.info("a connection from the cloud to %s:%d broke: %s", host, port, error_text(ended.exceptions[0]))
    finally:
        there[1].close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until it is closed. The other direction may continue."""
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
