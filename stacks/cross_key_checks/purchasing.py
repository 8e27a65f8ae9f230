"""Rules for the workers' purchase options: alternative types, spot, reservations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stacks.config import ClusterConfig
from stacks.cross_key_checks.problem import Problem, unused
from stacks.instance_types import InstanceType, find

# Maximum number of overrides in a mixed instances policy (Auto Scaling's API reference, LaunchTemplate).
MAX_TYPES: Final = 40


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with the purchase options."""
    yield from _alternatives(config)
    yield from _spot(config)
    yield from _reservation(config)


def _alternatives(config: ClusterConfig) -> Iterator[Problem]:
    """Check that the alternative types are interchangeable in a run, not repeated and not too many.

    Also reject on_demand_allocation without alternatives.
    """
    key, first = "worker_alternatives", find(config.worker_instance_type)
    seen = {config.worker_instance_type}
    for name in config.worker_alternatives:
        if name in seen:
            rule = "is already worker_instance_type or an earlier alternative"
            yield Problem(key=key, value=name, rule=rule, remedy=f"remove it from {key}")
        seen.add(name)
        kind = find(name)
        for rule in _differences(first, kind, efa=config.efa) if first and kind else ():
            yield Problem(
                key=key,
                value=name,
                rule=rule,
                remedy="list only types with the same processor and GPUs: all use the same image, and all ranks "
                "have the same load",
            )
    if len(config.worker_types) > MAX_TYPES:
        yield Problem(
            key=key,
            value=len(config.worker_alternatives),
            rule=f"an Auto Scaling group can have at most {MAX_TYPES} types, including worker_instance_type",
            remedy=f"list at most {MAX_TYPES - 1} alternatives",
        )
    if not config.worker_alternatives:
        why = "with only one instance type"
        yield from unused(config, ["on_demand_allocation"], why, "set worker_alternatives")


def _differences(first: InstanceType, other: InstanceType, *, efa: bool) -> Iterator[str]:
    """Yield the reasons why a type cannot replace the first one in a run: its processors or GPUs differ.

    With `efa`, the number and layout of EFA devices must be the same too.
    """
    if not set(first.architectures) & set(other.architectures):
        yield f"has {' or '.join(other.architectures)} processors, {first.name} has {' or '.join(first.architectures)}"
    if (first.gpus, first.gpu_name) != (other.gpus, other.gpu_name):
        yield f"has {_gpus(other)}, {first.name} has {_gpus(first)}"
    ours, theirs = ((kind.efa_interfaces, kind.efa_first_card) for kind in (first, other))
    if efa and ours != theirs:
        yield (
            f"has {other.efa_interfaces} EFA devices in a different layout than {first.name} ({first.efa_interfaces}), "
            "but both use one launch template"
        )


def _gpus(kind: InstanceType) -> str:
    return f"{kind.gpus} {kind.gpu_name} GPUs" if kind.gpus else "no GPUs"


def _spot(config: ClusterConfig) -> Iterator[Problem]:
    if config.spot:
        if config.capacity_rebalance and not config.termination_notice_s:
            yield Problem(
                key="capacity_rebalance",
                value=True,
                rule="terminates workers that are at risk, and without a notice their ranks write no checkpoint",
                remedy="set termination_notice_s = 120, or remove capacity_rebalance",
            )
        return
    why = "with spot = false, when all workers are on-demand instances"
    yield from unused(config, ["on_demand_workers"], why, "set spot = true")
    yield from unused(config, ["spot_allocation", "capacity_rebalance"], "with spot = false", "set spot = true")


def _reservation(config: ClusterConfig) -> Iterator[Problem]:
    """Check that a capacity block has its ID, and the keys that conflict with a reservation.

    A reservation is on-demand capacity of one type in one zone.
    """
    given = config.capacity_reservation
    if config.capacity_block and not given.startswith("cr-"):
        yield Problem(
            key="capacity_block",
            value=True,
            rule="needs the ID of a capacity block in capacity_reservation, not the ARN of a resource group",
            remedy="set capacity_reservation to the block's ID, cr-..., or set capacity_block = false",
        )
    if not given:
        return
    key = "capacity_reservation"
    if config.spot:
        yield Problem(
            key=key,
            value=given,
            rule="spot instances cannot use a reservation, which is on-demand capacity",
            remedy="set spot = false, or remove capacity_reservation",
        )
    if given.startswith("cr-") and config.worker_alternatives:
        yield Problem(
            key=key,
            value=given,
            rule="one reservation is for one instance type, but worker_alternatives lists more",
            remedy="remove worker_alternatives, or set the ARN of a resource group with a reservation for each type",
        )
    if given.startswith("cr-") and config.availability_zones > 1:
        yield Problem(
            key="availability_zones",
            value=config.availability_zones,
            rule=f"the reservation {given} is in one zone, and launches in another zone would fail",
            remedy="set availability_zones = 1",
        )
    if config.capacity_block and config.placement_group:
        yield Problem(
            key="placement_group",
            value=True,
            rule="a capacity block already places its instances close together, and a placement group would conflict",
            remedy="set placement_group = false",
        )
