"""The properties of EC2 instance types, from a table that `python -m tools.instance_types` writes.

Standard library only; the table is read at the first question, once.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_suffix(".csv")
# Lines before the header that say when and from what the table was made.
COMMENT: Final = "# "


class TableError(ValueError):
    """Report a table of instance types that cannot be read. Carries `path`, `line` and `rule`."""

    def __init__(self, path: Path, line: int, rule: str) -> None:
        self.path, self.line, self.rule = path, line, rule
        super().__init__(f"{path}, line {line}: {rule}; write it anew with `python -m tools.instance_types`")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceType:
    """One EC2 instance type."""

    name: str
    vcpus: int
    memory_mib: int
    architectures: tuple[str, ...]
    """As EC2 names them: `x86_64`, `arm64`, `i386`, `x86_64_mac`, `arm64_mac`."""
    gpus: int
    gpu_maker: str
    """`NVIDIA`; empty without GPUs."""
    gpu_name: str
    """`H100`; empty without GPUs."""
    gpu_memory_mib: int
    """Memory of all GPUs together."""
    nvlink_gpus: int
    """GPUs connected by NVLink; 0: PCI Express, or a single GPU."""
    network: str
    """As EC2 words it: `Up to 10 Gigabit`, `3200 Gigabit`."""
    efa_interfaces: int
    """EFA devices at most; 0: no EFA."""
    efa_first_card: int
    """Index of the first network card that takes an EFA device; the others follow without a gap."""
    store_disks: int
    """NVMe disks of the instance store; 0: none."""
    store_gb: int
    """Their total size, GB."""
    placements: tuple[str, ...]
    """Strategies of placement groups that it supports: `cluster`, `partition`, `spread`."""
    hypervisor: str
    """`nitro` or `xen`; empty for bare metal."""


FIELDS: Final = tuple(field.name for field in dataclasses.fields(InstanceType))
_NUMBERS: Final = frozenset(field.name for field in dataclasses.fields(InstanceType) if field.type == "int")
# Families with GPUs or FPGAs that EC2 no longer offers everywhere (EC2 Instance Types Guide, "Xen-based instances").
_XEN_FAMILIES: Final = frozenset({"f1", "g2", "g3", "g3s", "p2", "p3"})
_LISTS: Final = frozenset({"architectures", "placements"})


def find(name: str) -> InstanceType | None:
    """Return an instance type by name (`p5.48xlarge`); None where the table does not have it."""
    rows = _rows()
    return _parse(*rows[name]) if name in rows else None


def is_xen(name: str) -> bool:
    """Return whether a type runs on Xen instead of Nitro; for a type that is not in the table its family decides."""
    kind = find(name)
    return kind.hypervisor == "xen" if kind else name.partition(".")[0] in _XEN_FAMILIES


def names() -> tuple[str, ...]:
    """Return the names of all types in the table."""
    return tuple(_rows())


def nearest(name: str) -> str:
    """Return the name in the table nearest to `name`, of its family (`p5en`) or generation (`p5`) if possible."""
    family = name.partition(".")[0]
    (generation,) = re.findall(r"^[a-z]*[0-9]*", name)
    nearby = ([known for known in _rows() if known.startswith(start)] for start in (f"{family}.", generation, ""))
    return difflib.get_close_matches(name, next(filter(None, nearby)), cutoff=0)[0]


@functools.cache
def origin() -> str:
    """Return the date and the source that the table states."""
    with TABLE.open(encoding="utf-8") as lines:
        return " ".join(line[len(COMMENT) :].strip() for line in lines if line.startswith(COMMENT))


def render(types: list[InstanceType], about: str) -> str:
    """Return the text of a table: a comment line with its origin, a header, and a line for each type, by name."""
    lines = [COMMENT + about, ",".join(FIELDS)]
    for each in sorted(types, key=lambda each: each.name):
        values = (getattr(each, field) for field in FIELDS)
        cells = [" ".join(value) if isinstance(value, tuple) else str(value) for value in values]
        # No value of EC2's holds a comma today; one that did would shift the cells of its line.
        lines.append(",".join(cell.replace(",", ";") for cell in cells))
    return "\n".join(lines) + "\n"


@functools.cache
def _rows() -> dict[str, tuple[int, str]]:
    """Return line number and line of each type; only the requested ones are parsed further."""
    try:
        lines = TABLE.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TableError(TABLE, 0, f"cannot be read ({error.strerror})") from None
    start = next((index for index, line in enumerate(lines) if not line.startswith(COMMENT)), len(lines))
    if lines[start : start + 1] != [",".join(FIELDS)]:
        raise TableError(TABLE, start + 1, f"the columns must be {', '.join(FIELDS)}")
    return {line.partition(",")[0]: (number, line) for number, line in enumerate(lines[start + 1 :], start=start + 2)}


def _parse(number: int, line: str) -> InstanceType:
    cells = line.split(",")
    if len(cells) != len(FIELDS):
        raise TableError(TABLE, number, f"has {len(cells)} cells in place of {len(FIELDS)}")
    values: dict[str, object] = {}
    for field, cell in zip(FIELDS, cells, strict=True):
        if field in _NUMBERS and not cell.isdecimal():
            raise TableError(TABLE, number, f"{field} = {cell!r} must be a whole number")
        values[field] = int(cell) if field in _NUMBERS else tuple(cell.split()) if field in _LISTS else cell
    return InstanceType(**values)  # type: ignore[arg-type]  # each field's kind is that of the loop above
