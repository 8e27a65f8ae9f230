"""Hardware of a node that affects a run's time: GPUs, cores, network."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from cluster.errors import UsageError
from stacks import instance_types

_PEAK: Final = re.compile(r"Up to ([0-9.]+) Gigabit")
_STEADY: Final = re.compile(r"(?:([0-9]+)x )?([0-9.]+) Gigabit")
_OF_WORDS: Final = {"Very Low": 0.1, "Low": 0.2, "Low to Moderate": 0.3, "Moderate": 0.5, "High": 1.0}
"""Gbit/s for types with only a verbal description of their network (generations before 2014). Estimated: Amazon gives
no figures.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hardware:
    """The hardware of one node."""

    instance_type: str
    gpus: int
    gpu: str
    """As in `stacks/instance_types.csv`; "" without GPUs."""
    vcpus: int
    cores: int
    """Physical cores: one per two vCPUs, except on Graviton."""
    network_gbit_s: float
    network_peak: bool = False
    """Whether the network reaches that only in bursts (`Up to 10 Gigabit`)."""
    nvlink: bool = False
    efa: bool = False
    """Whether the type supports EFA devices."""
    ranks_per_node: int = 0
    """As in `fab train --ranks-per-node`; 0 for its default."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks that `fab train` starts on the node: by default one per GPU, or one
        without GPUs.
        """
        return self.ranks_per_node or self.gpus or 1


def _p3(size: str, gpus: int, vcpus: int, gbit_s: float, *, peak: bool = False, efa: bool = False) -> Hardware:
    """Build the hardware of a p3 instance type. `size` follows "p3" in its name, such as ".2xlarge".

    `gbit_s` is the network's bandwidth. With `peak`, that is not its baseline but its peak.
    """
    return Hardware(
        instance_type=f"p3{size}",
        gpus=gpus,
        gpu="V100",
        vcpus=vcpus,
        cores=vcpus // 2,
        network_gbit_s=gbit_s,
        network_peak=peak,
        nvlink=gpus > 1,
        efa=efa,
    )


PUBLISHED: Final = {
    hardware.instance_type: hardware
    for hardware in (
        _p3(".2xlarge", 1, 8, 10, peak=True),
        _p3(".8xlarge", 4, 32, 10),
        _p3(".16xlarge", 8, 64, 25),
        _p3("dn.24xlarge", 8, 96, 100, efa=True),
    )
}
"""Types used by published recipes that the table of instance types no longer contains.

Source: https://aws.amazon.com/ec2/instance-types/p3/, as of 2019.
"""


def hardware_of(instance_type: str) -> Hardware:
    """Return the hardware of an instance type, from the included table. GPUs of other makers than NVIDIA do not count.

    For a type that is not in the table, raises UsageError with the flag --instance and the closest name.
    """
    if instance_type in PUBLISHED:
        return PUBLISHED[instance_type]
    found = instance_types.find(instance_type)
    if found is None:
        rule = f"not in the table of instance types; did you mean {_nearest(instance_type)}?"
        raise UsageError("--instance", instance_type, rule)
    gbit_s, peak = _network(found.network)
    arm = "arm64" in found.architectures
    return Hardware(
        instance_type=instance_type,
        gpus=found.gpus if found.gpu_maker == "NVIDIA" else 0,
        gpu=found.gpu_name if found.gpu_maker == "NVIDIA" else "",
        vcpus=found.vcpus,
        cores=found.vcpus if arm else max(1, found.vcpus // 2),
        network_gbit_s=gbit_s,
        network_peak=peak,
        nvlink=found.nvlink_gpus > 1,
        efa=found.efa_interfaces > 0,
    )


def _nearest(instance_type: str) -> str:
    try:
        return instance_types.nearest(instance_type)
    except (IndexError, ValueError):  # the word does not resemble any type's name
        return "c5.2xlarge"


def _network(words: str) -> tuple[float, bool]:
    """Parse EC2's description of a network. Return its bandwidth in Gbit/s, and whether that is a peak.

    Descriptions in words, such as "Moderate", have an estimated bandwidth, which counts as a peak. It is 0.1 Gbit/s for
    an unknown description.
    """
    if peak := _PEAK.fullmatch(words):
        return float(peak[1]), True
    if steady := _STEADY.fullmatch(words):
        return int(steady[1] or 1) * float(steady[2]), False
    return _OF_WORDS.get(words, 0.1), True
