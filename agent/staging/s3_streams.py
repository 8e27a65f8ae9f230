"""Read and write objects of a bucket as streams, by the AWS CLI of the node's image, with the node's own role.

Each call starts one command. The bytes go through a pipe, so that neither memory nor a disk holds them in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final

from agent.errors import ReportedError
from agent.staging.dataset import DatasetError
from agent.staging.manifest import ManifestError
from agent.staging.s3_objects import Prefix, parse_listing

INTERRUPT_S: Final = 10.0
"""For the CLI to take back what it has sent."""
_TIMES: Final = ("--cli-connect-timeout", "20", "--cli-read-timeout", "60")
"""Seconds; the CLI repeats each request by itself, so that a bucket that does not answer is told within minutes."""
_QUIET: Final = ("--only-show-errors", "--no-progress")


class BucketError(ReportedError, RuntimeError):
    """Report a bucket that cannot be used. Carries `address` and `reason`."""

    def __init__(self, doing: str, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        advice = "see that it exists and can be reached from this host, then go on with --resume"
        if any(word in reason for word in ("AccessDenied", "Forbidden", "403")):
            advice = (
                "name the bucket in checkpoint_buckets of cdk.json and deploy, or let this host's role use "
                "s3:ListBucket on the bucket and s3:GetObject, s3:PutObject, s3:DeleteObject and "
                "s3:AbortMultipartUpload on the prefix; then go on with --resume"
            )
        super().__init__(f"cannot {doing} {address}: {reason}; {advice}")


class BucketClient:
    """Use the objects below a prefix, by their paths relative to it."""

    def __init__(self, prefix: Prefix, *, program: str = "aws") -> None:
        """Name the prefix; nothing is asked of it yet."""
        self.prefix, self._program = prefix, program

    def address(self, path: str = "") -> str:
        """Return the address of an object."""
        return f"s3://{self.prefix.bucket}/{self.prefix.folder}{path}".rstrip("/")

    def paths(self) -> list[str]:
        """List the objects. Raises BucketError."""
        command = [self._program, *self.prefix.list_command(self.prefix.folder)[2:], *_TIMES]
        with self._running("list", self.address(), command) as process:
            text = process.communicate()[0].decode()
        try:
            return [entry.path for entry in parse_listing(text, self.prefix)]
        except (DatasetError, ManifestError) as error:
            raise BucketError("list", self.address(), str(error)) from None

    def put(self, path: str, size: int, write: Callable[[IO[bytes]], None]) -> None:
        """Stream an object of `size` bytes into the bucket: it is there whole or not at all, or, where this process is
        killed, cut off. Raises BucketError, and what `write` raises.
        """
        address = self.address(path)
        command = self._command("s3", "cp", "-", address, "--expected-size", str(size), *_QUIET)
        with self._running("write", address, command, stdin=subprocess.PIPE) as process:
            pipe = process.stdin
            if pipe:
                # A CLI that has ended says by its status why.
                with contextlib.suppress(BrokenPipeError):
                    write(pipe)
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            process.wait()

    @contextlib.contextmanager
    def get(self, path: str) -> Iterator[IO[bytes]]:
        """Stream an object from the bucket. Raises FileNotFoundError where there is none, else BucketError."""
        address = self.address(path)
        with self._running("read", address, self._command("s3", "cp", address, "-", *_QUIET)) as process:
            if process.stdout:
                yield process.stdout
            process.communicate()

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, by one request for each thousand. Raises BucketError."""
        for start in range(0, len(paths), 1000):
            keys = [{"Key": self.prefix.folder + path} for path in paths[start : start + 1000]]
            document = json.dumps({"Objects": keys, "Quiet": True})
            command = self._command("s3api", "delete-objects", "--bucket", self.prefix.bucket, "--delete", document)
            with self._running("delete from", self.address(), command) as process:
                process.communicate()

    def _command(self, *words: str) -> list[str]:
        region = ["--region", self.prefix.region] if self.prefix.region else []
        return [self._program, *words, *region, *_TIMES]

    @contextlib.contextmanager
    def _running(
        self, doing: str, address: str, command: Sequence[str], stdin: int = subprocess.DEVNULL
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run the CLI for the time of a block, and raise what its failure means, whatever the block made of it."""
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    command,
                    env={**os.environ, "PYTHONUTF8": "1", "AWS_PAGER": ""},
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    start_new_session=True,  # Signals for the launcher's group are not for the CLI.
                )
            except FileNotFoundError:
                reason = f"this host has no program {self._program}, which speaks with S3"
                raise BucketError(doing, address, reason) from None
            try:
                yield process
            except BaseException:
                if _ended_by_itself(process) and process.returncode:
                    _explain(doing, address, process.returncode, said)
                raise
            if process.returncode:
                _explain(doing, address, process.returncode, said)


def _ended_by_itself(process: subprocess.Popen[bytes]) -> bool:
    """End the CLI in the midst of its work; tell whether it had ended already, and so may know the reason.

    One that writes takes back the parts of its object. It would complete the object at the end of its standard input,
    so that the interrupt has to come before.
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


def _explain(doing: str, address: str, status: int, said: IO[bytes]) -> None:
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    reason = lines[-1].strip() if lines else f"the AWS CLI ended with status {status}"
    if doing == "read" and any(word in reason for word in ("NoSuchKey", "(404)", "Not Found")):
        raise FileNotFoundError(2, "No such object", address)
    raise BucketError(doing, address, reason)
