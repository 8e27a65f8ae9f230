"""The way to the master without an open port: a stream over Session Manager, through the AWS CLI and its plugin."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Final, TypeVar

from cluster.errors import ConnectionFailedError
from stacks.config import SSH_PORT

T = TypeVar("T")

DOCUMENT: Final = "AWS-StartSSHSession"
"""AWS's own document: a stream to a port of the node."""
CLI: Final = "aws"
PLUGIN: Final = "session-manager-plugin"
APPEAR_S: Final = 90.0
"""How long a node that has just booted may take until Session Manager knows it."""
BANNER_S: Final = 30.0
"""How long the SSH server's greeting may take: the CLI starts first, and AWS opens the session."""
_NOT_YET: Final = "TargetNotConnected"
_PAUSE_S: Final = 2.0
_REMEDIES: Final = {
    CLI: "install the AWS CLI: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
    PLUGIN: "install AWS's plugin for the CLI: https://docs.aws.amazon.com/systems-manager/latest/userguide/"
    "session-manager-working-with-install-plugin.html",
}


def command(instance_id: str, region: str) -> list[str]:
    """Build the command whose standard input and output are a stream to the node's SSH server."""
    place = ["--region", region] if region else []
    target = ["--target", instance_id, "--document-name", DOCUMENT, "--parameters", f"portNumber={SSH_PORT}"]
    return [CLI, "ssm", "start-session", *place, *target]


def proxy_command(instance_id: str, region: str) -> str:
    """Return the command as ssh_config takes it, where % begins a token."""
    return shlex.join(command(instance_id, region)).replace("%", "%%")


def check_programs(find: Callable[[str], str | None] = shutil.which) -> None:
    """Raise ConnectionFailedError for the first program that is missing on the laptop."""
    for program in (CLI, PLUGIN):
        if find(program) is None:
            raise ConnectionFailedError(
                f"the program {program} is not installed, and the cluster is reached over Session Manager alone",
                where="ssh_access = session-manager",
                remedy=_REMEDIES[program],
            )


class Tunnel:
    """Run the command; `socket` is the stream. Close it to end the session."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.socket, theirs = socket.socketpair()
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process that writes it
        with theirs:
            # A session of its own: Ctrl-C is the task's, which may still want the master for its last words.
            self._process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._words,
                start_new_session=True,
                env=_environment(),
            )

    def close(self) -> str:
        """End the stream, and the command with it; return what the command said, in one line, where it failed."""
        self.socket.close()
        with self._words:
            try:
                status = self._process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait()
                return ""
            self._words.seek(0)
            said = " ".join(self._words.read().decode("utf-8", errors="replace").split())
        return said if status else ""


def _environment() -> dict[str, str]:
    # The CLI's own way to show what it answers is no part of the stream.
    return {**os.environ, "AWS_PAGER": "", "AWS_CLI_AUTO_PROMPT": "off"}


def persist(attempt: Callable[[Tunnel], T], argv: Sequence[str], *, appear_s: float = APPEAR_S) -> T:
    """Return what `attempt` makes of a tunnel; repeat it with another one while the node is not known yet.

    Raises ConnectionFailedError with what the command said; where the command did not fail, what the attempt raised.
    """
    deadline = time.monotonic() + appear_s
    while True:
        tunnel = Tunnel(argv)
        try:
            return attempt(tunnel)
        except ConnectionFailedError:
            said = tunnel.close()
            if not said:
                raise
            if _NOT_YET not in said or time.monotonic() >= deadline:
                raise explain(said, argv) from None
        except BaseException:
            tunnel.close()
            raise
        time.sleep(_PAUSE_S)


def explain(said: str, argv: Sequence[str]) -> ConnectionFailedError:
    """Turn what the AWS CLI said into an error that says what to do."""
    remedy = "try the command by hand"
    if _NOT_YET in said:
        remedy = "the master must run the SSM agent and reach AWS: look at its boot with `aws ec2 get-console-output`"
    elif "AccessDenied" in said:
        remedy = f"ask for ssm:StartSession on the master's instance and on the document {DOCUMENT}"
    elif "Expired" in said or "credentials" in said:
        remedy = "sign in again (`aws sso login`, or fresh keys), then repeat"
    return ConnectionFailedError(f"Session Manager opens no session: {said}", where=shlex.join(argv), remedy=remedy)
