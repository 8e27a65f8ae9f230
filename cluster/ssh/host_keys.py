"""The host keys of a node: read from its console over the EC2 API, and kept on the laptop. Other keys are never
trusted.

EC2 keeps the last 64 KB of a console and may lose it at a reboot. An instance keeps its host keys on its root volume,
and its id is never reused. So the keys that its console has shown once can identify it later.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.files.atomic_write import write_atomically
from cluster.aws.instance_console import read_console
from cluster.errors import ConnectionFailedError
from cluster.polling import poll
from cluster.terminal.status_line import warn

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
        """Return the algorithm and the fingerprint as printed by ssh-keygen -l."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"{self.algorithm} SHA256:{digest.rstrip('=')}"

    @classmethod
    def parse(cls, line: str) -> HostKey | None:
        """Parse the key in a line, which may have text before and after it; None without a key, or if it is damaged."""
        found = re.search(r"(?:^|\s)((?:ssh-|ecdsa-sha2-)[a-z0-9-]+)\s+([A-Za-z0-9+/]+={0,2})(?:\s|$)", line)
        if not found:
            return None
        try:
            blob = base64.b64decode(found[2])
        except binascii.Error:
            return None
        # The wire format begins with the algorithm's name. A truncated or swapped key does not match.
        name = found[1].encode()
        return cls(algorithm=found[1], blob=blob) if blob.startswith(len(name).to_bytes(4, "big") + name) else None


def parse_console(text: str) -> tuple[HostKey, ...]:
    """Parse the host keys in console output. The last complete block is used, because a reboot prints them again.

    Lines may have a prefix (`[   12.3] cloud-init[1]: `), carriage returns and a comment. Other lines are skipped.
    Return () without a complete block, because a block that is still being printed may end within a key.
    """
    keys: tuple[HostKey, ...] = ()
    # A block that is cut off by the next one does not count. A regular expression for both marks would search for the
    # end after each start, and take 20 s for 64 KB written by a worker's root user.
    for part in text.split(BEGIN)[1:]:
        block, end, _ = part.partition(END)
        lines = block.splitlines() if end else []
        found = [key for line in lines if (key := HostKey.parse(line)) is not None]
        keys = tuple(dict.fromkeys(found)) or keys
    return keys


def read_host_keys(aws: Aws, instance_id: str) -> tuple[HostKey, ...]:
    """Read the host keys of an instance from its console. Waits until they are printed.

    Raises ConnectionFailedError if the console does not show them within TIMEOUT_S, and AwsError.
    """
    for _ in poll(TIMEOUT_S, every_s=POLL_S):
        if keys := parse_console(read_console(aws, instance_id)):
            return keys
    raise ConnectionFailedError(
        f"the console of {instance_id} shows no SSH host keys, so no host can be identified as this instance",
        where="EC2 GetConsoleOutput",
        remedy="wait until it has booted, then repeat. A node prints its host keys at each boot and once an hour. "
        "Replace a worker that does not with `fab replace`; terminate such a master in EC2, and the Auto Scaling group "
        "starts a new one",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptHostKeys:
    """The host keys kept for one account and region: one file per instance, in the format of known_hosts."""

    folder: Path

    @classmethod
    def in_home(cls, home: Path, *, account: str, region: str) -> KeptHostKeys:
        """Return the store of keys below a home directory for an account and region. Nothing is read or created yet.

        It is not in ~/.cache, which may be emptied at any time.
        """
        return cls(folder=home / ".local" / "state" / "deepcdk" / "host-keys" / account / region)

    def path(self, instance_id: str) -> Path:
        """Return the path of an instance's file, which may be missing."""
        return self.folder / instance_id

    def read(self, instance_id: str) -> tuple[HostKey, ...]:
        """Return the keys in an instance's file; () without a file. Raises ConnectionFailedError if it is unreadable or
        damaged.
        """
        path = self.path(instance_id)
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return ()
        except OSError as error:
            what, remedy = f"cannot be read: {error.strerror}", "make the file readable"
        else:
            found = [HostKey.parse(line) for line in lines if line.split(" ")[0] == instance_id]
            keys = tuple(key for key in found if key is not None)
            if keys and len(keys) == len(found):
                return keys
            what, remedy = "are damaged", "remove the file; the keys are then read from the instance's console again"
        raise ConnectionFailedError(f"the stored SSH host keys of {instance_id} {what}", where=str(path), remedy=remedy)

    def keep(self, instance_id: str, keys: Sequence[HostKey]) -> None:
        """Replace the keys in an instance's file, readable only by its owner. If that fails, only print a warning."""
        try:
            write_private(self.path(instance_id), "".join(f"{instance_id} {key}\n" for key in keys))
        except OSError as error:
            what = f"the SSH host keys of {instance_id} could not be stored: {error.strerror or error}"
            warn(f"{what}: {self.folder}. The next command reads them from the console again")

    def identify(self, aws: Aws, instance_id: str) -> tuple[HostKey, ...]:
        """Return the host keys of an instance: those in its file and those in its console. Store them in the file.

        Waits for the console, at most TIMEOUT_S, only if there are no stored keys. Raises ConnectionFailedError if
        neither has any, or if the two differ, and AwsError.
        """
        kept = self.read(instance_id)
        # with kept keys, do not wait for the console
        shown = parse_console(read_console(aws, instance_id)) if kept else read_host_keys(aws, instance_id)
        if changed := find_change(kept, shown):
            before, now = changed
            raise ConnectionFailedError(
                f"the SSH host key of {instance_id} HAS CHANGED: its console shows {now.fingerprint}, and showed "
                f"{before.fingerprint} before",
                where=str(self.path(instance_id)),
                remedy="an instance keeps its host keys, so somebody may have taken it over: terminate it "
                "(`fab replace` for a worker; for the master, the Auto Scaling group starts a new one). Only "
                "if you changed its host keys or replaced its root volume yourself, remove this file and "
                "repeat",
            )
        found = tuple({key.algorithm: key for key in (*kept, *shown)}.values())
        self.keep(instance_id, found)
        return found


def find_change(kept: Sequence[HostKey], shown: Sequence[HostKey]) -> tuple[HostKey, HostKey] | None:
    """Return a stored key and the different key that is shown instead; None if the keys agree, or if one side has none.

    A key with an additional algorithm is not a change. If no key is the same, that is a change, because no stored key
    identifies the instance.
    """
    before = {key.algorithm: key for key in kept}
    for key in shown:
        if before.get(key.algorithm, key) != key:
            return before[key.algorithm], key
    if kept and shown and not set(kept) & set(shown):
        return kept[0], shown[0]
    return None


def write_private(path: Path, text: str) -> bool:
    """Write a file atomically, readable only by its owner, unless it has this text. Return whether it was written.

    Directories that are missing are created. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    write_atomically(path, text, mode=0o600)
    return True
