"""Checks of the zones that offer the instance types, and the minimum speeds of their GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cluster.deploy.zones import node_types, offers
from cluster.doctor.finding import FAIL, OK, REPLACES, UNKNOWN, WARN, Finding, Subject, finding
from cluster.runs.minimum_speeds import floors
from stacks.gpus import SPEEDS
from stacks.instance_types import find


def offering(subject: Subject) -> Iterator[Finding]:
    """Check that there are enough zones, and that the subnets' zones offer the instance types.

    Yields one finding per type, and one before them if there are too few zones. If the workers have several types and
    each zone offers one of them, a type that a zone lacks is only a warning. Raises AwsError.
    """
    config, zones = subject.config, subject.zones
    if zones and not config.vpc_id and len(zones) < config.availability_zones:
        what = f"availability_zones = {config.availability_zones}, but this account has only {', '.join(zones)}"
        yield finding("zones", FAIL, what, f"set availability_zones = {len(zones)}, or use another region")
    wanted = node_types(config)
    offered = offers(subject.aws, wanted)
    # In each zone, the group launches a worker type that is offered there.
    suffices = all(any(zone in offered[kind] for kind in config.worker_types) for zone in zones)
    own, deployed = not config.vpc_id, subject.deployed
    for kind in wanted:
        spare = kind != config.master_instance_type and suffices
        yield judge_offering(kind, zones, offered[kind], own=own, spare=spare, deployed=deployed)


def judge_offering(
    kind: str,
    zones: Sequence[str],
    offered: Collection[str],
    *,
    own: bool,
    spare: bool = False,
    deployed: bool = False,
) -> Finding:
    """Judge whether every zone of the subnets offers a type. `offered` are the zones that offer it.

    `own` means that the VPC belongs to the cluster, `deployed` that the cluster exists. `spare` means that the workers
    can use another type in zones without this one, so that the result is only a warning. Without `zones` it is unknown.
    """
    name = f"zones for {kind}"
    missing = [zone for zone in zones if zone not in offered]
    if not zones:
        return finding(name, UNKNOWN, "the subnets have no known zone", "check the subnets and zones in cdk.json")
    if not missing:
        return finding(name, OK, f"offered in {', '.join(zones)}")
    elsewhere = ", ".join(sorted(offered)) or "no zone of this region"
    remedy = (
        "choose another instance type or region"
        if own and not offered
        else f"choose another type, or set zones to zones that offer it ({elsewhere}){REPLACES if deployed else ''}"
        if own
        else "name subnets in a zone that offers it, or choose another type"
    )
    what = f"not offered in {', '.join(missing)}, the zones of the nodes; offered in {elsewhere}"
    return finding(name, WARN if spare else FAIL, what, remedy)


def floors_of_types(subject: Subject) -> Iterator[Finding]:
    """Report, for each worker type with GPUs, the minimum speeds that a run requires. Warns if there are none for its
    GPUs.
    """
    for name in subject.config.worker_types:
        kind = find(name)
        if kind is None or not kind.gpus:
            continue
        found = floors((name, name), efa=subject.config.efa)
        speed = SPEEDS.get(kind.gpu_name)
        if speed is None:
            what = (
                f"{name}: there is no published speed of {kind.gpu_name} GPUs, so their speed is measured but has "
                "no minimum"
            )
            remedy = "before a long run, compare the pre-flight's figures on two nodes"
            yield finding("GPU floors", WARN, what, remedy)
            continue
        network = (
            f"an allreduce over all GPUs of two nodes reaches {found.allreduce_gb_s:.3g} GB/s or more"
            if found.allreduce_gb_s
            else "the allreduce is measured but has no minimum, because its slowest link has no published speed"
        )
        what = (
            f"{name}: a run starts only if each {kind.gpu_name} multiplies at {found.matmul_tflops:.3g} TFLOP/s or "
            f"more ({speed.source}), and {network}; `fab train --allow-degraded` also starts below"
        )
        yield finding("GPU floors", OK, what)
