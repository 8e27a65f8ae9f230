"""The host keys of instances that were read from their consoles before, kept on the laptop by instance id.

EC2 keeps the last 64 KB of a console, and may lose it all at a reboot. An instance keeps its host keys, on its root
volume, and an id names one instance: what its console has shown once identifies it later too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.aws.console import read_console
from cluster.errors import ConnectionFailedError
from cluster.ssh.config_file import write_private
from cluster.ssh.host_keys import HostKey, parse_console, read_host_keys
from cluster.terminal.status_line import warn

if TYPE_CHECKING:
    from cluster.aws.client import Aws


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptHostKeys:
    """The files of one account and region: one for each instance, in the format of known_hosts."""

    folder: Path

    @classmethod
    def below(cls, home: Path, *, account: str, region: str) -> KeptHostKeys:
        """Return the files of an account and region; not in ~/.cache, which may be emptied at any time."""
        return cls(folder=home / ".local" / "state" / "deepcdk" / "host-keys" / account / region)

    def path(self, instance_id: str) -> Path:
        """Return the file of an instance."""
        return self.folder / instance_id

    def read(self, instance_id: str) -> tuple[HostKey, ...]:
        """Return the keys that are kept of an instance, none where it has no file. Raises ConnectionFailedError."""
        path = self.path(instance_id)
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConnectionFailedError(
                f"the kept SSH host keys of {instance_id} cannot be read: {error.strerror}",
                where=str(path),
                remedy="make the file readable",
            ) from None
        found = [HostKey.parse(line) for line in lines if line.split(" ")[0] == instance_id]
        if not found or None in found:
            raise ConnectionFailedError(
                f"the kept SSH host keys of {instance_id} are damaged",
                where=str(path),
                remedy="remove the file; the keys are then read from the instance's console again",
            )
        return tuple(key for key in found if key is not None)

    def keep(self, instance_id: str, keys: Sequence[HostKey]) -> None:
        """Write the keys of an instance to its file, readable by its owner alone; warn where that is impossible."""
        try:
            write_private(self.path(instance_id), "".join(f"{instance_id} {key}\n" for key in keys))
        except OSError as error:
            warn(f"the SSH host keys of {instance_id} were not kept: {error}")

    def identify(self, aws: Aws, instance_id: str) -> tuple[HostKey, ...]:
        """Return the host keys of an instance: those on its console, else those that are kept.

        Keeps them. Raises ConnectionFailedError where neither has any, or where the two differ.
        """
        kept = self.read(instance_id)
        # With kept keys there is nothing to wait for.
        shown = parse_console(read_console(aws, instance_id)) if kept else read_host_keys(aws, instance_id)
        if changed := find_change(kept, shown):
            raise self._refusal(instance_id, *changed)
        found = {key.algorithm: key for key in (*kept, *shown)}
        self.keep(instance_id, tuple(found.values()))
        return tuple(found.values())

    def _refusal(self, instance_id: str, kept: HostKey, shown: HostKey) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"the SSH host key of {instance_id} HAS CHANGED: its console shows {shown.fingerprint}, "
            f"and showed {kept.fingerprint} before",
            where=str(self.path(instance_id)),
            remedy="an instance keeps its keys, so somebody may have taken it over: "
            "end it (`fab replace` for a worker; the master's group starts a new master). "
            "Only if you have changed its host keys or replaced its root volume yourself, remove this file and repeat",
        )


def find_change(kept: Sequence[HostKey], shown: Sequence[HostKey]) -> tuple[HostKey, HostKey] | None:
    """Return a kept key and the one that is shown in its place; None where they agree, or one side has no keys.

    A key of a further algorithm is no change. Keys of other algorithms alone are one: none proves the instance.
    """
    before = {key.algorithm: key for key in kept}
    for key in shown:
        if before.get(key.algorithm, key) != key:
            return before[key.algorithm], key
    if kept and shown and not set(kept) & set(shown):
        return kept[0], shown[0]
    return None
