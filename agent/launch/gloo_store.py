"""The key-value store in which ranks over Gloo find each other. It runs on the run's first host, as the user for ranks.

    python -m agent.launch.gloo_store ADDRESS NAME:SLOTS,...    # over SSH, by agent.launch.horovodrun

Horovod's own store is a part of horovodrun, on the master: ranks could fill the master's memory there. This one speaks
the same protocol (horovod/runner/http/http_server.py), and its memory has a limit. It prints its port, and exits when
standard input ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import shlex
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Final

from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE

MEMORY: Final = 2 << 30
"""Address space of the store, bytes. The addresses of a thousand ranks take a few hundred MB."""
MAX_VALUE: Final = 16 << 20
_STACK: Final = 256 << 10
"""Of the thread that serves a connection, bytes."""
_REQUEST_S: Final = 3
"""How long to wait for the next bytes of a request, as Horovod does."""
_PORT: Final = "deepcdk-gloo-store "
_MAX_GREETING: Final = 1 << 16


def scope_sizes(hosts: str) -> dict[str, int]:
    """Return how many ranks take part in each of Horovod's scopes. `hosts`: NAME:SLOTS,..."""
    slots = {name: int(count) for name, _, count in (host.rpartition(":") for host in hosts.split(","))}
    across = Counter(rank for count in slots.values() for rank in range(count))
    return {
        "global": sum(slots.values()),
        **{f"local_{name}": count for name, count in slots.items()},
        **{f"cross_{rank}": count for rank, count in across.items()},
    }


class Store(ThreadingHTTPServer):
    """The values by scope and key."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: str, sizes: dict[str, int]) -> None:
        super().__init__((address, 0), _Request)
        self._sizes, self._left = sizes, Counter[str]()
        self._values: dict[str, dict[str, bytes]] = {}
        self._lock = threading.Lock()

    def get(self, scope: str, key: str) -> bytes | None:
        """Return a value; None if there is none."""
        with self._lock:
            return self._values.get(scope, {}).get(key)

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Keep a value."""
        with self._lock:
            self._values.setdefault(scope, {})[key] = value

    def delete(self, scope: str, key: str) -> None:
        """Delete a value. Those of one of Horovod's scopes go together, when all its ranks have left."""
        with self._lock:
            if scope not in self._sizes:
                self._values.get(scope, {}).pop(key, None)
                return
            self._left[scope] += 1
            if self._left[scope] == self._sizes[scope]:
                self._values.pop(scope, None)
                del self._left[scope]

    def handle_error(self, request: object, client_address: object) -> None:
        """Drop a request that fails, such as one beyond the memory limit."""


class _Request(BaseHTTPRequestHandler):
    server: Store
    timeout: ClassVar[int] = _REQUEST_S

    def do_GET(self) -> None:
        if place := self._place():
            value = self.server.get(*place)
            self._answer(404 if value is None else 200, value or b"")

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
        """Print nothing."""


class RemoteStore:
    """The store of one run, for horovodrun on the master; in place of Horovod's RendezvousServer."""

    def __init__(self, hosts: str, directory: str) -> None:
        """Name the first of the hosts, NAME:SLOTS,... `directory`: of the agent there."""
        self._hosts, self._directory = hosts, directory
        self._host = hosts.partition(":")[0]
        self._ssh: subprocess.Popen[bytes] | None = None

    @functools.cached_property
    def address(self) -> str:
        """Return the address where ranks reach the store."""
        try:
            return socket.gethostbyname(self._host)
        except OSError as error:
            sys.exit(f"[launcher] {self._host} has no address: {error.strerror}")

    def begin(self) -> None:
        """Begin to start the store. It exits with this process, whose end closes its standard input."""
        marks = [f"{name}={os.environ[name]}" for name in (RUN_VARIABLE, RUNS_VARIABLE)]
        # A pool of memory for each thread would reserve more address space than the store may have.
        words = ["env", *marks, "MALLOC_ARENA_MAX=1", "PYTHONDONTWRITEBYTECODE=1", NODE_PYTHON, "-S"]
        words += ["-m", "agent.launch.gloo_store", self.address, self._hosts]
        script = f"cd {shlex.quote(self._directory)} && exec {shlex.join(words)}"
        self._ssh = subprocess.Popen(["ssh", self._host, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def start(self) -> int:
        """Return the store's port. Exits this process with a message if the store does not start."""
        if self._ssh is None:
            self.begin()
        ssh, answer = self._ssh, b""
        while block := os.read(ssh.stdout.fileno(), 1 << 12):  # type: ignore[union-attr]  # a pipe
            answer = (answer + block)[-_MAX_GREETING:]
            for line in answer.split(b"\n")[:-1]:
                port = line.removeprefix(_PORT.encode())
                if port != line and port.isdigit() and len(port) < 6:
                    return int(port)
        sys.exit(f"[launcher] {self._host} ended: {ssh.wait()}")  # type: ignore[union-attr]  # it was begun

    def init(self, plan: object) -> None:
        """Do nothing: the store knows its ranks."""


def main(argv: Sequence[str]) -> int:
    """Run the store until standard input ends."""
    address, hosts = argv
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    threading.stack_size(_STACK)
    store = Store(address, scope_sizes(hosts))
    threading.Thread(target=store.serve_forever, daemon=True).start()
    print(f"{_PORT}{store.server_port}", flush=True)
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 1 << 10):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
