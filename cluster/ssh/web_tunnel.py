"""Run a web server on the master's loopback. Only this laptop reaches it, through a tunnel in the SSH connection."""

from __future__ import annotations

import os
import queue
import re
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from agent.spec.laptop_requests import NOTEBOOK_PREFIX
from cluster.errors import DeepcdkError, UsageError
from cluster.ssh import command_on_nodes
from cluster.terminal.status_line import doing

if TYPE_CHECKING:
    from agent.spec.laptop_requests import RemoteCommand
    from cluster.ssh.master import Master

LAST_PORT: Final = 65535
START_S: Final = 120.0
"""Time limit for a server to print its address. Its imports may come from a cold disk."""
ADDRESS: Final = re.compile(r"https?://(?:localhost|127\.0\.0\.1):([0-9]{1,5})(/[!-~]*)?")


def free_port(wanted: int) -> int:
    """Return `wanted` if this port is free on this machine's loopback; for 0, any free port. It is not reserved.

    Raises UsageError, which names --port, if the port is not available.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            rule = f"is not available on this machine ({error.strerror}); choose another port, or leave out --port"
            raise UsageError("--port", str(wanted), rule) from None
        return int(probe.getsockname()[1])


def find_address(line: str) -> tuple[int, str] | None:
    """Return port and path of the local URL in a line of the server's output; None if there is none.

    The path is "/" if the URL has none, and includes the query, such as a token.
    """
    found = ADDRESS.search(line)
    port = int(found[1]) if found else 0
    return (port, found[2] or "/") if found and 0 < port <= LAST_PORT else None


def has_display(environ: Mapping[str, str], platform: str) -> bool:
    """Return whether a browser can open a window: on a Mac, or with X11 or Wayland.

    A browser in the terminal would take the terminal from the task.
    """
    return platform == "darwin" or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def serve(
    master: Master,
    directory: str,
    request: RemoteCommand,
    *,
    port: int,
    browser: bool,
    report: Callable[[str], None],
    start_s: float = START_S,
    hint: str = "",
) -> None:
    """Run a server on the master until Ctrl-C, with a tunnel to it from `port` of this machine. `report` gets the URL.

    `directory` is the pushed tree with the agent. `request` is the command that starts the server. With `browser`, the
    URL is opened if there is a display. Lines of the server's output that start with `NOTEBOOK_PREFIX` are reported
    without the prefix. Ctrl-C raises KeyboardInterrupt until the tunnel is open. After that, Ctrl-C makes the function
    return. Raises DeepcdkError with the server's last lines and `hint`, a further remedy, if the server exits by
    itself, or if it does not print its address within `start_s` seconds.
    """
    lines: list[str] = []
    addresses: queue.Queue[tuple[int, str] | BaseException | None] = queue.Queue()

    def read(stream: str, line: str) -> None:
        text = line.partition("| ")[2]
        if text.startswith(NOTEBOOK_PREFIX):
            report(text.removeprefix(NOTEBOOK_PREFIX))
            return
        lines.append(text)
        if address := find_address(line):
            addresses.put(address)

    def run() -> None:
        try:
            command_on_nodes.run(master, directory, request, command_on_nodes.PrefixedOutput(read, colored=False))
            addresses.put(None)
        except BaseException as error:  # raised again by the thread that waits
            addresses.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        with doing("waiting for the server on the master"):
            first = addresses.get(timeout=start_s)
    except queue.Empty:
        raise _ended(f"did not print its address within {start_s:.0f} s", lines, hint) from None
    if not isinstance(first, tuple):
        raise first if isinstance(first, DeepcdkError) else _ended("exited at its start", lines, hint)
    with master.forward(port, first[0]):
        try:
            url = f"http://localhost:{port}{first[1]}"
            report(f"{url} until Ctrl-C")
            if browser and has_display(os.environ, sys.platform):
                webbrowser.open(url)
            while isinstance(last := addresses.get(), tuple):
                continue  # the same address again
        except KeyboardInterrupt:
            return
    raise last if isinstance(last, DeepcdkError) else _ended("has exited", lines, hint)


def _ended(what: str, lines: list[str], hint: str) -> DeepcdkError:
    last_lines = "".join(f"\n    {line}" for line in lines[-command_on_nodes.LAST_LINES :])
    remedy = "fix the cause that these lines show, then repeat the command" if lines else "repeat the command"
    return DeepcdkError(
        f"the web server on the master {what}{last_lines}", remedy=f"{remedy}; {hint}" if hint else remedy
    )
