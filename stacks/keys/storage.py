"""Keys of the shared file system and the run bucket."""

from __future__ import annotations

import dataclasses

from stacks.keys.rules import matches


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageKeys:
    """Describe where data outlives the nodes."""

    efs_mount: str = "/mnt/efs"
    """Directory at which every node mounts the shared file system."""
    file_system_id: str = ""
    """An existing EFS file system to mount; empty: one is created."""
    retain_data: bool = True
    """Keep the shared file system and the run bucket when the stack is destroyed."""

    def check_storage(self) -> None:
        """Raise ConfigError for the first value that is wrong by itself."""
        matches(self, "efs_mount", r"(?:/[A-Za-z0-9][A-Za-z0-9_-]*)+", "an absolute path of letters, digits, - and _")
        matches(self, "file_system_id", r"(?:fs-[0-9a-f]{8,40})?", "fs- and hexadecimal digits, or empty")
