"""Servers behind the tunnel: their address is read from their output, and their end is reported."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from agent.spec.laptop_requests import RemoteCommand
from cluster.errors import DeepcdkError, UsageError
from cluster.ssh.master import Master
from cluster.ssh.web_tunnel import find_address, free_port, has_display, serve

NODE = "deeplearning-master"
REQUEST = RemoteCommand(command=("tensorboard",), master=True)
TENSORBOARD = "TensorBoard 2.21.0 at http://127.0.0.1:43123/ (Press CTRL+C to quit)"
JUPYTER = "    http://localhost:8888/lab?token=0123abcd"


class ServingMaster(Master):
    """Print these lines as the server on the master, then end it; record the forwarded ports."""

    def __init__(self, *lines: str) -> None:
        self.where, self._lines = "ec2-user@198.18.1.2", lines
        self.forwarded: list[tuple[int, int]] = []
        self.tunnel_open = threading.Event()

    def lines(
        self, argv: Any, *, directory: str = "", silence_s: float = 60.0, stdin: bytes = b"", feed: object = None
    ) -> Iterator[str]:
        yield json.dumps({"hosts": [NODE]})
        for line in self._lines:
            data = base64.b64encode(line.encode() + b"\n").decode()
            yield json.dumps({"host": NODE, "stream": "stderr", "data": data})
            if find_address(line):
                assert self.tunnel_open.wait(timeout=60)
        yield json.dumps({"host": NODE, "exit_code": 1, "reached": True, "seconds": 0.5})

    @contextlib.contextmanager
    def forward(self, local_port: int, remote_port: int) -> Iterator[None]:
        self.forwarded.append((local_port, remote_port))
        self.tunnel_open.set()
        yield


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (TENSORBOARD, (43123, "/")),
        ("http://localhost:65536/", None),
        ("http://localhost:0/", None),
        ("http://localhost:8888/lab\x1b[2J", (8888, "/lab")),
        (JUPYTER, (8888, "/lab?token=0123abcd")),
        ("NOTE: Using experimental fast data loading logic.", None),
        ("http://10.0.0.5:8888/", None),
    ],
)
def test_server_reports_its_port(line: str, address: tuple[int, str] | None) -> None:
    assert find_address(line) == address


@pytest.mark.parametrize(
    ("environ", "platform", "opens"),
    [
        ({}, "darwin", True),
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
    ],
)
def test_browser_is_opened_only_with_a_display(environ: dict[str, str], platform: str, opens: bool) -> None:
    assert has_display(environ, platform) is opens


def test_tunnel_uses_the_port_of_the_server() -> None:
    master = ServingMaster("NOTE: loading", TENSORBOARD, "W1121 a warning")
    told: list[str] = []
    with pytest.raises(DeepcdkError, match="has exited") as raised:
        serve(master, "/mnt/efs/payloads/x", REQUEST, port=7007, browser=False, report=told.append)
    assert master.forwarded == [(7007, 43123)]
    assert told == ["http://localhost:7007/ until Ctrl-C"]
    assert "a warning" in str(raised.value)


def test_server_that_fails_to_start_is_reported_with_its_last_lines() -> None:
    lines = "exited at its start\n    no module named tensorboard\n  do: fix the cause that these lines show"
    with pytest.raises(DeepcdkError, match=lines):
        serve(ServingMaster("no module named tensorboard"), "/x", REQUEST, port=7007, browser=False, report=print)


def test_ctrl_c_stops_running_server_and_interrupts_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def press(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    master = ServingMaster(TENSORBOARD)
    serve(master, "/payload", REQUEST, port=6006, browser=False, report=press)
    assert master.forwarded == [(6006, 43123)]
    monkeypatch.setattr("cluster.ssh.web_tunnel.doing", press)
    with pytest.raises(KeyboardInterrupt):
        serve(ServingMaster(TENSORBOARD), "/payload", REQUEST, port=6006, browser=False, report=print)


def test_port_in_use_is_rejected_with_its_flag() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="--port"):
            free_port(port)
    assert free_port(0) > 0
