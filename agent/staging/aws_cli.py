"""Run the AWS CLI of the nodes' image: its options, its environment, its termination and its errors.

The nodes' own Python, which stages data and copies runs, has only the standard library, so it cannot use boto3. The
image contains the CLI, which splits large objects, retries, and uses the node's role. Runs use the CLI for their
checkpoints too, so there is only one client to install and debug.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import IO, Final

NICE: Final = "nice"
"""Runs a command at low CPU priority."""
NOT_FOUND: Final = 127
"""Exit status of NICE if it does not find the command. The CLI itself never exits with it."""
INTERRUPT_S: Final = 10.0
"""Time for the CLI to abort a multipart upload."""
QUIET: Final = ("--only-show-errors", "--no-progress")
"""Options of `aws s3` that limit its output to errors."""
TIMEOUTS: Final = ("--cli-connect-timeout", "20", "--cli-read-timeout", "60")
"""Seconds. The CLI retries each request, so an unresponsive bucket is reported within minutes."""


class AwsCliError(RuntimeError):
    """Report a failed call of the AWS CLI. Carries `status`, which is None if the CLI is missing, and `stderr`."""

    def __init__(self, status: int | None, stderr: str) -> None:
        self.status, self.stderr = status, stderr
        super().__init__(stderr)


def aws_command(*words: str, region: str = "", program: str = "aws", in_background: bool = False) -> list[str]:
    """Build a command line of the CLI `program` with these words, and with limits for connecting and reading.

    With `in_background` it runs at low CPU priority. `region` "" leaves the region to the CLI.
    """
    place = ("--region", region) if region else ()
    return [*((NICE,) if in_background else ()), program, *words, *place, *TIMEOUTS]


def cli_environment() -> dict[str, str]:
    """Return this process's environment for the CLI: without a pager, and with UTF-8.

    The CLI decodes file names by the locale.
    """
    return {**os.environ, "PYTHONUTF8": "1", "AWS_PAGER": ""}


@contextlib.contextmanager
def running(command: Sequence[str], *, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Run the CLI during a block; yield its process, with its output in a pipe. It has exited when the block is left.

    Leaving the block waits for the CLI, or terminates it after an error in the block. Raises AwsCliError if the CLI
    fails or is not installed. That error replaces an error in the block, which is only its consequence.
    """
    import tempfile  # Not at the top: the supervisor imports this module too.

    with tempfile.TemporaryFile() as stderr:  # Only errors (QUIET): a few lines, which fit even if /tmp is in memory.
        try:
            process = subprocess.Popen(
                command,
                env=cli_environment(),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Signals for the launcher's process group must not reach the CLI.
            )
        except FileNotFoundError:
            raise _failure(command, NOT_FOUND, "") from None
        try:
            yield process
        except BaseException:
            if _terminate(process) and process.returncode:
                raise _failure(command, process.returncode, _text(stderr)) from None
            raise
        if process.wait():
            raise _failure(command, process.returncode, _text(stderr))


def _failure(command: Sequence[str], status: int, stderr: str) -> AwsCliError:
    """Return the error for a failed call of the CLI."""
    if status != NOT_FOUND:
        return AwsCliError(status, stderr)
    return AwsCliError(
        None,
        f"the AWS CLI ({next(word for word in command if word != NICE)}), which is needed for S3, is not installed on "
        "this host; install it, or use an image that contains it",
    )


def _terminate(process: subprocess.Popen[bytes]) -> bool:
    """Terminate the CLI; return whether it had already exited by itself. Its stderr may then have the reason.

    A CLI that uploads aborts the upload on SIGINT. At the end of its standard input it would complete the object
    instead, so SIGINT is sent before the pipe is closed.
    """
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.2)
    ended = process.poll() is not None
    if not ended and process.stdin:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_S)
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    return ended


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
