"""The consoles of hosts: stored in files and published to the API."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Final

from localcloud.cloud_paths import Layout
from localcloud.hosts.host import Host, read_result

CONSOLE_BYTES: Final = 65536
"""Maximum length of a console that GetConsoleOutput returns. Only the end is kept."""


_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f]")
"""Control sequences of a terminal. The API's XML cannot contain most of these characters."""


def last_line(text: str) -> str:
    """Return the last line of a console with visible text, without control sequences; "" if no line has any."""
    lines = (_CONTROL.sub("", line).strip() for line in reversed(text.splitlines()))
    return next((line for line in lines if line), "")


class Consoles:
    """Stores what hosts write to their consoles, and publishes it to the API."""

    def __init__(self, layout: Layout, send: Callable[[str, str], None]) -> None:
        self._layout, self._send = layout, send
        self._texts: dict[str, bytes] = {}
        self._changed: set[str] = set()
        self._lock = threading.Lock()

    def open(self, host: Host) -> None:
        """Create the empty file for a host's console."""
        path = self._layout.console(host.instance.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def reader(self, host: Host) -> Callable[[], None]:
        """Return a function that reads and stores everything that a host has written since its last call.

        Everything is appended to the console's file. The end is also kept in memory, for the API.
        """
        instance_id, path = host.instance.id, self._layout.console(host.instance.id)

        def read() -> None:
            try:
                while data := os.read(host.console, 65536):
                    with self._lock:
                        self._texts[instance_id] = (self._texts.get(instance_id, b"") + data)[-CONSOLE_BYTES:]
                        self._changed.add(instance_id)
                    with path.open("ab") as file:
                        file.write(data)
            except BlockingIOError:
                return

        return read

    def text(self, instance_id: str) -> str:
        """Return the end of a console's text, at most CONSOLE_BYTES; "" if it is empty or was closed."""
        with self._lock:
            return self._texts.get(instance_id, b"").decode(errors="replace")

    def result(self, instance_id: str) -> int | None:
        """Return the exit code of a host's user data, or None if it has not finished."""
        return read_result(self.text(instance_id))

    def publish(self) -> None:
        """Send the changed consoles to the API."""
        with self._lock:
            changed, self._changed = self._changed, set()
        for instance_id in changed:
            self._send(instance_id, self.text(instance_id))

    def close(self, instance_id: str) -> None:
        """Publish the rest of a console, and remove the console from memory. Its file remains."""
        self.publish()
        with self._lock:
            self._texts.pop(instance_id, None)
            self._changed.discard(instance_id)
