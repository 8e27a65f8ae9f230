"""The floors of a run on GPUs, by the types of its instances."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from agent.spec.bounds import Floors
from agent.spec.run import RunSpec
from stacks.gpus import least_allreduce_gb_s, least_matmul_tflops
from stacks.instance_types import find

_MEASURED_S: Final = 0.01
"""How long an allreduce of the measured size takes about, at the floor: long beside its latency."""
_SMALLEST_MIB: Final = 256
_LARGEST_MIB: Final = 2048


def floors(types: Sequence[str], *, efa: bool, ranks: Sequence[int] = ()) -> Floors:
    """Return the floors for hosts of these types, one for each host; without any for a type that the table lacks.

    `ranks` are those of each host; without them each GPU has one.
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
    """Return the spec of a run on GPUs with what they must reach; of any other run as it is.

    `types` are those of the instances by their ids. `efa`: the workers were given EFA devices.
    """
    kind = spec.runtime_kind
    if kind is None or not kind.has_gpus:
        return dataclasses.replace(spec, efa=False, floors=Floors())
    found = [types.get(host.instance_id, "") for host in spec.hosts]
    ranks = [host.slots for host in spec.hosts]
    return dataclasses.replace(spec, efa=efa, floors=floors(found, efa=efa, ranks=ranks))
