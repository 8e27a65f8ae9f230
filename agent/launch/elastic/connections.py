"""The TCP connections that Horovod has opened in this process, to be ended where a rank was lost.

Over Gloo, a rank that leaves a sum because another one is gone keeps its connections to the others open as long as its
process lives, also after `hvd.shutdown` (seen with Horovod 0.28). A third rank that waits for it, and not for the one
that is gone, would wait until Gloo's time-out. So the connections are shut down by hand.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FOLDER: Final = Path("/proc/self/fd")


def open_sockets() -> dict[str, int]:
    """Return the open sockets of this process: a descriptor of each, by its name in the kernel."""
    found = {}
    for path in _FOLDER.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            link = str(path.readlink())
            if link.startswith("socket:"):
                found[link] = int(path.name)
    return found


class Connections:
    """The sockets that were opened within a block."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Take note of what is opened within the block."""
        before = open_sockets().keys()
        try:
            yield
        finally:
            self._names |= open_sockets().keys() - before

    def end(self) -> int:
        """Shut down those that are still open, so that their other ends notice at once; return how many."""
        ended = 0
        for name, descriptor in open_sockets().items():
            if name in self._names:
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
                    ended += 1
        self._names.clear()
        return ended
