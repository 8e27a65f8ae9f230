"""Run JupyterLab on one node, on its loopback interface, until the laptop that started it disconnects.

    python -m agent.remote.notebook REQUEST      # on the master; REQUEST: JSON, see `NotebookRequest`

On another node it runs over SSH, and SSH forwards the same port on the master's loopback interface. The token is
created on the node and passed to the server in its environment. It is printed once, with the address, for the laptop,
and is on no command line and in no log. While JupyterLab runs, it stores the token in a file that only this user can
read. The packages are installed over the runtime, like those of a run's program (`agent.environment.program_packages`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.environment import runtime
from agent.environment.install_step import RuntimeSetupError
from agent.environment.program_packages import Overlay
from agent.errors import describe
from agent.hardware.machine import this_node_kind
from agent.polling import terminate
from agent.remote.ssh import OWN_TREE, SSH
from agent.spec.frameworks import LOCK_FILE
from agent.spec.laptop_requests import NOTEBOOK_PREFIX, NotebookRequest
from agent.spec.node_kinds import runtime_kind
from agent.spec.nodes import MASTER_NAME, NODE_PYTHON
from agent.spec.run import PROGRAM_FOLDER

MODULE: Final = "jupyterlab"
START_S: Final = 120.0
"""How long the server may take until it listens, including its imports from a cold disk."""
_POLL_S: Final = 0.2


class NotebookError(RuntimeError):
    """Report a notebook whose server did not start to listen in time."""


def server_command(python: Path, port: int, root: str) -> list[str]:
    """Build JupyterLab's command line, for this Python and port. Every user of the node can read it.

    `root` is the directory that JupyterLab shows.
    """
    options = {
        "ip": "127.0.0.1",
        "port": str(port),
        "port_retries": "0",
        "root_dir": root,
        "open_browser": "False",
        # At a lower level, it would also print its address, with three dots instead of the token.
        "log_level": "WARN",
    }
    return [str(python), "-m", MODULE, *(f"--ServerApp.{name}={value}" for name, value in options.items())]


def forwarding(ssh: str, directory: str, request: NotebookRequest) -> list[str]:
    """Build the command that runs a notebook on another node and forwards the master's port to it.

    `ssh` is the path of the SSH client. `directory` is the agent's tree on the node. The request must contain a port.
    """
    here = f"127.0.0.1:{request.port}"
    # The last word is for the shell that SSH starts on the node.
    script = f"cd {shlex.quote(directory)} && exec {shlex.join([NODE_PYTHON, '-m', 'agent.remote.notebook', '--here'])}"
    line = f"{script} {shlex.quote(request.to_json())}"
    return [ssh, "-o", "ExitOnForwardFailure=yes", "-L", f"{here}:{here}", request.node, line]


def free_port() -> int:
    """Return the number of a port that is free now on this node's loopback interface. It is not reserved."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def report(text: str) -> None:
    """Write a line of progress to stderr, after NOTEBOOK_PREFIX, so that the laptop recognizes it."""
    print(f"{NOTEBOOK_PREFIX}{text}", file=sys.stderr, flush=True)


def make_python(request: NotebookRequest, home: Path) -> Path:
    """Make the environments for JupyterLab on this node if necessary, which takes minutes; return their Python's path.

    `home` is the login user's home. Progress is printed to stderr. Raises RuntimeSetupError, ValueError or OSError.
    """
    wheelhouse = Path(request.efs_mount) / "payloads" / ".wheelhouse"
    kind = runtime_kind({request.node: this_node_kind()})
    python = runtime.ensure(runtime.settings_for(kind, request.horovod_wheelhouse), wheelhouse)
    root = home / ".cache" / "deepcdk" / "layers"
    program = Path(request.tree) / PROGRAM_FOLDER
    lock = (Path(request.tree) / LOCK_FILE).read_text(encoding="utf-8")
    return Overlay(runtime=python, program=program, lock=lock, root=root, wheelhouse=wheelhouse, report=report).ensure()


def serve(command: Sequence[str], port: int, *, asker: int | None) -> int:
    """Run the server `command` until it exits or the file descriptor `asker` is closed.

    When the server listens, print its address, which contains a new token. Return the server's status. If `asker` was
    closed, the server is terminated, and the result is 0. `asker` may be None. Raises NotebookError if the server does
    not start to listen on `port` within START_S.
    """
    token = secrets.token_urlsafe(24)
    environment = {**os.environ, "JUPYTER_TOKEN": token}
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
    deadline, announced = time.monotonic() + START_S, False
    try:
        while server.poll() is None:
            if not announced and _listens(port):
                announced = True
                print(f"http://127.0.0.1:{port}/lab?token={token}", flush=True)
            if not announced and time.monotonic() > deadline:
                raise NotebookError(
                    f"JupyterLab did not start listening on port {port} within {START_S:.0f} s; if its messages above "
                    "report a cause, correct it; then repeat the command"
                )
            watched = [] if asker is None else [asker]
            if select.select(watched, [], [], _POLL_S)[0] and not os.read(watched[0], 4096):
                return 0
        return server.returncode
    finally:
        if server.poll() is None:
            terminate(server)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _run_elsewhere(request: NotebookRequest) -> int:
    """Run the notebook on another node over SSH until it exits; return its status."""
    tree = f"{request.efs_mount}/payloads/{OWN_TREE.name}"  # OWN_TREE itself is only on the master's disk.
    # When this process exits for any reason, its pipe to the child closes, which stops the notebook.
    with subprocess.Popen(forwarding(SSH, tree, request), stdin=subprocess.PIPE) as process:
        return process.wait()


def main(argv: Sequence[str]) -> int:
    """Run the notebook that the last argument requests as JSON, on this node or another; return the exit status.

    After an error, print it and return 1.
    """
    *flags, text = argv
    request = NotebookRequest(**json.loads(text))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if request.node != MASTER_NAME and "--here" not in flags:
            return _run_elsewhere(dataclasses.replace(request, port=request.port or free_port()))
        python, port = make_python(request, Path.home()), request.port or free_port()
        return serve(server_command(python, port, request.efs_mount), port, asker=0 if "--here" in flags else None)
    except (RuntimeSetupError, NotebookError, ValueError, OSError) as error:
        print(describe(error), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
