"""The EC2 key pair that may log in: the public half of the user's own key, imported when it is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.aws.client import aws_errors
from cluster.errors import DeepcdkError
from cluster.terminal.paths import expanded, is_file

if TYPE_CHECKING:
    from cluster.aws.client import Aws

PUBLIC_KEYS = ("id_ed25519.pub", "id_rsa.pub")
"""Kinds that EC2 takes."""


class OtherKeyError(DeepcdkError):
    """Report that the key pair's public key is none of the user's, who could log in to no node of the cluster."""

    def __init__(self, match: Match) -> None:
        self.match = match
        super().__init__(
            f"key pair {match.name} holds a key that is none of yours: you could not log in to the new nodes",
            where=f"EC2's is {match.theirs}; yours: {', '.join(match.yours) or 'none'}",
            remedy="give its private key with --key FILE, or ssh-add it; or set another key_name, "
            "under which `fab up` imports your own key",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """Compare EC2's key pair with the user's keys."""

    name: str
    theirs: str
    """Fingerprint of EC2's public key; "" where EC2 does not show it."""
    yours: tuple[str, ...]
    """Where the user's keys lie that were looked at."""
    found: str
    """Which of them is the same; "" where none is."""

    @property
    def differs(self) -> bool:
        """Tell whether the key pair is certainly another one than the user's."""
        return bool(self.theirs) and not self.found


def find_public_key(home: Path, key: str = "") -> Path:
    """Return the file of the user's public key: beside `key` if that is given, else in ~/.ssh."""
    candidates = [Path(f"{expanded(key)}.pub")] if key else [home / ".ssh" / name for name in PUBLIC_KEYS]
    for candidate in candidates:
        if is_file(candidate):
            return candidate
    raise DeepcdkError(
        "you have no SSH key that EC2 takes",
        where=", ".join(map(str, candidates)),
        remedy="make one with `ssh-keygen -t ed25519`, or give --key FILE",
    )


def exists(aws: Aws, name: str) -> bool:
    """Tell whether a key pair of that name is in the region."""
    return describe(aws, name) is not None


def describe(aws: Aws, name: str) -> Mapping[str, str] | None:
    """Return what EC2 says of a key pair, its public key included; None where there is none of that name."""
    with aws_errors(f"looking for key pair {name}"):
        # A filter, for a missing name given as such is an error of its own.
        found = aws.client("ec2").describe_key_pairs(
            Filters=[{"Name": "key-name", "Values": [name]}], IncludePublicKey=True
        )["KeyPairs"]
    return found[0] if found else None


def import_public_key(aws: Aws, name: str, path: Path) -> bool:
    """Import a public key under that name; return whether it was free. The private half stays where it is."""
    from botocore.exceptions import ClientError

    with aws_errors(f"importing {path} as key pair {name}"):
        try:
            aws.client("ec2").import_key_pair(KeyName=name, PublicKeyMaterial=path.read_bytes())
        except ClientError as error:
            if error.response["Error"]["Code"] != "InvalidKeyPair.Duplicate":
                raise
            return False
    return True


def match(described: Mapping[str, str], yours: Mapping[str, str]) -> Match:
    """Compare EC2's description of a key pair with the user's public keys, by where they lie."""
    theirs = parse_public_key(described.get("PublicKey", ""))
    same = [place for place, text in yours.items() if theirs and parse_public_key(text) == theirs]
    return Match(
        name=described["KeyName"],
        theirs=(described.get("KeyFingerprint") or "unknown") if theirs else "",
        yours=tuple(yours),
        found=same[0] if same else "",
    )


def parse_public_key(text: str) -> tuple[str, str] | None:
    """Return kind and body of a public key in OpenSSH's format, without its comment; None for anything else."""
    words = text.split()
    return (words[0], words[1]) if len(words) >= 2 and words[0].startswith(("ssh-", "ecdsa-", "sk-")) else None


def own_keys(home: Path, key: str = "") -> dict[str, str]:
    """Return the user's public keys by where they lie: of `key` alone if it is given, else ~/.ssh and the agent."""
    if key:
        private = expanded(key)
        return _read([Path(f"{private}.pub")]) or _derived(private)
    return {**_read(sorted((home / ".ssh").glob("*.pub"))), **_agent()}


def _read(paths: Iterable[Path]) -> dict[str, str]:
    found = {}
    for path in paths:
        try:
            found[str(path)] = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return found


def _derived(private: Path) -> dict[str, str]:
    from cluster.ssh.connect import load_key

    loaded = load_key(str(private))
    return {str(private): f"{loaded.get_name()} {loaded.get_base64()}"}


def _agent() -> dict[str, str]:
    """Return the keys that the SSH agent holds; none where there is no agent."""
    import paramiko

    try:
        agent = paramiko.Agent()
        keys = {f"agent ({key.comment or key.get_name()})": key for key in agent.get_keys()}
        agent.close()
    except (paramiko.SSHException, OSError):
        return {}
    return {place: f"{key.get_name()} {key.get_base64()}" for place, key in keys.items()}
