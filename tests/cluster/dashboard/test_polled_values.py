"""Values that are read repeatedly, and the connection that they share."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from cluster.dashboard.polled_values import FAILURES_TO_RENEW, Link, Source
from cluster.errors import ConnectionFailedError, DeepcdkError
from cluster.ssh.master import Master
from tests.cluster.ssh.ssh_server import SshServer, connect_to, make_key, serving
from tests.waiting import eventually


def test_source_is_read_only_while_page_is_open() -> None:
    read: list[int] = []

    def count() -> int:
        read.append(len(read))
        return read[-1]

    source = Source(count, pause_s=0.01, idle_s=0.2)
    assert read == []
    eventually(lambda: (source.look(1.0).value or 0) >= 3)
    eventually(lambda: source._thread is None)
    before = len(read)
    eventually(lambda: (source.look().value or 0) > before)


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (ConnectionFailedError("no answer", where="host"), "reconnecting", "no answer\n  where: host"),
        (DeepcdkError("AWS says no\x1b[2J"), "failing", "AWS says no\\x1b[2J"),
        (ValueError("surprise"), "failing", "ValueError: surprise"),
    ],
)
def test_failed_read_keeps_the_value_and_its_time(error: Exception, state: str, text: str) -> None:
    trouble: list[Exception] = []

    def read() -> int:
        if trouble:
            raise trouble[0]
        return 7

    source = Source(read, pause_s=0.01)
    first = source.look(5.0)
    assert (first.value, first.state, first.trouble) == (7, "live", "")
    trouble.append(error)
    seen = eventually(lambda: found if (found := source.look()).trouble else None)
    assert (seen.value, seen.state, seen.trouble) == (7, state, text)
    stopped_at = seen.at
    assert source.look().at == stopped_at
    trouble.clear()
    assert eventually(lambda: found if (found := source.look()).state == "live" else None).at > stopped_at


class FakeMaster:
    """A connection that records when it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


class FakeSession:
    """A session that opens a new connection each time."""

    def connect(self) -> FakeMaster:
        return FakeMaster()

    def supervisor(self, master: FakeMaster) -> Any:
        return type("Supervisor", (), {"master": master})()


def test_unresponsive_connection_is_closed() -> None:
    link = Link(lambda: cast("Any", FakeSession()), limit_s=0.05)
    with link.supervisor() as (_, supervisor):
        assert supervisor.master.closed.wait(30)  # type: ignore[attr-defined]
    with link.supervisor() as (_, again):
        assert again is supervisor  # its next command reconnects


class Proxy:
    """Forward connections to a server. Frozen ones stay open and carry nothing, like those of a laptop that slept."""

    def __init__(self, server: SshServer) -> None:
        self._to, self._frozen, self.host_key = server.port, threading.Event(), server.host_key
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def freeze(self) -> None:
        """Freeze the present connections. Later ones work."""
        self._frozen.set()
        self._frozen = threading.Event()

    def _serve(self) -> None:
        while True:
            near, _ = self._listener.accept()
            self.connections += 1
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # the test is over
                near.close()
                return
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, sink, self._frozen), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, frozen: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(65536):
                if not frozen.is_set():
                    sink.sendall(block)


def test_data_is_live_again_after_the_laptop_slept(tmp_path: Path) -> None:
    key = make_key(tmp_path / "id_ecdsa", "ecdsa")
    with serving(key) as server:
        proxy = Proxy(server)

        def connect() -> Master:
            return connect_to(cast("Any", proxy), key)

        class Session(FakeSession):
            def connect(self) -> Any:
                return connect().reopen_with(connect)

        link = Link(lambda: cast("Any", Session()), limit_s=2.0)

        def read() -> str:
            with link.supervisor() as (_, supervisor):
                return supervisor.master.run(["echo", "hello"]).text

        source = Source(read, pause_s=0.01, idle_s=1.0)
        first = eventually(lambda: found if (found := source.look(1.0)).value else None)
        assert (first.value, first.state) == ("hello\n", "live")
        proxy.freeze()
        eventually(lambda: source.look() and proxy.connections == 2)  # a page that is shown keeps looking
        began = time.time()
        awake = eventually(lambda: found if (found := source.look()).at > began else None)
        assert (awake.value, awake.state, awake.trouble) == ("hello\n", "live", "")
        eventually(lambda: source._thread is None)
        link.close()


def test_master_is_looked_up_again_after_failures() -> None:
    link = Link(lambda: cast("Any", FakeSession()))
    with link.supervisor() as (_, first):
        pass
    for _ in range(FAILURES_TO_RENEW):
        with pytest.raises(ConnectionFailedError), link.supervisor() as (_, used):
            assert used is first
            raise ConnectionFailedError("broke")
    assert first.master.closed.is_set()  # type: ignore[attr-defined]
    with link.supervisor() as (_, second):
        assert second is not first
    link.close()
    assert second.master.closed.is_set()  # type: ignore[attr-defined]
