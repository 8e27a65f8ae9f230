"""The host keys of a node, read from its console over the EC2 API; no others are trusted at first."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import re
from typing import TYPE_CHECKING, Final

from cluster.aws.console import read_console
from cluster.errors import ConnectionFailedError
from cluster.polling import poll

if TYPE_CHECKING:
    from cluster.aws.client import Aws

TIMEOUT_S: Final = 60.0
POLL_S: Final = 1.0
BEGIN = "-----BEGIN SSH HOST KEY KEYS-----"
END = "-----END SSH HOST KEY KEYS-----"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostKey:
    """One public host key."""

    algorithm: str
    """Such as ssh-ed25519."""
    blob: bytes
    """The key in SSH's wire format."""

    def __str__(self) -> str:
        """Return the key as in a known_hosts file, without the host."""
        return f"{self.algorithm} {base64.b64encode(self.blob).decode()}"

    @property
    def fingerprint(self) -> str:
        """Return the algorithm and the fingerprint as ssh-keygen -l prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"{self.algorithm} SHA256:{digest.rstrip('=')}"

    @classmethod
    def parse(cls, line: str) -> HostKey | None:
        """Parse the key in a line, which may have text before and after it; None without a key."""
        found = re.search(r"(?:^|\s)((?:ssh-|ecdsa-sha2-)[a-z0-9-]+)\s+([A-Za-z0-9+/]+={0,2})(?:\s|$)", line)
        if not found:
            return None
        try:
            blob = base64.b64decode(found[2])
        except binascii.Error:
            return None
        # The wire format begins with the algorithm's name; a truncated or swapped key does not match.
        name = found[1].encode()
        return cls(algorithm=found[1], blob=blob) if blob.startswith(len(name).to_bytes(4, "big") + name) else None


def parse_console(text: str) -> tuple[HostKey, ...]:
    """Parse the host keys in console output: those of the last complete block, since a reboot prints them again.

    Lines may have a prefix (`[   12.3] cloud-init[1]: `), carriage returns and a comment; other lines are skipped.
    Without a complete block the result is empty: a block that is still being printed may end within a key.
    """
    keys: tuple[HostKey, ...] = ()
    # A block that was cut off by the beginning of the next one does not count. No regular expression for both marks: it
    # would look for the second one behind each first one, and take 20 s for 64 KB that a worker's root writes.
    for part in text.split(BEGIN)[1:]:
        block, end, _ = part.partition(END)
        lines = block.splitlines() if end else []
        found = [key for line in lines if (key := HostKey.parse(line)) is not None]
        keys = tuple(dict.fromkeys(found)) or keys
    return keys


def read_host_keys(aws: Aws, instance_id: str) -> tuple[HostKey, ...]:
    """Read the host keys of an instance from its console, and wait until they are printed."""
    for _ in poll(TIMEOUT_S, every_s=POLL_S):
        if keys := parse_console(read_console(aws, instance_id)):
            return keys
    raise ConnectionFailedError(
        f"the console of {instance_id} shows no SSH host keys, so no host can be identified as this instance",
        where="EC2 GetConsoleOutput",
        remedy="wait for the end of its boot and repeat; a node prints them at each boot and once an hour, "
        "and one that does not is to be replaced",
    )
