"""Read the available memory of this machine, and the memory cgroups of a process with their limits (v1 and v2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """The available and total memory of a node, bytes."""

    available: int
    size: int


def read_sample(root: Path = Path("/")) -> Sample:
    """Read this node's memory, or a memory cgroup's limit if that is lower. Values that cannot be read are 0.

    `root` is the folder that contains proc and sys.
    """
    memory = read_fields(root / "proc/meminfo")
    available, size = memory.get("MemAvailable:", 0) << 10, memory.get("MemTotal:", 0) << 10
    for limit, used in _limits(root):
        if limit < size:
            available, size = min(available, max(0, limit - max(0, used))), limit
    return Sample(available=available, size=size)


def read_fields(path: Path) -> dict[str, int]:
    """Return the first number of each line in a file of the kernel, by the line's first word.

    The words are kept as they are: meminfo's end with a colon, and its numbers are KiB. Lines of one word are skipped.
    Return {} if the file cannot be read, or if another line has no number as its second word.
    """
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        return {words[0]: int(words[1]) for words in lines if len(words) > 1}
    except (OSError, ValueError):
        return {}


def memory_groups(root: Path, pid: str) -> Iterator[tuple[bool, tuple[Path, ...]]]:
    """Yield a process's memory cgroups as pairs: whether the cgroup is version 1, and its directories, innermost first.

    `root` is the folder that contains proc and sys. `pid` is a process ID, or `self`. Yields nothing if the process is
    gone.
    """
    try:
        lines = (root / "proc" / pid / "cgroup").read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return
    for line in lines:
        _, has_more, rest = line.partition(":")
        controllers, has_path, path = rest.partition(":")
        if has_more and has_path and controllers in ("", "memory"):
            top = root / "sys/fs/cgroup" / controllers
            here = top / path.lstrip("/")
            yield bool(controllers), tuple(each for each in (here, *here.parents) if each.is_relative_to(top))


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and usage of each memory cgroup of this process, in bytes. cgroups without a limit are left out.

    Cached files do not count as used, because the kernel drops them before it kills a process.
    """
    for is_first, folders in memory_groups(root, "self"):
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if is_first else ("memory.max", "memory.current")
        for folder in folders:
            try:
                limit, used = (int((folder / name).read_text(encoding="ascii")) for name in names)
            except (OSError, ValueError):  # no limit, or not visible here
                continue
            fields = read_fields(folder / "memory.stat")  # in version 1, only `total_` includes the cgroups below
            cached = sum(fields.get(f"total_{name}", fields.get(name, 0)) for name in ("inactive_file", "active_file"))
            yield limit, used - cached
