"""The copy of a run in the bucket. It is updated while the run is live and once after it, and outlives the cluster.

The AWS CLI of the master's image makes the copy with the master's role. The role may list and write objects below
`runs/`, but neither read nor delete them. Checkpoints are not copied, and neither are the files with the values of the
ranks' variables.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final

from agent.errors import malformed
from agent.files.safe_read import count_files, read_regular
from agent.polling import terminate
from agent.remote.ssh import Completed, execute
from agent.runs.run_directory import ORIGIN_FILE, RunDirectory
from agent.spec import untrusted_json
from agent.spec.run import WORK_FOLDER
from agent.staging.aws_cli import QUIET, aws_command

PERIOD_S: Final = 60.0
TIMEOUT_S: Final = 120.0
"""Limit for each command of the last copy, so that a bucket that does not answer cannot block the run's end."""
WORK_LIMIT: Final = 1 << 30
"""Maximum size of the program's working directory in bytes. A larger one probably contains data and is not copied."""
# Names of incomplete files begin with a dot.
NOT_COPIED: Final = ("checkpoints/*", "spec*.json", "launch.json", "state.json", ".*", "*/.*")


def destination(directory: RunDirectory) -> tuple[str, str]:
    """Return the S3 address of a run's copy, and the bucket's region. The address is "" for a run without a bucket.

    Raises ValueError, which names the file, if the run's origin.json is invalid or cannot be read. A run without this
    file has no bucket.
    """
    path = directory.path / ORIGIN_FILE
    try:
        origin = untrusted_json.parse(read_regular(path))
        bucket, region = str(origin["bucket"]), str(origin["region"])
    except FileNotFoundError:
        return "", ""
    except OSError as error:
        raise ValueError(f"{path}, which names the bucket, cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}, which names the bucket, is invalid: {malformed(error)}") from None
    return (f"s3://{bucket}/runs/{directory.run_id}" if bucket else ""), region


def command(directory: RunDirectory, address: str, region: str, *, excluded: Sequence[str] = ()) -> list[str]:
    """Build the command that uploads a run's new and changed files to the S3 address `address`.

    It deletes nothing there. Symbolic links, checkpoints, specs, launch.json, state.json and names that begin with a
    dot are left out. `excluded` are further patterns of `aws s3 sync --exclude`.
    """
    left_out = (word for pattern in (*NOT_COPIED, *excluded) for word in ("--exclude", pattern))
    words = ("s3", "sync", str(directory.path), address, *QUIET, "--no-follow-symlinks", *left_out)
    return aws_command(*words, region=region, in_background=True)


def refresh_command(directory: RunDirectory) -> list[str]:
    """Build the command that asks the file server for the current size and time of each file in the run's directory.

    The NFS client may cache these for up to a minute. Without the command, the copy would lack what ranks wrote since.
    """
    return ["find", str(directory.path), "-type", "f", "-exec", "stat", "--cached=never", "--format=%s", "{}", "+"]


class Copier:
    """Update the copy of one run in the background, so that the run is not delayed."""

    def __init__(self, directory: RunDirectory, run: Callable[[Sequence[str], float], Completed] = execute) -> None:
        self.directory, self._run = directory, run
        self.address, self.region, self._obstacle = "", "", ""
        try:
            self.address, self.region = destination(directory)
        except ValueError as error:
            self._obstacle = str(error)
        self._copying: subprocess.Popen[bytes] | None = None
        self._next = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Return whether to start a copy: there is a bucket, PERIOD_S is over, and the previous copy has ended."""
        idle = self._copying is None or self._copying.poll() is not None
        return bool(self.address) and idle and time.monotonic() >= self._next

    def start(self) -> None:
        """Start a copy in the background, without the working directory. Failures are ignored until the last copy.

        Nothing is copied if the AWS CLI is not installed. The next copy is due after PERIOD_S.
        """
        self._next = time.monotonic() + PERIOD_S
        if shutil.which("aws"):
            self._copying = subprocess.Popen(
                command(self.directory, self.address, self.region, excluded=(f"{WORK_FOLDER}/*",)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def finish(self) -> str:
        """Make the last copy and wait for it. A copy in the background is terminated first.

        Return why the copy is missing or incomplete; "" if it is complete or the run has no bucket. A working directory
        of more than WORK_LIMIT bytes is not copied, so the copy is incomplete. Each command may take TIMEOUT_S.
        """
        if self._copying is not None and self._copying.poll() is None:
            terminate(self._copying)
        if not self.address:
            return self._obstacle
        if not shutil.which("aws"):
            return "the AWS CLI is not installed on the master"
        self._run(refresh_command(self.directory), TIMEOUT_S)
        _, size = count_files(self.directory.path / WORK_FOLDER)
        excluded = (f"{WORK_FOLDER}/*",) if size > WORK_LIMIT else ()
        done = self._run(command(self.directory, self.address, self.region, excluded=excluded), TIMEOUT_S)
        if done.status != 0:
            return done.last_line
        return f"{WORK_FOLDER}/ was not copied: it has {size:,} bytes, the limit is {WORK_LIMIT:,}" if excluded else ""
