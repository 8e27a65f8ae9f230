"""Take Horovod's wheel from a wheelhouse: a directory, a bucket or a web server with wheels that were built before.

A wheelhouse contains FINGERPRINT/horovod-VERSION-TAGS.whl, like the cache of `horovod_build`. To publish the wheels of
a cache, copy them. A wheel with another fingerprint is never used. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Final

from agent.environment.toolchain import HorovodError
from agent.errors import describe
from agent.staging.aws_cli import QUIET, AwsCliError, aws_command, running
from agent.staging.errors import DatasetError
from agent.staging.s3_objects import Prefix, parse_listing

TIMEOUT_S: Final = 60.0
NOT_FOUND: Final = 404
SHOWN_LINES: Final = 3


class WheelhouseError(HorovodError):
    """Report an unreadable wheelhouse, or a wheel in it that does not work here. Carries `address` and `reason`."""

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(
            f"cannot use Horovod's wheel from {address}: {reason}; correct the wheelhouse, or its address in "
            "the key `wheelhouse` in cdk.json. Without the key, Horovod is built"
        )


def fetch(wheelhouse: str, name: str, into: Path) -> bool:
    """Copy the file `name`, FINGERPRINT/WHEEL, from a wheelhouse to the path `into`. Return whether it was there.

    `wheelhouse` is an absolute path, s3://BUCKET/PREFIX, or an http or https address. Raises WheelhouseError if the
    wheelhouse itself is missing or cannot be read.
    """
    address = f"{wheelhouse.rstrip('/')}/{name}"
    try:
        if wheelhouse.startswith("/"):
            return _from_directory(Path(wheelhouse), name, into)
        if wheelhouse.startswith("s3://"):
            return _from_bucket(Prefix.parse(address), into)
        if wheelhouse.startswith(("https://", "http://")):
            return _from_server(address, into)
    except (AwsCliError, DatasetError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None)  # of urllib, such as a refused connection
        text = describe(reason if isinstance(reason, OSError) else error)
        raise WheelhouseError(address, " ".join(text.split()) or type(error).__name__) from None
    raise WheelhouseError(address, "its address must be an absolute path, s3://BUCKET/PREFIX or https://HOST/PATH")


def check(wheel: Path, address: str, frameworks: Sequence[str], libraries: Sequence[Path], scratch: Path) -> None:
    """Import a fetched wheel with this Python. Raises WheelhouseError with the last lines of the output if that fails.

    `address` is the wheelhouse, for the message. `frameworks` are those whose Horovod modules are imported. `libraries`
    are the directories of the shared libraries that the installed wheel finds relative to itself. The wheel is unpacked
    below `scratch`.
    """
    unpacked = scratch / "imported"
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
    except (zipfile.BadZipFile, ValueError) as error:
        raise WheelhouseError(address, f"{wheel.name} is damaged: {error}") from None
    # `import horovod.torch` succeeds without its library.
    program = "; ".join(f"import horovod.{framework}.mpi_ops" for framework in frameworks)
    searched = os.pathsep.join(filter(None, [*map(str, libraries), os.environ.get("LD_LIBRARY_PATH", "")]))
    environ = {**os.environ, "PYTHONPATH": str(unpacked), "LD_LIBRARY_PATH": searched}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        shown = "\n".join(done.stdout.strip().splitlines()[-SHOWN_LINES:]) or f"exit status {done.returncode}"
        raise WheelhouseError(address, f"{wheel.name} cannot be imported:\n{shown}")


def _from_directory(wheelhouse: Path, name: str, into: Path) -> bool:
    # A missing directory is probably a file system that is not mounted.
    if not wheelhouse.is_dir():
        raise NotADirectoryError(f"there is no directory {wheelhouse}")
    if not (wheelhouse / name).is_file():
        return False
    shutil.copyfile(wheelhouse / name, into)
    return True


def _from_bucket(wheel: Prefix, into: Path) -> bool:
    with running(aws_command(*wheel.list_words(wheel.key))) as process:
        listed = parse_listing(process.communicate()[0].decode("utf-8"), wheel)
    if not listed:
        return False
    with running(aws_command("s3", "cp", str(wheel), str(into), *QUIET)) as process:
        process.communicate()
    return True


def _from_server(address: str, into: Path) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer, into.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)
    except urllib.error.HTTPError as error:
        if error.code == NOT_FOUND:
            return False
        raise
    return True
