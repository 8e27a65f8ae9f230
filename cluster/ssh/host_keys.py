"""The master's host keys, as its console tells them through the EC2 API: the only ones that are trusted."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
import struct

BEGIN = "-----BEGIN SSH HOST KEY KEYS-----"
END = "-----END SSH HOST KEY KEYS-----"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostKey:
    """Hold one public host key."""

    algorithm: str
    """Such as ssh-ed25519."""
    blob: bytes
    """The key in SSH's wire format."""

    def __str__(self) -> str:
        """Return the key as in a known_hosts file, without the host."""
        return f"{self.algorithm} {base64.b64encode(self.blob).decode()}"

    @classmethod
    def parse(cls, line: str) -> HostKey | None:
        """Parse the key in a line, which may hold more before and after it; None where there is none."""
        found = re.search(r"(?:^|\s)((?:ssh-|ecdsa-sha2-)[a-z0-9-]+)\s+([A-Za-z0-9+/]+={0,2})(?:\s|$)", line)
        if not found:
            return None
        try:
            blob = base64.b64decode(found[2], validate=True)
            (length,) = struct.unpack(">I", blob[:4])
        except (binascii.Error, struct.error):
            return None
        # The wire format begins with the algorithm's own name; a truncated or swapped key does not match.
        return cls(algorithm=found[1], blob=blob) if blob[4 : 4 + length] == found[1].encode() else None


def parse_console(text: str) -> tuple[HostKey, ...]:
    """Parse the host keys out of console output: those of the last complete block, for a reboot prints them anew.

    Lines may carry a prefix (`[   12.3] cloud-init[1]: `), carriage returns and a comment; what is no key is passed
    over. Without a complete block the result is empty: a block that is still being printed may end within a key.
    """
    keys: tuple[HostKey, ...] = ()
    for block in re.findall(rf"{BEGIN}(.*?){END}", text, flags=re.DOTALL):
        # A block that was cut off by the next one's beginning is not the last part of its own.
        lines = block.rpartition(BEGIN)[2].splitlines()
        found = [key for line in lines if (key := HostKey.parse(line)) is not None]
        keys = tuple(dict.fromkeys(found)) or keys
    return keys
