"""Rules of the nodes: instance types, placement, EFA, spot."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.instance_types import find, nearest, origin
from stacks.validation.problem import Problem


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule of the nodes that the configuration breaks."""
    for role in ("master", "worker"):
        yield from _instance_type(config, role)
    yield from _placement(config)
    yield from _efa(config)
    yield from _spot(config)


def _instance_type(config: ClusterConfig, role: str) -> Iterator[Problem]:
    key = f"{role}_instance_type"
    name = getattr(config, key)
    if find(name) is None and not config.allow_unknown_instance_types:
        near = nearest(name)
        yield Problem(
            key=key,
            value=name,
            rule=f"not in the table of instance types ({origin()}); the nearest is {near}",
            remedy=f"set {near}; for a type that is newer than the table, run `python -m tools.instance_types`; "
            "to deploy it without the checks that need the table, set allow_unknown_instance_types = true",
        )


def _placement(config: ClusterConfig) -> Iterator[Problem]:
    """Check what a cluster placement group asks of the instance type and the zones."""
    if not config.clustered:
        return
    key = "efa" if config.efa else "placement_group"
    kind = find(config.worker_instance_type)
    if kind is not None and "cluster" not in kind.placements and (not config.efa or kind.efa_interfaces):
        yield Problem(
            key=key,
            value=True,
            rule=f"{kind.name} does not support cluster placement groups",
            remedy=f"set {key} = false, or another worker_instance_type; burstable types (t3, t4g) have none",
        )
    if config.availability_zones > 1:
        yield Problem(
            key="availability_zones",
            value=config.availability_zones,
            rule="a cluster placement group, which efa implies, lies in one zone"
            if config.efa
            else "a cluster placement group lies in one zone",
            remedy=f"set availability_zones = 1, or {key} = false",
        )


def _efa(config: ClusterConfig) -> Iterator[Problem]:
    """Check that the workers' type has EFA devices, and that their number is known."""
    kind = find(config.worker_instance_type)
    if not config.efa or (kind is not None and kind.efa_interfaces):
        return
    yield Problem(
        key="efa",
        value=True,
        rule=f"{config.worker_instance_type} has no EFA"
        if kind
        else f"how many EFA devices {config.worker_instance_type} has is not in the table of instance types",
        remedy="set efa = false, or a type with EFA such as p4d.24xlarge, p5.48xlarge or c5n.18xlarge"
        if kind
        else "run `python -m tools.instance_types` where AWS offers the type, or set efa = false",
    )


def _spot(config: ClusterConfig) -> Iterator[Problem]:
    if config.on_demand_workers and not config.spot:
        yield Problem(
            key="on_demand_workers",
            value=config.on_demand_workers,
            rule="says how many spot workers are on-demand instances nevertheless, but spot is false",
            remedy="set spot = true, or leave it out: without spot all workers are on-demand instances",
        )
