"""The hosts' consoles: kept in files, and told to the API."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from localcloud.hosts.host import Host, read_result
from localcloud.layout import Layout

CONSOLE_BYTES: Final = 65536
"""How much of the end of a console GetConsoleOutput returns."""


class Consoles:
    """Keep what hosts write to their consoles, and pass it on to the API."""

    def __init__(self, layout: Layout, tell: Callable[[str, str], None]) -> None:
        self._layout, self._tell = layout, tell
        self._texts: dict[str, bytes] = {}
        self._news: set[str] = set()
        self._lock = threading.Lock()

    def open(self, host: Host) -> None:
        """Begin an empty console."""
        path = self._layout.console(host.instance.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def reader(self, host: Host) -> Callable[[], None]:
        """Return what reads all that a host has written by now."""
        instance_id, path = host.instance.id, self._layout.console(host.instance.id)

        def read() -> None:
            try:
                while data := os.read(host.console, 65536):
                    with self._lock:
                        self._texts[instance_id] = (self._texts.get(instance_id, b"") + data)[-CONSOLE_BYTES:]
                        self._news.add(instance_id)
                    with path.open("ab") as file:
                        file.write(data)
            except BlockingIOError:
                return

        return read

    def text(self, instance_id: str) -> str:
        """Return the end of a console."""
        with self._lock:
            return self._texts.get(instance_id, b"").decode(errors="replace")

    def result(self, instance_id: str) -> int | None:
        """Return the exit code of a host's user data; None while it runs."""
        return read_result(self.text(instance_id))

    def publish(self) -> None:
        """Tell the API what is new."""
        with self._lock:
            news, self._news = self._news, set()
        for instance_id in news:
            self._tell(instance_id, self.text(instance_id))

    def close(self, instance_id: str) -> None:
        """Pass the last words on; the file stays."""
        self.publish()
        with self._lock:
            self._texts.pop(instance_id, None)
            self._news.discard(instance_id)
