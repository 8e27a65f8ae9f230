"""Run the AWS CLI of the nodes' image: its flags, its environment, how it is ended and how it fails.

S3 is reached through the CLI and not through boto3, because the nodes' own Python, which stages data and keeps the copy
of a run, has the standard library alone; only the CLI is in the image, and it already splits large objects, retries and
uses the node's role. Runs use the same client for their checkpoints, so that there is one to install and to debug.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Final

INTERRUPT_S: Final = 10.0
"""For the CLI to abort a multipart upload."""
QUIET: Final = ("--only-show-errors", "--no-progress")
"""For `aws s3`: errors alone."""
TIMEOUTS: Final = ("--cli-connect-timeout", "20", "--cli-read-timeout", "60")
"""Seconds. The CLI retries each request, so that a bucket that does not answer is reported within minutes."""


class AwsCliError(RuntimeError):
    """Report a call of the AWS CLI that failed. Carries `status`, None where there is no such program, and `stderr`."""

    def __init__(self, status: int | None, stderr: str) -> None:
        self.status, self.stderr = status, stderr
        super().__init__(stderr)


def aws_command(*words: str, region: str = "", program: str = "aws", in_background: bool = False) -> list[str]:
    """Build a command line of the CLI; `in_background` gives way to what else the node does."""
    place = ("--region", region) if region else ()
    return [*(("nice",) if in_background else ()), program, *words, *place, *TIMEOUTS]


def cli_environment() -> dict[str, str]:
    """Return the environment of the CLI: no pager, and UTF-8, for it reads files' names in the locale's encoding."""
    return {**os.environ, "PYTHONUTF8": "1", "AWS_PAGER": ""}


@contextlib.contextmanager
def running(command: Sequence[str], *, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Run the CLI during a block, with its output in a pipe; it has ended after the block.

    Raises AwsCliError where it failed, also in place of an error of the block, which is then only its consequence.
    """
    with tempfile.TemporaryFile() as stderr:  # Errors alone (QUIET): a few lines, also where /tmp is in memory.
        try:
            process = subprocess.Popen(
                command,
                env=cli_environment(),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Signals for the group of the launcher are not for the CLI.
            )
        except FileNotFoundError as error:
            raise AwsCliError(None, f"this host has no program {error.filename}, which speaks with S3") from None
        try:
            yield process
        except BaseException:
            if _has_ended(process) and process.returncode:
                raise AwsCliError(process.returncode, _text(stderr)) from None
            raise
        if process.wait():
            raise AwsCliError(process.returncode, _text(stderr))


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """End the CLI; return whether it had ended by itself, and so may know the reason.

    One that uploads aborts the upload on an interrupt. At the end of its standard input it would complete the object,
    so that the interrupt has to come first.
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
