"""The paths of one cloud's files, as a pure function of its name."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final

from localcloud.errors import LocalCloudError

RUN_ROOT: Final = Path("/run/localcloud")
DATA_ROOT: Final = Path("/var/lib/localcloud")


class BadNameError(LocalCloudError, ValueError):
    """The name is invalid for a cloud."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Paths of one cloud's files. The directories `run` and `data` are removed when the cloud stops."""

    name: str
    """1 to 32 of a-z, 0-9 and -, starting with a letter."""
    run_root: Path = RUN_ROOT
    """Small files that are written often. This is a memory file system on most machines."""
    data_root: Path = DATA_ROOT
    """Large files on disk, to save memory: shared file systems, the hosts' volumes and the laptop's home."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", self.name, flags=re.ASCII):
            raise BadNameError(
                f"cloud name {self.name!r}: must be 1 to 32 characters a-z, 0-9 and -, starting with a letter"
            )

    @property
    def run(self) -> Path:
        """Return the directory of small files: state, control socket, logs and consoles."""
        return self.run_root / self.name

    @property
    def data(self) -> Path:
        """Return the directory of large files: volumes, shared file systems and the laptop's home."""
        return self.data_root / self.name

    @property
    def lock(self) -> Path:
        """Return the file that supervisor and daemon lock while they run."""
        return self.run_root / f"{self.name}.lock"

    @property
    def state(self) -> Path:
        """Return the file that the daemon writes when it is ready, with its addresses and process ids."""
        return self.run / "state.json"

    @property
    def control(self) -> Path:
        """Return the daemon's control socket."""
        return self.run / "control.sock"

    @property
    def chaos_lock(self) -> Path:
        """Return the file that `chaos` locks while it runs."""
        return self.run / "chaos.lock"

    @property
    def log(self) -> Path:
        """Return the log of daemon and supervisor."""
        return self.run / "daemon.log"

    @property
    def layers(self) -> Path:
        """Return the mount point of the hosts' layers. It is mounted only in the daemon's mount namespace."""
        return self.run / "layers"

    @property
    def efs(self) -> Path:
        """Return the directory with one directory per shared file system."""
        return self.data / "efs"

    @property
    def volumes(self) -> Path:
        """Return the directory with one root volume per host."""
        return self.data / "volumes"

    @property
    def laptop(self) -> Path:
        """Return the laptop's home directory."""
        return self.data / "laptop"

    def console(self, instance_id: str) -> Path:
        """Return the file with a host's console output."""
        return self.run / "consoles" / f"{instance_id}.log"
