"""Minimum GPU and network speeds that a run's nodes must reach, by instance type."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from agent.spec.run import RunSpec
from agent.spec.run_limits import Floors
from stacks.gpus import least_allreduce_gb_s, least_matmul_tflops
from stacks.instance_types import find

_MEASURED_S: Final = 0.01
"""Approximate duration of the measured allreduce at the minimum bandwidth. It is long compared with the latency."""
_SMALLEST_MIB: Final = 256
_LARGEST_MIB: Final = 2048


def floors(types: Sequence[str], *, efa: bool, ranks: Sequence[int] = ()) -> Floors:
    """Return the minimum speeds for hosts of these types, one type per host; no minimum if the table lacks a type.

    `efa` means that the hosts have EFA devices. `ranks` are the numbers of ranks of the hosts, by default one rank per
    GPU.
    """
    kinds = [kind for kind in map(find, types) if kind]
    if len(kinds) < len(types) or not kinds:
        return Floors()
    gb_s = least_allreduce_gb_s(kinds, ranks or [kind.gpus for kind in kinds], efa=efa)
    mib = round(gb_s * 1e9 * _MEASURED_S / (1 << 20))
    return Floors(
        matmul_tflops=least_matmul_tflops(kinds),
        allreduce_gb_s=gb_s,
        allreduce_mib=min(max(mib, _SMALLEST_MIB), _LARGEST_MIB),
    )


def with_floors(spec: RunSpec, types: Mapping[str, str], *, efa: bool) -> RunSpec:
    """Return the spec with the minimum speeds of its nodes, and with `efa`. A run without GPUs gets neither.

    `types` maps instance ids to types. `efa` says whether the workers have EFA devices.
    """
    kind = spec.runtime_kind
    if kind is None or not kind.has_gpus:
        return dataclasses.replace(spec, efa=False, floors=Floors())
    found = [types.get(host.instance_id, "") for host in spec.hosts]
    ranks = [host.slots for host in spec.hosts]
    return dataclasses.replace(spec, efa=efa, floors=floors(found, efa=efa, ranks=ranks))
