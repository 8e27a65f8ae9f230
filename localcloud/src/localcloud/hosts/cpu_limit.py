"""How much processor time a host has, so that hosts do not take it from each other: a control group for each.

Of version 2 where its cpu controller is there, else of version 1. The groups lie under `localcloud/CLOUD/INSTANCE`.

A host also sees no more processors than its time comes to, rounded up. With two threads for a fifth of a processor, how
much of it a step takes depends on how long one waits for the other: rounds of the same step differed by half.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections import Counter
from pathlib import Path
from typing import Final

from localcloud.errors import LocalCloudError

GROUPS: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 20_000
"""Short beside a training step, so that a host goes on in small slices; the kernel's own is 100 ms."""
_PARENT: Final = "localcloud"


class NoCpuControllerError(LocalCloudError):
    """Report that this machine cannot limit the processor time of a group of processes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CpuLimit:
    """The limit that every host of one cloud has."""

    cloud: str
    cpus: float
    """Processors' worth of time."""
    groups: Path = GROUPS
    present: frozenset[int] = dataclasses.field(default_factory=lambda: frozenset(os.sched_getaffinity(0)))
    """The machine's processors."""
    _taken: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict, compare=False)
    """Which of them each host has."""

    @property
    def is_unified(self) -> bool:
        """Return whether control groups are of version 2 here. Raises NoCpuControllerError where there are none."""
        with contextlib.suppress(OSError):
            if "cpu" in (self.groups / "cgroup.controllers").read_text(encoding="ascii").split():
                return True
        if (self.groups / "cpu" / "cpu.cfs_quota_us").exists():
            return False
        raise NoCpuControllerError(
            f"--cpus: no cpu controller of control groups in {self.groups}; in a container, run it with --privileged"
        )

    @property
    def directory(self) -> Path:
        """Return the group of the whole cloud."""
        return (self.groups if self.is_unified else self.groups / "cpu") / _PARENT / self.cloud

    def check(self) -> None:
        """Raise NoCpuControllerError where a limit cannot be set, after trying it."""
        try:
            self.make("probe")
        except OSError as error:
            raise NoCpuControllerError(f"--cpus: {error.strerror}: {error.filename}") from None
        finally:
            self.remove("probe")

    def processors(self, instance_id: str) -> tuple[int, ...]:
        """Return the processors of a host: those that the fewest others have."""
        count = min(math.ceil(self.cpus), len(self.present))
        users = Counter(each for id, taken in self._taken.items() if id != instance_id for each in taken)
        chosen = sorted(self.present, key=lambda each: (users[each], each))[:count]
        return self._taken.setdefault(instance_id, tuple(sorted(chosen)))

    def make(self, instance_id: str) -> Path:
        """Make a host's group; return the file that takes a process into it. Raises OSError."""
        group = self.directory / instance_id
        group.mkdir(parents=True, exist_ok=True)
        quota = round(self.cpus * PERIOD_US)
        if self.is_unified:
            for above in (self.groups, self.groups / _PARENT, self.directory):
                (above / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        return group / "cgroup.procs"

    def remove(self, instance_id: str) -> None:
        """Remove a host's group, of which no process is left, and those above that are empty."""
        self._taken.pop(instance_id, None)
        with contextlib.suppress(OSError, NoCpuControllerError):
            for group in (self.directory / instance_id, self.directory, self.directory.parent):
                group.rmdir()


def join(pid: int, groups: Path = GROUPS) -> None:
    """Have this process share the time and the processors of a host, of which this is a process. Raises OSError."""
    os.sched_setaffinity(0, os.sched_getaffinity(pid))
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines():
        # Version 1 has a line for each hierarchy, with its controllers; version 2 has one without any.
        _, controllers, path = line.split(":", 2)
        if path.startswith(f"/{_PARENT}/") and (not controllers or "cpu" in controllers.split(",")):
            hierarchy = groups / "cpu" if controllers else groups
            (hierarchy / path.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))


def remove_groups(cloud: str, groups: Path = GROUPS) -> None:
    """Remove the groups that a cloud has left, whose processes are gone."""
    limit = CpuLimit(cloud=cloud, cpus=1.0, groups=groups)
    with contextlib.suppress(OSError, NoCpuControllerError):
        for group in limit.directory.iterdir():
            if group.is_dir():
                limit.remove(group.name)
        for group in (limit.directory, limit.directory.parent):
            group.rmdir()
