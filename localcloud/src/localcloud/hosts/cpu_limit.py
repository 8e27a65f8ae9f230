"""Limits of hosts' processor time, so that hosts do not take time from each other: a control group for each host.

Version 2 is used if its cpu controller is available, otherwise version 1. The groups are in
`localcloud/CLOUD/INSTANCE`.

A host sees only as many processors as its time amounts to, rounded up. With two threads on a fifth of a processor, the
duration of a step depends on how long one thread waits for the other: rounds of the same step differed by half.
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
"""Short compared with a training step, so that a host runs in small slices. The kernel's default is 100 ms."""
_PARENT: Final = "localcloud"


class NoCpuControllerError(LocalCloudError):
    """This machine cannot limit the processor time of a group of processes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CpuLimit:
    """The limit for every host of one cloud."""

    cloud: str
    cpus: float
    """Processor time per time: 0.2 is a fifth of a processor."""
    groups: Path = GROUPS
    present: frozenset[int] = dataclasses.field(default_factory=lambda: frozenset(os.sched_getaffinity(0)))
    """The machine's processors."""
    _taken: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict, compare=False)
    """The assigned processors of each host."""

    @property
    def is_unified(self) -> bool:
        """Return whether version 2 of control groups has a cpu controller here; False if only version 1 has one.

        Raises NoCpuControllerError if neither has one.
        """
        with contextlib.suppress(OSError):
            if "cpu" in (self.groups / "cgroup.controllers").read_text(encoding="ascii").split():
                return True
        if (self.groups / "cpu" / "cpu.cfs_quota_us").exists():
            return False
        raise NoCpuControllerError(
            f"--cpus: no cpu controller of control groups in {self.groups}; if this machine is a container, "
            "start it with --privileged"
        )

    @property
    def directory(self) -> Path:
        """Return the directory of the whole cloud's control group. Raises NoCpuControllerError."""
        return (self.groups if self.is_unified else self.groups / "cpu") / _PARENT / self.cloud

    def check(self) -> None:
        """Create and remove a control group as a test. Raises NoCpuControllerError if that is not possible."""
        try:
            self.make("probe")
        except OSError as error:
            raise NoCpuControllerError(
                f"--cpus: cannot write the control group {error.filename}: {error.strerror}; if this machine is a "
                "container, start it with --privileged"
            ) from None
        finally:
            self.remove("probe")

    def processors(self, instance_id: str) -> tuple[int, ...]:
        """Return the numbers of a host's processors: as many as the limit, rounded up, but not more than there are.

        The first call for a host chooses the processors that the fewest hosts use. Later calls return the same.
        """
        count = min(math.ceil(self.cpus), len(self.present))
        users = Counter(each for id, taken in self._taken.items() if id != instance_id for each in taken)
        chosen = sorted(self.present, key=lambda each: (users[each], each))[:count]
        return self._taken.setdefault(instance_id, tuple(sorted(chosen)))

    def make(self, instance_id: str) -> Path:
        """Create a host's group with the limit; return its file cgroup.procs. Raises OSError.

        A process joins the group when its id is written to this file.
        """
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
        """Remove a host's control group, and its parents if they are empty. Free its processors for other hosts.

        Errors are ignored: a group that still has processes stays.
        """
        self._taken.pop(instance_id, None)
        with contextlib.suppress(OSError, NoCpuControllerError):
            for group in (self.directory / instance_id, self.directory, self.directory.parent):
                group.rmdir()


def join(pid: int, groups: Path = GROUPS) -> None:
    """Move this process to the control group and the processors of the host of process `pid`. Raises OSError."""
    os.sched_setaffinity(0, os.sched_getaffinity(pid))
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines():
        # Version 1 has a line with its controllers for each hierarchy. Version 2 has one line without controllers.
        _, controllers, path = line.split(":", 2)
        if path.startswith(f"/{_PARENT}/") and (not controllers or "cpu" in controllers.split(",")):
            hierarchy = groups / "cpu" if controllers else groups
            (hierarchy / path.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))


def remove_groups(cloud: str, groups: Path = GROUPS) -> None:
    """Remove the remaining groups of a cloud. Groups that still have processes stay, without an error."""
    limit = CpuLimit(cloud=cloud, cpus=1.0, groups=groups)
    with contextlib.suppress(OSError, NoCpuControllerError):
        for group in limit.directory.iterdir():
            if group.is_dir():
                limit.remove(group.name)
        for group in (limit.directory, limit.directory.parent):
            group.rmdir()
