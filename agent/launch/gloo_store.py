"""The key-value store in which ranks over Gloo find each other. It runs on the run's first host, as the user for ranks.

    python -m agent.launch.gloo_store ADDRESS NAME:SLOTS,... [wait]    # over SSH, by agent.launch.horovodrun

Horovod's own store is a part of horovodrun, on the master: ranks could fill the master's memory there. This one speaks
the same protocol (horovod/runner/http/http_server.py), and its memory has a limit. It prints its port, and exits when
standard input ends.

With `wait` a request for the address of a rank that has not joined is answered only when it has. Horovod checks its
time-out only if the store has no value: so ranks wait for a rank whose process is alive, however long its imports and
data take. The store prints for which ranks the others wait. It answers at once again if a rank has exited.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import select
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Final

from agent.launch.rank_parent import EXITED, Lines
from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE

MEMORY: Final = 2 << 30
"""Address space of the store, bytes. The addresses of a thousand ranks take a few hundred MB."""
MAX_VALUE: Final = 16 << 20
_STACK: Final = 256 << 10
"""Of the thread that serves a connection, bytes."""
_REQUEST_S: Final = 3
"""How long to wait for the next bytes of a request, as Horovod does."""
REPORT_S: Final = 120.0
"""After this time, and each time that it has doubled, ranks that have not joined are reported."""
_LOOK_S: Final = 1.0
WAIT: Final = "wait"
GLOO_TIMEOUT: Final = "HOROVOD_GLOO_TIMEOUT_SECONDS"
_PORT: Final = "deepcdk-gloo-store "
_MISSING: Final = "deepcdk-gloo-store-missing "
_MAX_GREETING: Final = 1 << 16
_MAX_SHOWN: Final = 8


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

    def __init__(self, address: str, sizes: dict[str, int], *, waits: bool = False) -> None:
        """Open the port. `waits`: whether requests of ranks wait for a value."""
        super().__init__((address, 0), _Request)
        self._waits, self._reported_s, self._began, self._looked = waits, 0.0, 0.0, 0.0
        self._sizes, self._left = sizes, Counter[str]()
        self._values: dict[str, dict[str, bytes]] = {}
        self._lock = threading.Condition()

    def get(self, scope: str, key: str, is_open: Callable[[], bool] = lambda: True) -> bytes | None:
        """Return a value; None if there is none. In Horovod's scopes wait for it, while `is_open` and no rank exits."""
        with self._lock:
            while (value := self._values.get(scope, {}).get(key)) is None:
                if not (self._waits and scope in self._sizes and EXITED not in self._values and is_open()):
                    break
                self._lock.wait(_LOOK_S)
                self._report()
            return value

    def _report(self) -> None:
        """Print the ranks that have not joined, some time after the first one has."""
        now = time.monotonic()
        waited_s = now - self._began
        if not self._began or waited_s < max(REPORT_S, 2 * self._reported_s) or now < self._looked + _LOOK_S:
            return
        self._looked = now
        joined = self._values.get("global", {})
        missing = [str(rank) for rank in range(self._sizes["global"]) if str(rank) not in joined]
        if missing:
            self._reported_s = waited_s
            print(f"{_MISSING}{waited_s:.0f} {' '.join(missing)}", flush=True)

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Keep a value."""
        with self._lock:
            self._began = self._began or time.monotonic()
            self._values.setdefault(scope, {})[key] = value
            self._lock.notify_all()

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
            value = self.server.get(*place, self._is_open)
            self._answer(404 if value is None else 200, value or b"")

    def _is_open(self) -> bool:
        """Return whether the rank that asks has not closed the connection."""
        poll = select.poll()  # `recv` would wait for the time-out of the connection, and the store is locked meanwhile.
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

    def __init__(self, hosts: str, directory: str, *, waits: bool = True) -> None:
        """Name the first of the hosts, NAME:SLOTS,... `directory`: of the agent there.

        `waits`: whether ranks wait for each other as long as all are alive, in place of Horovod's time-out.
        """
        self._hosts, self._directory, self._waits = hosts, directory, waits
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
        words += ["-m", "agent.launch.gloo_store", self.address, self._hosts, *([WAIT] if self._waits else [])]
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
                    threading.Thread(target=self._forward, daemon=True).start()
                    return int(port)
        sys.exit(f"[launcher] {self._host} ended: {ssh.wait()}")  # type: ignore[union-attr]  # it was begun

    def _forward(self) -> None:
        """Report the ranks that the store misses. Ranks could print such lines: only numbers of ranks count."""
        places = [
            name for host in self._hosts.split(",") for name in [host.rpartition(":")[0]] * int(host.rpartition(":")[2])
        ]
        lines = Lines(b"", _MAX_GREETING)
        while block := os.read(self._ssh.stdout.fileno(), 1 << 12):  # type: ignore[union-attr]  # it was begun
            for line in lines.feed(block):
                words = line.decode(errors="replace").removeprefix(_MISSING).split()
                if not line.startswith(_MISSING.encode()) or not all(
                    word.isdecimal() and len(word) < 7 for word in words
                ):
                    continue
                waited_s, *ranks = map(int, words)
                shown = [f"rank {rank} on {places[rank]}" for rank in ranks if rank < len(places)]
                more = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
                late = f"{', '.join(shown[:_MAX_SHOWN])}{more} to call hvd.init(), since {waited_s} s"
                limit = f"the process is alive. To limit the wait: --env {GLOO_TIMEOUT}=600"
                print(f"[launcher] waiting for {late}; {limit}", flush=True)

    def init(self, plan: object) -> None:
        """Do nothing: the store knows its ranks."""


def main(argv: Sequence[str]) -> int:
    """Run the store until standard input ends."""
    address, hosts, *option = argv
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    threading.stack_size(_STACK)
    store = Store(address, scope_sizes(hosts), waits=WAIT in option)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    print(f"{_PORT}{store.server_port}", flush=True)
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 1 << 10):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
