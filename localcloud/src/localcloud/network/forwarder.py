"""Ways out of the cloud, by name: connections to a host of the real internet, passed on byte by byte.

The cloud's internet has no route to the machine's. A host that may be reached has an address of its own in it, at which
connections to ports 80 and 443, and to others where asked for, are accepted and continued from the machine's own
network. Nothing is read or changed, so TLS stays between both ends.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

from localcloud.network.addressing import passage_addresses

log = logging.getLogger("localcloud.forwarder")

PORTS: Final = (80, 443)
_CHUNK_BYTES: Final = 1 << 16
_CONNECT_S: Final = 15.0


class Forwarder:
    """Pass connections on, in a thread that ends with the process."""

    def __init__(
        self, hosts: Iterable[str], listen: Callable[[str, int], socket.socket], ports: Iterable[int] = ()
    ) -> None:
        """`ports`: further ones at which connections are accepted."""
        self.addresses = passage_addresses(hosts)
        """The address in the cloud's internet of each host."""
        self._listeners = [
            (listen(address, port), host, port)
            for host, address in self.addresses.items()
            for port in sorted({*PORTS, *ports})
        ]
        if self._listeners:
            threading.Thread(target=lambda: asyncio.run(self._serve()), name="forwarder", daemon=True).start()

    async def _serve(self) -> None:
        servers = [
            await asyncio.start_server(functools.partial(_pass_on, host, port), sock=listener)
            for listener, host, port in self._listeners
        ]
        await asyncio.gather(*(server.serve_forever() for server in servers))


async def _pass_on(host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        there = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_S)
    except (OSError, TimeoutError) as error:
        log.warning("%s:%d cannot be reached from this machine: %s", host, port, error or "no answer")
        writer.transport.abort()
        return
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(reader, there[1]))
            both.create_task(_copy(there[0], writer))
    except* OSError as ended:
        log.info("a connection to %s:%d ended: %s", host, port, ended.exceptions[0])
    finally:
        there[1].close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of one direction; the other may go on."""
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
