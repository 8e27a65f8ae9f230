"""Keys of the fast shared file system: FSx for Lustre."""

from __future__ import annotations

import dataclasses
from typing import Final

from stacks.config_keys.value_checks import (
    BUCKET,
    ConfigError,
    require_choice,
    require_match,
    require_mount_point,
    require_range,
)

# Throughputs that can be provisioned on SSDs, MB/s per TiB (CreateFileSystem, PerUnitStorageThroughput); 0: fixed.
FSX_THROUGHPUTS: Final = {
    "SCRATCH_2": (0,),
    "PERSISTENT_1": (50, 100, 200),
    "PERSISTENT_2": (125, 250, 500, 1000),
}
_SMALLEST_GIB, _STEP_GIB = 1200, 2400


@dataclasses.dataclass(frozen=True, kw_only=True)
class LustreKeys:
    """Keys of a Lustre file system that exists as long as the cluster."""

    fsx_capacity_gib: int = 0
    """Size of the Lustre file system: 1200, 2400, 4800, ... GiB, billed as long as it exists; 0: none."""
    fsx_deployment: str = "SCRATCH_2"
    """`SCRATCH_2`: not replicated, the cheapest; `PERSISTENT_1` or `PERSISTENT_2` (newer, in fewer regions): replicated
    within the zone."""
    fsx_throughput: int = 0
    """MB/s per TiB: 50, 100 or 200 with `PERSISTENT_1`; 125, 250, 500 or 1000 with `PERSISTENT_2`."""
    fsx_compression: bool = False
    """Compress data when they are written (LZ4)."""
    fsx_mount: str = "/mnt/fsx"
    """Mount point of the Lustre file system on all nodes."""
    fsx_s3: str = ""
    """`s3://BUCKET/PREFIX` in the cluster's region, to show under `fsx_mount`/data; empty: none."""
    fsx_export: bool = False
    """Copy new and changed files under `fsx_mount`/data back to `fsx_s3`. Deleted files stay there."""

    def check_lustre(self) -> None:
        """Raise ConfigError for the first invalid value of these keys. Booleans have no rule here."""
        require_range(self, "fsx_capacity_gib", 0, 1_000_000)
        size = self.fsx_capacity_gib
        if size and size != _SMALLEST_GIB and size % _STEP_GIB:
            raise ConfigError("fsx_capacity_gib", size, f"must be 0, {_SMALLEST_GIB} or a multiple of {_STEP_GIB}")
        require_choice(self, "fsx_deployment", *FSX_THROUGHPUTS)
        require_choice(self, "fsx_throughput", *sorted({each for some in FSX_THROUGHPUTS.values() for each in some}))
        require_mount_point(self, "fsx_mount")
        require_match(
            self,
            "fsx_s3",
            rf"(?=.{{0,1024}}$)(?:s3://{BUCKET}(?:/[\w.=-]+)*/?)?",
            "s3://BUCKET or s3://BUCKET/PREFIX, or empty",
        )
