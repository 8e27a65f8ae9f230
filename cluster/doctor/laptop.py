"""Checks of the laptop itself. They need neither a project nor AWS."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from agent.errors import describe
from cluster.aws.client import Aws
from cluster.cli import PROJECT, REINSTALL
from cluster.deploy import cdk
from cluster.doctor.finding import FAIL, OK, WARN, Finding, finding
from cluster.errors import DeepcdkError
from cluster.ssh import user_settings
from cluster.terminal.paths import is_directory
from cluster.terminal.units import amount

PYTHONS: Final = ((3, 11), (3, 13))
"""The oldest and the newest Python version that deepcdk is tested with."""
OLDEST_NODE: Final = 18
"""The oldest Node.js that the CDK CLI supports."""
TIMEOUT_S: Final = 20.0
SOME_ADDRESS: Final = "198.51.100.1"
"""An example address (RFC 5737), to read SSH settings for. Nothing connects to it."""
MIN_FREE: Final = 100_000_000
"""Free bytes below which a deployment may fail."""
ENOUGH_FREE: Final = 2_000_000_000
"""Free bytes that a program's packages may need while the laptop resolves and uploads them."""
MIN_FREE_FILES: Final = 1000


def python() -> Iterator[Finding]:
    """Check the version of this Python. An older version than the tested ones fails, a newer one is a warning."""
    found = functools.partial(finding, "Python")
    what, (oldest, newest) = f"{platform.python_version()}, {sys.executable}", PYTHONS
    if oldest <= sys.version_info[:2] <= newest:
        yield found(OK, what)
    else:
        remedy = "install deepcdk in a virtual environment with Python {}.{} to {}.{}".format(*oldest, *newest)
        yield found(
            FAIL if sys.version_info[:2] < oldest else WARN, f"{what}: deepcdk is not tested with this version", remedy
        )


def programs(project: Path = PROJECT) -> Iterator[Finding]:
    """Check that the CDK CLI exists, and that Node.js starts and is new enough for it."""
    found = functools.partial(finding, "programs")
    try:
        cli, node = cdk.find_cli(project), cdk.find_node()
    except DeepcdkError as error:
        yield found(FAIL, error.what, error.remedy)
        return
    version = _output(str(node), "--version").removeprefix("v")
    major = version.partition(".")[0]
    if not major.isdecimal():
        what = f"Node.js does not start: {node}" + (f": {version}" if version else "")
        yield found(FAIL, what, REINSTALL)
    elif int(major) < OLDEST_NODE:
        what = f"Node.js {version} is too old for the CDK CLI: {node}"
        yield found(FAIL, what, f"install Node.js {OLDEST_NODE} or newer, or {REINSTALL}")
    else:
        yield found(OK, f"{cli}, Node.js {version}: {node}")


def ssh() -> Iterator[Finding]:
    """Check OpenSSH's client. It is a failure if the client rejects the user's settings.

    It is only a warning if `ssh` is not installed, or does not run for this user.
    """
    found = functools.partial(finding, "SSH client")
    needed = "`fab ssh` uses deepcdk's own connection, and ~/.ssh/config is not read"
    if (client := shutil.which("ssh")) is None:
        remedy = "install the OpenSSH client (Debian and Ubuntu: apt install openssh-client)"
        yield found(WARN, f"`ssh` is not in PATH: {needed}", remedy)
    elif not user_settings.openssh_knows_user():
        what = f"`ssh` does not run for user {os.getuid()}, who is not in the password database: {needed}"
        yield found(WARN, what, "if you need ~/.ssh/config or `fab ssh-config`, add an entry to /etc/passwd")
    else:
        try:
            user_settings.read(SOME_ADDRESS)
        except (DeepcdkError, OSError) as error:
            what = " ".join(str(getattr(error, "what", error)).split())
            yield found(FAIL, what, getattr(error, "remedy", "") or "reinstall the OpenSSH client")
        else:
            yield found(OK, f"{_output(client, '-V').partition(',')[0]}, {client}")


def region() -> Iterator[Finding]:
    """Check that a region is set; fails if not, or if the AWS profile cannot be read."""
    found = functools.partial(finding, "region")
    remedy = "set AWS_REGION, or a region in your profile: `aws configure set region us-east-1`"
    try:
        name = Aws().region
    except DeepcdkError as error:
        yield found(FAIL, error.what, error.remedy)
        return
    yield found(OK, name) if name else found(FAIL, "no AWS region is set", remedy)


def home(directory: Path | None = None) -> Iterator[Finding]:
    """Check that deepcdk can keep host keys, prices and MFA sessions in the user's home, or in `directory` instead.

    It fails if one of their directories exists and is not writable, or if the home is not a directory.
    """
    found, directory = functools.partial(finding, "home"), directory or Path.home()
    if not is_directory(directory):
        yield found(
            FAIL, f"HOME is {directory}, which is not a directory", "set HOME to a directory in which you may write"
        )
        return
    places = (directory, *(directory / name for name in (".cache", ".cache/deepcdk", ".ssh", ".ssh/deepcdk", ".aws")))
    if closed := [str(place) for place in places if os.path.lexists(place) and not _is_writable(place)]:
        remedy = (
            "make the directory writable (`ls -ld` shows its owner), or set HOME to a directory in which you may write"
        )
        yield found(FAIL, f"not writable: {', '.join(closed)}", remedy)
    else:
        yield found(OK, f"{directory} is writable")


def room(project: Path = PROJECT) -> Iterator[Finding]:
    """Check that the home, the project and the temporary directory have free space. Yields one finding per file system.

    Less than ENOUGH_FREE is a warning, less than MIN_FREE or MIN_FREE_FILES fails.
    """
    found = functools.partial(finding, "disk")
    try:
        places = {"home": Path.home(), "project": project, "temporary files": Path(tempfile.gettempdir())}
    except FileNotFoundError:
        yield found(
            FAIL,
            "no directory for temporary files is writable",
            "set TMPDIR to a writable directory with 2 GB of free space",
        )
        return
    by_disk: dict[int, list[str]] = {}
    for name, place in places.items():
        if is_directory(place):
            by_disk.setdefault(place.stat().st_dev, []).append(name)
    for names in by_disk.values():
        disk = os.statvfs(places[names[0]])
        free = disk.f_bavail * disk.f_frsize
        what = f"{amount(free)} free for {', '.join(names)} ({places[names[0]]})"
        remedy = "free some space" + (", or set TMPDIR to another disk" if names == ["temporary files"] else "")
        if disk.f_files and disk.f_favail < MIN_FREE_FILES:
            yield found(FAIL, f"{what}, but only for {disk.f_favail} more files", remedy)
        elif free < ENOUGH_FREE:
            yield found(FAIL if free < MIN_FREE else WARN, f"{what}: the packages of a program may need 2 GB", remedy)
        else:
            yield found(OK, what)


CHECKS: Final[tuple[Callable[[], Iterable[Finding]], ...]] = (python, programs, ssh, home, room, region)
"""The checks, in the order of the report."""


def _output(*command: str) -> str:
    """Return the output of a program, its error output if there is no other, or why it does not start."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return describe(error)
    return (done.stdout or done.stderr).decode(errors="replace").strip()


def _is_writable(place: Path) -> bool:
    """Return whether this user may create files in a directory; False on a read-only file system."""
    return is_directory(place) and os.access(place, os.W_OK | os.X_OK)
