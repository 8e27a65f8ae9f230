"""The key-value store that connects ranks over Gloo. It runs on the run's first host, as the user for ranks.

    python -m agent.launch.gloo_store ADDRESS NAME:SLOTS,... [wait]    # over SSH, by agent.launch.horovodrun

Horovod's own store is a part of horovodrun, on the master, where ranks could fill the memory. This store speaks the
same protocol (horovod/runner/http/http_server.py), but its memory is limited. It prints its port, and exits when
standard input ends.

With `wait`, a request for the address of a rank is answered only after that rank has joined. Horovod checks its
time-out only if the store has no value, so ranks wait for any rank that is alive, however long its imports and data
take. The store prints the missing ranks. After a rank has exited, requests are answered immediately again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Final

from agent.launch.rank_parent import EXITED, STORE_MISSING, STORE_PORT, STORE_WAITS

MEMORY: Final = 2 << 30
"""Address space of the store, bytes. The addresses of a thousand ranks take a few hundred MB."""
MAX_VALUE: Final = 16 << 20
_STACK: Final = 256 << 10
"""Stack of the thread for a connection, bytes."""
_REQUEST_S: Final = 3
"""How long to wait for the next bytes of a request; the same as in Horovod."""
REPORT_S: Final = 120.0
"""Ranks that have not joined are reported after this time, and again whenever the wait has doubled."""
_LOOK_S: Final = 1.0


def scope_sizes(hosts: str) -> dict[str, int]:
    """Return the number of ranks in each of Horovod's scopes. `hosts`: NAME:SLOTS,...

    The scopes are `global`, `local_NAME` for a host, and `cross_N` for the ranks with the local rank N.
    """
    slots = {name: int(count) for name, _, count in (host.rpartition(":") for host in hosts.split(","))}
    across = Counter(rank for count in slots.values() for rank in range(count))
    return {
        "global": sum(slots.values()),
        **{f"local_{name}": count for name, count in slots.items()},
        **{f"cross_{rank}": count for rank, count in across.items()},
    }


class Store(ThreadingHTTPServer):
    """HTTP server that stores values by scope and key."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: str, sizes: dict[str, int], *, waits: bool = False) -> None:
        """Open a free port on `address`. `sizes` is the result of `scope_sizes`.

        `waits`: whether requests for a missing value wait for it.
        """
        super().__init__((address, 0), _Request)
        self._waits, self._reported_s, self._began, self._looked = waits, 0.0, 0.0, 0.0
        self._sizes, self._left = sizes, Counter[str]()
        self._values: dict[str, dict[str, bytes]] = {}
        self._lock = threading.Condition()

    def get(self, scope: str, key: str, is_open: Callable[[], bool] = lambda: True) -> bytes | None:
        """Return the value of `key` in `scope`, or None if there is none.

        With `waits`, first wait for a missing value in one of Horovod's scopes, while `is_open` returns true and no
        rank has exited.
        """
        with self._lock:
            while (value := self._values.get(scope, {}).get(key)) is None:
                if not (self._waits and scope in self._sizes and EXITED not in self._values and is_open()):
                    break
                self._lock.wait(_LOOK_S)
                self._report()
            return value

    def _report(self) -> None:
        """Print the ranks that have not joined, if this is due.

        It is due REPORT_S after the first rank has joined, and again whenever the wait has doubled.
        """
        now = time.monotonic()
        waited_s = now - self._began
        if not self._began or waited_s < max(REPORT_S, 2 * self._reported_s) or now < self._looked + _LOOK_S:
            return
        self._looked = now
        joined = self._values.get("global", {})
        missing = [str(rank) for rank in range(self._sizes["global"]) if str(rank) not in joined]
        if missing:
            self._reported_s = waited_s
            print(f"{STORE_MISSING}{waited_s:.0f} {' '.join(missing)}", flush=True)

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Store a value and wake up the requests that wait for it."""
        with self._lock:
            self._began = self._began or time.monotonic()
            self._values.setdefault(scope, {})[key] = value
            self._lock.notify_all()

    def delete(self, scope: str, key: str) -> None:
        """Delete a value. In Horovod's scopes, each rank calls this once, and the last call deletes all values.

        The values of such a scope are kept until then, because other ranks may still read them.
        """
        with self._lock:
            if scope not in self._sizes:
                self._values.get(scope, {}).pop(key, None)
                return
            self._left[scope] += 1
            if self._left[scope] == self._sizes[scope]:
                self._values.pop(scope, None)
                del self._left[scope]

    def handle_error(self, request: object, client_address: object) -> None:
        """Drop a failed request, such as one that exceeds the memory limit."""


class _Request(BaseHTTPRequestHandler):
    server: Store
    timeout: ClassVar[int] = _REQUEST_S

    def do_GET(self) -> None:
        if place := self._place():
            value = self.server.get(*place, self._is_open)
            self._answer(404 if value is None else 200, value or b"")

    def _is_open(self) -> bool:
        """Return whether the requesting rank still has the connection open."""
        poll = select.poll()  # `recv` would wait for the connection's time-out, with the store locked.
        poll.register(self.connection, select.POLLIN)
        try:
            return not poll.poll(0) or bool(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 10 and int(length) <= MAX_VALUE):
            self._answer(413)
        elif place := self._place():
            value = self.rfile.read(int(length))
            if len(value) == int(length):
                self.server.put(*place, value)
                self._answer(200)

    def do_DELETE(self) -> None:
        if place := self._place():
            self.server.delete(*place)
            self._answer(200)

    def _place(self) -> tuple[str, str] | None:
        """Return the scope and the key in the request's path; answer 400 and return None if it is malformed."""
        words = self.path.split("/")
        if len(words) != 3:
            self._answer(400)
            return None
        return words[1], words[2]

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # http.server's name
        """Do not log requests."""


def main(argv: Sequence[str]) -> int:
    """Run the store and print `deepcdk-gloo-store PORT`; return 0 when standard input ends.

    The arguments are its address, the hosts as NAME:SLOTS,... and, optionally, the word `wait`. With it, requests wait
    for ranks that have not joined.
    """
    address, hosts, *option = argv
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    threading.stack_size(_STACK)
    store = Store(address, scope_sizes(hosts), waits=STORE_WAITS in option)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    print(f"{STORE_PORT}{store.server_port}", flush=True)
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 1 << 10):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
