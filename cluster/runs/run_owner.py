"""Identify who started a run (user, laptop, AWS identity), and whether that is the current user."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cluster.aws.client import Aws
from cluster.aws.errors import aws_errors
from cluster.errors import AwsError


def user() -> str:
    """Return the user's name, or their uid if the password database has no entry, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def laptop(home: Path) -> str:
    """Return an id for this user's home directory, created on first use; "" if it cannot be stored or read.

    It distinguishes colleagues with the same user name on hosts with the same name.
    """
    path = home / ".local" / "state" / "deepcdk" / "laptop"
    with contextlib.suppress(OSError, ValueError):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(uuid.uuid4().hex)
        return str(uuid.UUID(path.read_text().strip()))
    return ""


def here() -> dict[str, str]:
    """Return the current user, host and laptop id, without the AWS identity."""
    return {"user": user(), "host": socket.gethostname(), "laptop": laptop(Path.home())}


def identify(aws: Aws) -> dict[str, str]:
    """Return user, host, laptop id and ARN of the AWS identity. The ARN is "" if AWS does not answer or rejects the
    call.
    """
    identity = ""
    with contextlib.suppress(AwsError), aws_errors("asking AWS who you are"):
        identity = str(aws.client("sts").get_caller_identity()["Arn"])
    return {**here(), "identity": identity}


def is_others(started_by: Mapping[str, str] | None) -> bool:
    """Return whether somebody else started a run; False if nothing is recorded. `started_by` is from the run's record.

    The laptop ids are compared. If one of them is unknown, the names of user and host are compared instead.
    """
    if not started_by:
        return False
    keys = ("laptop",) if started_by.get("laptop") and here()["laptop"] else ("user", "host")
    return any(started_by.get(key, "") != here()[key] for key in keys)


def describe(started_by: Mapping[str, Any] | None, *, identity: bool = False) -> str:
    """Return who started a run, as `alice@laptop`, optionally with the AWS identity; "" if nothing is recorded."""
    if not started_by:
        return ""
    arn = started_by.get("identity", "") if identity else ""
    return f"{started_by.get('user', '')}@{started_by.get('host', '')}" + (f" ({arn})" if arn else "")


def describe_others(starters: Mapping[str, Mapping[str, str]], run_ids: Iterable[str]) -> str:
    """Return a sentence that names the runs started by somebody else, with a leading space; "" if there are none.

    `starters` maps run ids to `started_by` of the records.
    """
    named = [f"{run_id} ({describe(starters[run_id])})" for run_id in run_ids if is_others(starters.get(run_id))]
    return f" Somebody else started {', '.join(named)}." if named else ""
