"""The EC2 key pair for logging in: the public half of the user's own key, imported if it is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.aws.client import IgnoredCodes, aws_errors
from cluster.errors import DeepcdkError
from cluster.terminal.paths import expanded, is_file

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import KeyPairInfoTypeDef

    from cluster.aws.client import Aws

PUBLIC_KEYS = ("id_ed25519.pub", "id_rsa.pub")
KINDS = ("ssh-ed25519", "ssh-rsa")
"""Types that EC2 imports: neither ECDSA nor DSA, nor keys of security keys (sk-...)."""


class OtherKeyError(DeepcdkError):
    """Report that the key pair does not hold a key of the user, who could not log in to any node."""

    def __init__(self, match: Match) -> None:
        self.match = match
        super().__init__(
            f"key pair {match.name} does not hold a key of yours: you could not log in to the new nodes",
            where=f"EC2's is {match.theirs}; yours: {', '.join(match.yours) or 'none'}",
            remedy="give its private key with --key FILE, or ssh-add it; or set another key_name, "
            "under which `fab up` imports your own key",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """The comparison of EC2's key pair with the user's keys."""

    name: str
    theirs: str
    """Fingerprint of EC2's public key; "" if EC2 does not show it."""
    yours: tuple[str, ...]
    """Paths of the user's keys."""
    found: str
    """The one that is the same; "" without one."""

    @property
    def differs(self) -> bool:
        """Return whether the key pair is certainly not the user's."""
        return bool(self.theirs) and not self.found


def find_public_key(home: Path, key: str = "") -> Path:
    """Return the file of the user's public key: next to `key` if that is given, else in ~/.ssh.

    Raises DeepcdkError where there is none, or one of a kind that EC2 does not import.
    """
    candidates = [Path(f"{expanded(key)}.pub")] if key else [home / ".ssh" / name for name in PUBLIC_KEYS]
    for candidate in candidates:
        if is_file(candidate):
            _check_kind(candidate)
            return candidate
    raise DeepcdkError(
        "you have no SSH key that EC2 accepts",
        where=", ".join(map(str, candidates)),
        remedy="make one with `ssh-keygen -t ed25519`, or give --key FILE",
    )


def _check_kind(path: Path) -> None:
    """Raise DeepcdkError for a public key that ImportKeyPair would refuse (InvalidKey.Format)."""
    parsed = parse_public_key(path.read_text(encoding="utf-8", errors="replace"))
    if parsed and parsed[0] in KINDS:
        return
    what = f"EC2 imports no key of type {parsed[0]}" if parsed else "this is no public key in OpenSSH's format"
    raise DeepcdkError(
        what,
        where=str(path),
        remedy="make one with `ssh-keygen -t ed25519`, or give another with --key FILE: EC2 takes ed25519 and rsa",
    )


def describe(aws: Aws, name: str) -> KeyPairInfoTypeDef | None:
    """Return the description of a key pair, with its public key; None if there is none of this name."""
    with aws_errors(f"looking for key pair {name}"):
        # A filter, since asking for a missing name directly is an error.
        found = aws.client("ec2").describe_key_pairs(
            Filters=[{"Name": "key-name", "Values": [name]}], IncludePublicKey=True
        )["KeyPairs"]
    return found[0] if found else None


def import_public_key(aws: Aws, name: str, path: Path) -> bool:
    """Import a public key under this name; return whether the name was free."""
    with aws_errors(f"importing {path} as key pair {name}"), IgnoredCodes("InvalidKeyPair.Duplicate"):
        aws.client("ec2").import_key_pair(KeyName=name, PublicKeyMaterial=path.read_bytes())
        return True
    return False


def match(described: KeyPairInfoTypeDef, yours: Mapping[str, str]) -> Match:
    """Compare EC2's description of a key pair with the user's public keys by path."""
    theirs = parse_public_key(described.get("PublicKey", ""))
    same = [place for place, text in yours.items() if theirs and parse_public_key(text) == theirs]
    return Match(
        name=described["KeyName"],
        theirs=(described.get("KeyFingerprint") or "unknown") if theirs else "",
        yours=tuple(yours),
        found=same[0] if same else "",
    )


def parse_public_key(text: str) -> tuple[str, str] | None:
    """Return type and body of a public key in OpenSSH's format; None for anything else."""
    words = text.split()
    return (words[0], words[1]) if len(words) >= 2 and words[0].startswith(("ssh-", "ecdsa-", "sk-")) else None


def own_keys(home: Path, key: str = "") -> dict[str, str]:
    """Return the user's public keys by path: only that of `key` if given, else those in ~/.ssh and the agent."""
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
    """Return the keys in the SSH agent; none without an agent."""
    import paramiko

    try:
        agent = paramiko.Agent()
        keys = {f"agent ({key.comment or key.get_name()})": key for key in agent.get_keys()}
        agent.close()
    except (paramiko.SSHException, OSError):
        return {}
    return {place: f"{key.get_name()} {key.get_base64()}" for place, key in keys.items()}
