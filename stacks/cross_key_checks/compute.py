"""Rules for the nodes: instance types, placement, EFA, updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stacks.config import ClusterConfig
from stacks.cross_key_checks.problem import Problem
from stacks.instance_types import find, is_xen, nearest, origin

# CloudFormation waits at most PT1H for a batch of a rolling update (AutoScalingRollingUpdate, PauseTime), but up to 12
# hours for the nodes of a new group.
_MAX_PAUSE_MIN: Final = 60


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with the nodes: types, placement, EFA, capacity, scratch disks, updates, a master on Xen."""
    yield from _instance_type(config, "master_instance_type", config.master_instance_type)
    yield from _instance_type(config, "worker_instance_type", config.worker_instance_type)
    for name in config.worker_alternatives:
        yield from _instance_type(config, "worker_alternatives", name)
    yield from _placement(config)
    yield from _efa(config)
    yield from _capacity(config)
    yield from _scratch(config)
    yield from _rolling(config)
    if is_xen(config.master_instance_type):
        yield Problem(
            key="master_instance_type",
            value=config.master_instance_type,
            rule=f"{config.master_instance_type} runs on Xen: EC2 shows the console output, with the SSH host keys, "
            "only some minutes after each boot, and until then nobody can connect to the cluster",
            remedy="use a type on Nitro, such as t3.medium",
        )


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield a caution for each worker type that runs on Xen, because its console output arrives late.

    `Latest` of GetConsoleOutput returns the current output, but "is supported on instance types that use the Nitro
    hypervisor" (EC2 API). Without `Latest`, the output "can take up to 20 minutes" (canonical/pycloudlib #193).
    """
    for name in filter(is_xen, config.worker_types):
        yield Problem(
            key="worker_instance_type" if name == config.worker_instance_type else "worker_alternatives",
            value=name,
            rule=f"{name} runs on Xen: EC2 shows the console output, with the SSH host key, up to 20 minutes after a "
            "boot, and until then the master does not admit the worker",
            remedy="expect this delay for each new worker, or use a type on Nitro",
        )


def _instance_type(config: ClusterConfig, key: str, name: str) -> Iterator[Problem]:
    if find(name) is None and not config.allow_unknown_instance_types:
        near = nearest(name)
        yield Problem(
            key=key,
            value=name,
            rule=f"not in the table of instance types ({origin()}); the nearest is {near}",
            remedy=f"set {near}; if the type is newer than the table, run `python -m tools.instance_types` in a "
            "checkout of deepcdk; to skip the checks that need the table, set allow_unknown_instance_types = true",
        )


def _placement(config: ClusterConfig) -> Iterator[Problem]:
    """With placement_group or efa, check the requirements of cluster placement groups.

    All worker types must support such a group, and all workers must be in one zone.
    """
    if not config.placement_group and not config.efa:
        return
    key = "efa" if config.efa else "placement_group"
    for kind in filter(None, map(find, config.worker_types)):
        if config.clustered and "cluster" not in kind.placements and (not config.efa or kind.efa_interfaces):
            yield Problem(
                key=key,
                value=True,
                rule=f"{kind.name} does not support cluster placement groups",
                remedy=f"set {key} = false, or use another type of workers; burstable types (t3, t4g) do not work",
            )
    if config.availability_zones > 1:
        yield Problem(
            key="availability_zones",
            value=config.availability_zones,
            rule="a cluster placement group, which efa implies, is in one zone"
            if config.efa
            else "a cluster placement group is in one zone",
            remedy=f"set availability_zones = 1, or {key} = false",
        )


def _efa(config: ClusterConfig) -> Iterator[Problem]:
    """If efa is set, check that the workers' type is in the table of instance types and has EFA devices."""
    kind = find(config.worker_instance_type)
    if not config.efa or (kind is not None and kind.efa_interfaces):
        return
    yield Problem(
        key="efa",
        value=True,
        rule=f"{config.worker_instance_type} has no EFA"
        if kind
        else f"the table of instance types has no number of EFA devices for {config.worker_instance_type}",
        remedy="set efa = false, or use a type with EFA such as p4d.24xlarge, p5.48xlarge or c5n.18xlarge"
        if kind
        else "set efa = false, or run `python -m tools.instance_types` in a checkout of deepcdk, with a region that "
        "has the type",
    )


def _capacity(config: ClusterConfig) -> Iterator[Problem]:
    if config.least_workers > config.workers:
        yield Problem(
            key="capacity_policy",
            value=config.capacity_policy,
            rule=f"requires more workers than are deployed (workers = {config.workers})",
            remedy=f"set workers to {config.least_workers} or more, or lower the number in capacity_policy",
        )


def _scratch(config: ClusterConfig) -> Iterator[Problem]:
    """Check that every worker type has an NVMe instance store to mount, if scratch_mount is set."""
    key, place = "scratch_mount", config.scratch_mount
    if not place:
        return
    for kind in filter(None, map(find, config.worker_types)):
        if not kind.store_disks:
            yield Problem(
                key=key,
                value=place,
                rule=f"{kind.name} has no NVMe instance store",
                remedy="remove scratch_mount, or use a type with an instance store, such as c5d, g5 or p5",
            )


def _rolling(config: ClusterConfig) -> Iterator[Problem]:
    if config.update_policy == "rolling" and config.ready_min > _MAX_PAUSE_MIN:
        yield Problem(
            key="ready_timeout_min",
            value=config.ready_timeout_min,
            rule=f"with update_policy = rolling, CloudFormation waits at most {_MAX_PAUSE_MIN} minutes for a batch",
            remedy=f"set ready_timeout_min to {_MAX_PAUSE_MIN} or less, or update_policy = keep",
        )
