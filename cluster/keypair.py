"""The EC2 key pair that may log in: the public half of the user's own key, imported when it is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cluster.aws import aws_errors
from cluster.errors import DeepcdkError

if TYPE_CHECKING:
    from cluster.aws import Aws

PUBLIC_KEYS = ("id_ed25519.pub", "id_rsa.pub")
"""Kinds that EC2 takes."""


def find_public_key(home: Path, key: str = "") -> Path:
    """Return the file of the user's public key: beside `key` if that is given, else in ~/.ssh."""
    candidates = [Path(f"{Path(key).expanduser()}.pub")] if key else [home / ".ssh" / name for name in PUBLIC_KEYS]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise DeepcdkError(
        "you have no SSH key that EC2 takes",
        where=", ".join(map(str, candidates)),
        remedy="make one with `ssh-keygen -t ed25519`, or give --key FILE",
    )


def exists(aws: Aws, name: str) -> bool:
    """Tell whether a key pair of that name is in the region."""
    with aws_errors(f"looking for key pair {name}"):
        # A filter, for a missing name given as such is an error of its own.
        return bool(aws.client("ec2").describe_key_pairs(Filters=[{"Name": "key-name", "Values": [name]}])["KeyPairs"])


def import_public_key(aws: Aws, name: str, path: Path) -> None:
    """Import a public key under that name. The private half stays where it is."""
    with aws_errors(f"importing {path} as key pair {name}"):
        aws.client("ec2").import_key_pair(KeyName=name, PublicKeyMaterial=path.read_bytes())
