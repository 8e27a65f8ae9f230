"""Whether a host is there at all: its kernel takes a connection within milliseconds, however busy the host is."""

from __future__ import annotations

import errno
import socket
from typing import Final

from agent.spec.nodes import Node

SSH_PORT: Final = 22
"""The one port on which workers admit the master."""
TIMEOUT_S: Final = 3.0
"""A lost packet is sent again after 1 s."""
_SILENT: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT)


def answers(host: Node, port: int = SSH_PORT, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether a host takes or refuses a connection.

    Meant for the moments after a fault: sshd of OpenSSH 9.8 and later counts a connection without a login as an
    offence, and refuses an address that commits 15 within as many seconds.
    """
    try:
        socket.create_connection((host.address, port), timeout_s).close()
    except OSError as error:
        return not (isinstance(error, TimeoutError) or error.errno in _SILENT)
    return True
