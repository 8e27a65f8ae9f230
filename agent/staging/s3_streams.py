"""Read and write objects of a bucket as streams, through the AWS CLI, with the node's own role.

Each operation starts one command. The bytes go through a pipe and are not buffered in memory or on a disk.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from agent.errors import ReportedError
from agent.staging.aws_cli import QUIET, AwsCliError, aws_command, running
from agent.staging.errors import DatasetError
from agent.staging.manifest import ManifestError
from agent.staging.s3_objects import Prefix, parse_listing


class BucketError(ReportedError, RuntimeError):
    """Report a bucket that cannot be used. Carries `address`, `reason`, and `what`, the message without the advice to
    resume.
    """

    def __init__(self, doing: str, address: str, reason: str, *, advises: bool = False) -> None:
        """Describe what failed. `advises`: `reason` already contains advice, so none is added."""
        self.address, self.reason = address, reason
        advice = "check that the bucket exists and this host can reach it"
        if any(word in reason for word in ("AccessDenied", "Forbidden", "403", "Unable to locate credentials")):
            advice = (
                "add the bucket to checkpoint_buckets in cdk.json, deploy, and replace workers that booted before "
                "cdk.json named a bucket; or let this host's role use "
                "s3:ListBucket on the bucket and s3:GetObject, s3:PutObject, s3:DeleteObject and "
                "s3:AbortMultipartUpload on the prefix"
            )
        self.what = f"cannot {doing} {address}: {reason}" + ("" if advises else f"; {advice}")
        super().__init__(f"{self.what}, then continue with `fab resume`, or repeat the command with --resume")


class BucketClient:
    """Read and write the objects below a prefix, by their paths relative to the prefix."""

    def __init__(self, prefix: Prefix, *, program: str = "aws") -> None:
        """Create a client for the prefix, without any request."""
        self.prefix, self._program = prefix, program

    def address(self, path: str = "") -> str:
        """Return the address of the object `path`, or of the prefix if it is ""."""
        return f"s3://{self.prefix.bucket}/{self.prefix.folder}{path}".rstrip("/")

    def paths(self) -> list[str]:
        """List the paths of the objects below the prefix; [] if there are none. Raises BucketError."""
        command = self._command(*self.prefix.list_words(self.prefix.folder))
        with self._running("list", self.address(), command) as process:
            text = process.communicate()[0].decode()
        try:
            return [entry.path for entry in parse_listing(text, self.prefix)]
        except (DatasetError, ManifestError) as error:
            raise BucketError("list", self.address(), str(error)) from None

    def put(self, path: str, size: int, write: Callable[[IO[bytes]], None]) -> None:
        """Stream an object of `size` bytes into the bucket. It appears only when it is complete.

        But if this process is killed, a truncated object may appear. `write` writes the bytes to a pipe. Raises
        BucketError, and the errors of `write`.
        """
        address = self.address(path)
        command = self._command("s3", "cp", "-", address, "--expected-size", str(size), *QUIET)
        with self._running("write", address, command, stdin=subprocess.PIPE) as process:
            pipe = process.stdin
            if pipe:
                # If the CLI has exited, its status gives the reason.
                with contextlib.suppress(BrokenPipeError):
                    write(pipe)
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            process.wait()

    @contextlib.contextmanager
    def get(self, path: str) -> Iterator[IO[bytes]]:
        """Yield an object's content as a stream. Raises FileNotFoundError if it does not exist, else BucketError."""
        address = self.address(path)
        with self._running("read", address, self._command("s3", "cp", address, "-", *QUIET)) as process:
            if process.stdout:
                yield process.stdout
            process.communicate()

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, one request per thousand; missing objects are ignored.

        Raises BucketError if S3 does not delete an object. Others may be deleted then.
        """
        for start in range(0, len(paths), 1000):
            keys = [{"Key": self.prefix.folder + path} for path in paths[start : start + 1000]]
            document = json.dumps({"Objects": keys, "Quiet": True})
            words = ("s3api", "delete-objects", "--bucket", self.prefix.bucket, "--delete", document)
            with self._running("delete from", self.address(), self._command(*words, "--output", "json")) as process:
                answer = process.communicate()[0].decode(errors="replace")
            if reason := _why_not_deleted(answer):
                raise BucketError("delete from", self.address(), reason)

    def _command(self, *words: str) -> list[str]:
        return aws_command(*words, region=self.prefix.region, program=self._program)

    @contextlib.contextmanager
    def _running(
        self, doing: str, address: str, command: Sequence[str], stdin: int = subprocess.DEVNULL
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run the CLI's `command` during a block; yield its process, and check its exit status after the block.

        `doing` and `address` are for the error. Raises BucketError if the CLI failed, or FileNotFoundError if the
        object to read does not exist.
        """
        try:
            with running(command, stdin=stdin) as process:
                yield process
        except AwsCliError as error:
            lines = [line.strip() for line in error.stderr.splitlines() if line.strip()]
            reason = lines[-1] if lines else f"the AWS CLI failed with exit status {error.status}"
            if doing == "read" and any(word in reason for word in ("NoSuchKey", "(404)", "Not Found")):
                raise FileNotFoundError(2, "No such object", address) from None
            raise BucketError(doing, address, reason, advises=error.status is None) from None


def _why_not_deleted(answer: str) -> str:
    """Return the first error in the CLI's answer to delete-objects, or "". The CLI exits with 0 in both cases."""
    if not answer.strip():
        return ""
    try:
        errors = json.loads(answer).get("Errors") or ()
        return next((f"{error['Code']} for {error['Key']}" for error in errors), "")
    except (ValueError, AttributeError, KeyError, TypeError):
        return f"the AWS CLI printed an invalid answer: {answer[:200]!r}"
