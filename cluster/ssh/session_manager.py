"""Reach the master without an open port: a stream over Session Manager, through the AWS CLI and its plugin."""

from __future__ import annotations

import datetime
import math
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Final, TypeVar

from agent.polling import terminate
from cluster.errors import ConnectionFailedError
from cluster.polling import poll
from cluster.terminal.status_line import warn
from cluster.terminal.units import span
from stacks.config import SSH_PORT

if TYPE_CHECKING:
    from cluster.aws.client import Aws

T = TypeVar("T")

DOCUMENT: Final = "AWS-StartSSHSession"
"""AWS's own document for a stream to a port of the node."""
CLI: Final = "aws"
PLUGIN: Final = "session-manager-plugin"
REGISTER_TIMEOUT_S: Final = 300.0
"""Maximum time for a node to register with Session Manager after its launch. The agent retries with growing pauses
until its role's credentials and its network are available, and may update itself at the first boot.
"""
REBOOT_TIMEOUT_S: Final = 60.0
"""Maximum wait for the agent of a node that was launched earlier, which may be rebooting."""
_TELL_AFTER_S: Final = 15.0
BANNER_TIMEOUT_S: Final = 30.0
"""Timeout for the SSH server's banner. Before it, the CLI has to start and AWS to open the session."""
_NOT_REGISTERED: Final = "TargetNotConnected"
_POLL_S: Final = 2.0
INSTALL: Final = {
    CLI: "install the AWS CLI: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
    PLUGIN: "install AWS's plugin for the CLI: https://docs.aws.amazon.com/systems-manager/latest/userguide/"
    "session-manager-working-with-install-plugin.html",
}
"""How to install each program that connects over Session Manager."""


def command(instance_id: str, region: str) -> list[str]:
    """Return the command that connects its standard input and output to the node's SSH server."""
    place = ["--region", region] if region else []
    target = ["--target", instance_id, "--document-name", DOCUMENT, "--parameters", f"portNumber={SSH_PORT}"]
    return [CLI, "ssm", "start-session", *place, *target]


def proxy_command(instance_id: str, region: str) -> str:
    """Return the command of `command` as one text for a ProxyCommand in ssh_config. Each % is doubled for that."""
    return shlex.join(command(instance_id, region)).replace("%", "%%")


def register_timeout_s(launched: datetime.datetime, now: datetime.datetime) -> float:
    """Return how long to wait for a node's agent, s: the rest of REGISTER_TIMEOUT_S, and at least REBOOT_TIMEOUT_S."""
    age_s = max(0.0, (now - launched).total_seconds())  # the laptop's clock may be slow
    return max(REBOOT_TIMEOUT_S, REGISTER_TIMEOUT_S - age_s)


def check_programs(find: Callable[[str], str | None] = shutil.which) -> None:
    """Raise ConnectionFailedError if the AWS CLI or its plugin is missing on the laptop. `find` returns a program's
    path.
    """
    for program in (CLI, PLUGIN):
        if find(program) is None:
            raise ConnectionFailedError(
                f"{program} is not installed, but the cluster is reached only over Session Manager",
                where="ssh_access = session-manager",
                remedy=INSTALL[program],
            )


class Tunnel:
    """Run a command with the other end of `socket` as its input and output. Close the tunnel to end the session."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str] | None = None, *, in_terminal: bool = False
    ) -> None:
        """Start the command `argv`, with `environment` or else this process's environment variables.

        With `in_terminal`, it may ask on the terminal, as ssh does for a jump host's passphrase.
        """
        self.socket, theirs = socket.socketpair()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process that writes it
        with theirs:
            # Start a new session, because the task may still need the master after Ctrl-C.
            self._process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                start_new_session=not in_terminal,
                env=environment,
            )

    def close(self) -> str:
        """Close the stream, and wait until the command exits. After 5 s, terminate it, and after 5 more, kill it.

        Return its error output in one line if it failed; "" if it succeeded or was terminated.
        """
        self.socket.close()
        with self._stderr:
            try:
                status = self._process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                terminate(self._process)
                return ""
            self._stderr.seek(0)
            output = " ".join(self._stderr.read().decode("utf-8", errors="replace").split())
        return output if status else ""


def environment(aws: Aws) -> dict[str, str]:
    """Return the environment variables for the AWS CLI, with this task's credentials. Raises AwsError."""
    # A pager or a prompt of the CLI must not write into the stream.
    return {**aws.environment(), "AWS_PAGER": "", "AWS_CLI_AUTO_PROMPT": "off"}


def open_tunnel(
    connect: Callable[[Tunnel], T],
    argv: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    timeout_s: float,
) -> T:
    """Open a tunnel through the command `argv`, and return `connect(tunnel)`. Repeat while the node is not registered.

    Each attempt has a new tunnel. After some seconds, a warning tells the user about the wait, which lasts at most
    `timeout_s`. Raises ConnectionFailedError with the output of the command. If the command did not fail, raises the
    error of `connect`.
    """
    output, tell_at = "", time.monotonic() + _TELL_AFTER_S
    for _ in poll(timeout_s, every_s=_POLL_S):
        if output and time.monotonic() >= tell_at:
            warn(f"the SSM agent of the master has not registered yet; waiting up to {span(timeout_s)} for it")
            tell_at = math.inf
        tunnel = Tunnel(argv, environment)
        try:
            return connect(tunnel)
        except ConnectionFailedError:
            output = tunnel.close()
            if not output:
                raise
            if _NOT_REGISTERED not in output:
                break
        except BaseException:
            tunnel.close()
            raise
    raise explain(output, argv)


def explain(output: str, argv: Sequence[str]) -> ConnectionFailedError:
    """Return the error for an error output of the AWS CLI, with a remedy. `argv` is the command."""
    remedy = "run the command by hand to find the cause"
    if _NOT_REGISTERED in output:
        remedy = (
            "the master must be running, have the SSM agent in its image, and reach AWS. Check its boot with "
            "`aws ec2 get-console-output`. If the master restarts, repeat in a minute"
        )
    elif "AccessDenied" in output:
        remedy = f"request ssm:StartSession on the master's instance and on the document {DOCUMENT}"
    elif "Expired" in output or "credentials" in output:
        remedy = "sign in again (`aws sso login`, or new keys), then repeat"
    return ConnectionFailedError(
        f"Session Manager did not open a session: {output}", where=shlex.join(argv), remedy=remedy
    )
