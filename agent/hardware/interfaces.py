"""Read this node's own addresses from the kernel. Standard library only, which has no call for them."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import Final

_SIOCGIFADDR: Final = 0x8915


def read_address(interface: str) -> str:
    """Return an interface's IPv4 address; "" where it has none."""
    request = array.array("B", struct.pack("256s", interface.encode()[:15]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return ""
    return socket.inet_ntoa(request[20:24].tobytes())


def own_addresses() -> set[str]:
    """Return the IPv4 addresses of all interfaces."""
    return {read_address(name) for _, name in socket.if_nameindex()}
