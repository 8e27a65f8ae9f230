"""The properties of EC2 instance types, from a table that `python -m tools.instance_types` writes.

Standard library only. The table is read once, at the first lookup.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_suffix(".csv")
# Prefix of the lines before the header, which contain the table's date and source.
COMMENT: Final = "# "


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceType:
    """The properties of an EC2 instance type."""

    name: str
    vcpus: int
    memory_mib: int
    architectures: tuple[str, ...]
    """EC2's names: `x86_64`, `arm64`, `i386`, `x86_64_mac`, `arm64_mac`."""
    gpus: int
    gpu_maker: str
    """`NVIDIA`, or another maker; empty without GPUs."""
    gpu_name: str
    """Such as `H100`; empty without GPUs."""
    gpu_memory_mib: int
    """Total memory of all GPUs."""
    nvlink_gpus: int
    """Number of GPUs connected by NVLink; 0: PCI Express, or a single GPU."""
    network: str
    """EC2's description: `Up to 10 Gigabit`, `3200 Gigabit`."""
    efa_interfaces: int
    """Maximum number of EFA devices; 0: no EFA."""
    efa_first_card: int
    """Index of the first network card that supports an EFA device. All following cards do too."""
    store_disks: int
    """Number of NVMe disks in the instance store."""
    store_gb: int
    """Total size of these disks, GB."""
    placements: tuple[str, ...]
    """Supported strategies of placement groups: `cluster`, `partition`, `spread`."""
    hypervisor: str
    """`nitro` or `xen`; empty for bare metal."""


FIELDS: Final = tuple(field.name for field in dataclasses.fields(InstanceType))
_NUMBERS: Final = frozenset(field.name for field in dataclasses.fields(InstanceType) if field.type == "int")
# Families with GPUs or FPGAs that EC2 no longer offers everywhere (EC2 Instance Types Guide, "Xen-based instances").
_XEN_FAMILIES: Final = frozenset({"f1", "g2", "g3", "g3s", "p2", "p3"})
_LISTS: Final = frozenset({"architectures", "placements"})


def find(name: str) -> InstanceType | None:
    """Return the instance type with this name (`p5.48xlarge`), or None if the table does not contain it."""
    line = _rows().get(name)
    if line is None:
        return None
    values: dict[str, object] = {}
    for field, cell in zip(FIELDS, line.split(","), strict=True):
        values[field] = int(cell) if field in _NUMBERS else tuple(cell.split()) if field in _LISTS else cell
    return InstanceType(**values)  # type: ignore[arg-type]  # the loop above converts each field to its type


def is_xen(name: str) -> bool:
    """Return whether a type runs on Xen instead of Nitro. For a type that is not in the table, its family decides."""
    kind = find(name)
    return kind.hypervisor == "xen" if kind else name.partition(".")[0] in _XEN_FAMILIES


def names() -> tuple[str, ...]:
    """Return the names of all types in the table, sorted."""
    return tuple(_rows())


def nearest(name: str) -> str:
    """Return the most similar name in the table, from the same family (`p5en`) or generation (`p5`) if possible.

    There is always a result, even if no name is similar.
    """
    family = name.partition(".")[0]
    (generation,) = re.findall(r"^[a-z]*[0-9]*", name)
    nearby = ([known for known in _rows() if known.startswith(start)] for start in (f"{family}.", generation, ""))
    return difflib.get_close_matches(name, next(filter(None, nearby)), cutoff=0)[0]


@functools.cache
def origin() -> str:
    """Return the date and source of the table."""
    with TABLE.open(encoding="utf-8") as lines:
        return " ".join(line[len(COMMENT) :].strip() for line in lines if line.startswith(COMMENT))


def render(types: list[InstanceType], about: str) -> str:
    """Return the text of a table: a comment line with its origin, a header, and a line for each type, by name.

    Commas in a value become semicolons.
    """
    lines = [COMMENT + about, ",".join(FIELDS)]
    for each in sorted(types, key=lambda each: each.name):
        values = (getattr(each, field) for field in FIELDS)
        cells = [" ".join(value) if isinstance(value, tuple) else str(value) for value in values]
        # EC2's values contain no commas today. A comma would shift the cells of its line.
        lines.append(",".join(cell.replace(",", ";") for cell in cells))
    return "\n".join(lines) + "\n"


@functools.cache
def _rows() -> dict[str, str]:
    """Return the line of each type by name. Lines are split into cells only on request, in `find`."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith(COMMENT)]
    return {line.partition(",")[0]: line for line in lines[1:]}
