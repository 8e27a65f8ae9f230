"""The EC2 key pair for logging in: the public half of the user's own key, imported if it is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.aws.client import IgnoredCodes
from cluster.aws.errors import aws_errors
from cluster.errors import DeepcdkError
from cluster.ssh import user_keys, user_settings
from cluster.ssh.user_keys import UserKey

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import KeyPairInfoTypeDef

    from cluster.aws.client import Aws

KINDS = ("ssh-ed25519", "ssh-rsa")
"""Key types that EC2 imports. It accepts no ECDSA, DSA or hardware security keys (sk-...)."""
_FIRST = ("id_ed25519", "id_rsa")


class OtherKeyError(DeepcdkError):
    """Report that the key pair contains none of the user's keys, so that the user could not log in to any node."""

    def __init__(self, match: Match) -> None:
        self.match = match
        super().__init__(
            f"key pair {match.name} does not match your keys, so you could not log in to new nodes",
            where=f"the key in EC2 is {match.theirs}; your keys: {', '.join(match.yours) or 'none'}",
            remedy="give the private key of the key pair with --key FILE, or add it with ssh-add; or set another "
            "key_name, to which `fab up` imports your key",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """Comparison of EC2's key pair with the user's keys."""

    name: str
    theirs: str
    """Fingerprint of EC2's public key; "" if EC2 does not show it."""
    yours: tuple[str, ...]
    """Locations of the user's keys."""
    found: str
    """Location of the matching key; "" if none matches."""

    @property
    def differs(self) -> bool:
        """Return whether the key pair certainly contains none of the user's keys."""
        return bool(self.theirs) and not self.found


def own_keys(home: Path, key: str = "") -> tuple[UserKey, ...]:
    """Return the user's keys: only the one in the file `key` if it is given, else those in the agent and in ~/.ssh.

    This includes keys with only their public half on the laptop. Raises ConnectionFailedError if `key` is not a
    valid key, or ssh rejects the user's settings.
    """
    return user_keys.find(user_settings.read("deepcdk-master", home=home), home, key)


def find_importable(keys: Sequence[UserKey]) -> UserKey:
    """Return the key to import, preferably one with a standard file name. Raises DeepcdkError if EC2 accepts none of
    the keys.
    """
    ranked = sorted(keys, key=lambda each: _rank(each.place))
    for key in ranked:
        if key.algorithm in KINDS:
            return key
    kinds = ", ".join(f"{key.place}: {key.algorithm or 'the passphrase hides the public key'}" for key in ranked)
    raise DeepcdkError(
        "you have no SSH key that EC2 accepts; EC2 accepts ed25519 and rsa",
        where=kinds or "no key in ~/.ssh or in the SSH agent",
        remedy="create a key with `ssh-keygen -t ed25519`, or give --key FILE",
    )


def _rank(place: str) -> int:
    name = place.rpartition("/")[2].removesuffix(".pub")
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def describe(aws: Aws, name: str) -> KeyPairInfoTypeDef | None:
    """Return EC2's description of a key pair, with its public key; None if the key pair does not exist. Raises
    AwsError.
    """
    with aws_errors(f"looking for key pair {name}"):
        # Use a filter, because naming a missing key pair is an error.
        found = aws.client("ec2").describe_key_pairs(
            Filters=[{"Name": "key-name", "Values": [name]}], IncludePublicKey=True
        )["KeyPairs"]
    return found[0] if found else None


def import_public_key(aws: Aws, name: str, key: UserKey) -> bool:
    """Import the public half of a key to EC2 under this name. Return False if the name is taken, else True. Raises
    AwsError.
    """
    with aws_errors(f"importing {key.place} as key pair {name}"), IgnoredCodes("InvalidKeyPair.Duplicate"):
        aws.client("ec2").import_key_pair(KeyName=name, PublicKeyMaterial=key.public_text.encode())
        return True
    return False


def match(described: KeyPairInfoTypeDef, yours: Sequence[UserKey]) -> Match:
    """Compare EC2's description of a key pair with the user's keys.

    If EC2 does not show the public key and no key matches, it is unknown whether they differ.
    """
    found = user_keys.matching(yours, described)
    # Without the public key, nothing can be compared.
    shown = bool(user_keys.parse_public_key(described.get("PublicKey", "")))
    return Match(
        name=described["KeyName"],
        theirs=(described.get("KeyFingerprint") or "unknown") if shown else "",
        yours=tuple(key.place for key in yours),
        found=found[0].place if found else "",
    )
