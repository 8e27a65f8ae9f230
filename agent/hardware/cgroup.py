"""Read the CPU limits of this process's control group, version 2 or 1. Standard library only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from agent.hardware.cpulist import parse_list

GROUPS: Final = Path("sys/fs/cgroup")
OWN: Final = Path("proc/self/cgroup")
UNIFIED: Final = ""
"""What version 2 has in place of the names of controllers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a control group and of those above it."""

    quota_cpus: float
    """CPUs' worth of time in a period; infinite without a quota."""
    cpus: frozenset[int] | None
    """CPUs that may be used; None: all of them."""


def read_limits(root: Path) -> Limits:
    """Return the tightest limits from this process's group up to the root.

    A container sees its own group as the root, so that groups of the path that are missing are skipped. A limit that
    cannot be read does not count.
    """
    quotas, sets = [math.inf], []
    for controllers, path in _memberships(root):
        if controllers == {UNIFIED}:
            for group in (*_lineage(root / GROUPS, path), *_lineage(root / GROUPS / "unified", path)):
                quotas.append(parse_cpu_max(_text(group / "cpu.max")))
                sets.append(_text(group / "cpuset.cpus.effective"))
        if "cpu" in controllers:
            for group in _mounted(root, controllers, "cpu", path):
                quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
                quotas.append(parse_cpu_max(f"{quota} {period}"))
        if "cpuset" in controllers:
            for group in _mounted(root, controllers, "cpuset", path):
                sets.append(_text(group / "cpuset.effective_cpus") or _text(group / "cpuset.cpus"))
    known = [found for found in map(_cpus, sets) if found]
    return Limits(quota_cpus=min(quotas), cpus=frozenset.intersection(*known) if known else None)


def parse_cpu_max(text: str) -> float:
    """Parse `QUOTA PERIOD` in microseconds into CPUs; `max`, -1 and malformed texts mean no limit."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return math.inf
    quota, period = int(words[0]), int(words[1])
    return quota / period if quota and period else math.inf


def _memberships(root: Path) -> Iterator[tuple[frozenset[str], PurePosixPath]]:
    """Yield the controllers of each hierarchy and this process's group in it, from lines `ID:CONTROLLERS:PATH`."""
    for line in _text(root / OWN).splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and path.startswith("/") and ".." not in path:
            yield frozenset(controllers.split(",")), PurePosixPath(path)


def _mounted(root: Path, controllers: frozenset[str], controller: str, path: PurePosixPath) -> Iterator[Path]:
    """Yield the groups of a hierarchy of version 1, mounted under the names of its controllers or under one of them."""
    for name in dict.fromkeys([",".join(sorted(controllers)), controller]):
        yield from _lineage(root / GROUPS / name, path)


def _lineage(mount: Path, path: PurePosixPath) -> Iterator[Path]:
    """Yield a group and those above it, up to the mount itself, as far as they exist."""
    for parent in (path, *path.parents):
        group = mount / str(parent).lstrip("/")
        if group.is_dir():
            yield group


def _cpus(text: str) -> frozenset[int]:
    try:
        return parse_list(text)
    except ValueError:
        return frozenset()


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
