"""Checks of the account's quotas: vCPUs of the instance types, addresses, VPCs.

Quotas are found by their names, which list the instance families ("Running On-Demand G and VT instances", "All Standard
(A, C, ...) Spot Instance Requests"), so that one for a new family needs no new code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import aws_errors
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Finding, Subject
from stacks.config import CLUSTER_TAG, ClusterConfig
from stacks.config_keys.network import ONE_NAT_GATEWAY
from stacks.instance_types import find

if TYPE_CHECKING:
    from cluster.aws.client import Aws

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
_NAMES: Final = {
    ON_DEMAND: re.compile(r"Running On-Demand (.+) instances"),
    SPOT: re.compile(r"All (.+) Spot Instance Requests"),
}
ASK: Final = (
    "ask for more in Service Quotas: https://console.aws.amazon.com/servicequotas/home/services/{service}/quotas"
)
_COUNTED: Final = ("pending", "running")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demand:
    """The vCPUs that the cluster needs of one quota."""

    instance_type: str
    market: str
    """on-demand or spot."""
    now: int
    """At deployment."""
    most: int
    """With all of max_workers."""


def demands(config: ClusterConfig) -> tuple[Demand, ...]:
    """Return what the cluster needs, by instance type and market; types that are not in the table are left out.

    Of several types for the workers it is the preferred one. Capacity blocks count in none of these quotas. With
    capacity rebalancing a group has one more while it replaces a worker at risk, and of many a tenth more, beyond its
    maximum too (EC2 Auto Scaling user guide, "Capacity Rebalancing in Auto Scaling to replace at-risk Spot Instances").
    """
    found: dict[tuple[str, str], list[int]] = {}

    def add(instance_type: str, market: str, now: int, most: int) -> None:
        kind = find(instance_type)
        if kind is not None and most:
            entry = found.setdefault((instance_type, market), [0, 0])
            entry[0] += now * kind.vcpus
            entry[1] += most * kind.vcpus

    add(config.master_instance_type, ON_DEMAND, 1, 1)
    if config.capacity_block:
        pass
    elif config.spot:
        certain, worker = config.on_demand_workers, config.worker_instance_type
        add(worker, ON_DEMAND, min(certain, config.workers), certain)
        now, most = config.workers, config.max_workers
        if config.capacity_rebalance:
            most += config.max_workers // 10
            now = min(now + 1, config.max_workers + now // 10) if now > certain else now
        add(worker, SPOT, max(0, now - certain), most - certain)
    else:
        add(config.worker_instance_type, ON_DEMAND, config.workers, config.max_workers)
    return tuple(
        Demand(instance_type=kind, market=market, now=now, most=most) for (kind, market), (now, most) in found.items()
    )


def families(text: str) -> frozenset[str]:
    """Parse the families in the name of a quota: `Standard (A, C and D)`, `G and VT`, `P4, P3 and P2`, `P`."""
    inner = re.search(r"\((.+)\)", text)
    words = re.split(r",|\band\b", inner.group(1) if inner else text)
    return frozenset(word.strip().upper() for word in words if word.strip())


def family(instance_type: str) -> tuple[str, str]:
    """Return generation and family of a type as in the names of quotas: `P5` and `P` of p5en.48xlarge."""
    if instance_type.startswith("u-") or re.match(r"u\d", instance_type):
        return "HIGH MEMORY", "HIGH MEMORY"
    found = re.match(r"([a-z]+)(\d*)", instance_type)
    letters, digits = (found.group(1), found.group(2)) if found else (instance_type, "")
    return (letters + digits).upper(), letters.upper()


def quota_for(instance_type: str, market: str, quotas: Mapping[str, float]) -> str:
    """Return the name of the quota for a type's vCPUs, the narrowest one; "" if none is known."""
    listed = {
        name: families(found.group(1)) for name in quotas if (found := _NAMES[market].fullmatch(name)) is not None
    }
    for wanted in family(instance_type):
        for name, each in listed.items():
            if wanted in each:
                return name
    return ""


def vcpus(subject: Subject) -> Iterator[Finding]:
    """Check that the quotas have room for the cluster's vCPUs."""
    needed = demands(subject.config)
    quotas = read_quotas(subject.aws, "ec2")
    used = _running(subject)
    by_quota: dict[str, list[Demand]] = {}
    for each in needed:
        name = quota_for(each.instance_type, each.market, quotas)
        if not name:
            what = f"no quota of this account is known to count {each.market} {each.instance_type}"
            yield Finding(check=f"quota of {each.market} {each.instance_type}", state=UNKNOWN, what=what)
            continue
        by_quota.setdefault(name, []).append(each)
    for name, those in by_quota.items():
        taken = sum(
            count for (kind, market), count in used.items() if quota_for(kind, market, {name: quotas[name]}) == name
        )
        yield judge_vcpus(name, quotas[name], taken, those)


def judge_vcpus(name: str, limit: float, taken: int, needed: Sequence[Demand]) -> Finding:
    """Judge one quota; `taken` are the vCPUs used by others than this cluster."""
    now, most = sum(each.now for each in needed), sum(each.most for each in needed)
    kinds = ", ".join(dict.fromkeys(each.instance_type for each in needed))
    what = f"{name}: {limit:g} vCPUs, {taken} in use by others; {kinds} need {now}, {most} with all of max_workers"
    remedy = ASK.format(service="ec2")
    if taken + now > limit:
        return Finding(check="vCPU quota", state=FAIL, what=what, remedy=remedy)
    if taken + most > limit:
        return Finding(check="vCPU quota", state=WARN, what=what, remedy=f"set a smaller max_workers, or {remedy}")
    return Finding(check="vCPU quota", state=OK, what=what)


def _running(subject: Subject) -> dict[tuple[str, str], int]:
    """Return the vCPUs in use by type and market, without this cluster's own."""
    used: dict[tuple[str, str], int] = {}
    with aws_errors("counting the running instances"):
        pages = (
            subject.aws.client("ec2")
            .get_paginator("describe_instances")
            .paginate(Filters=[{"Name": "instance-state-name", "Values": list(_COUNTED)}])
        )
        instances = [i for page in pages for reservation in page["Reservations"] for i in reservation["Instances"]]
    for each in instances:
        tags = {tag["Key"]: tag["Value"] for tag in each.get("Tags", ())}
        if tags.get(CLUSTER_TAG) == subject.config.name:
            continue
        market = SPOT if each.get("InstanceLifecycle") == "spot" else ON_DEMAND
        key = (each["InstanceType"], market)
        used[key] = used.get(key, 0) + _vcpus(each)
    return used


def _vcpus(instance: Mapping[str, Any]) -> int:
    kind = find(instance["InstanceType"])
    if kind is not None:
        return kind.vcpus
    options = instance.get("CpuOptions") or {}
    return int(options.get("CoreCount", 0)) * int(options.get("ThreadsPerCore", 1))


def addresses_and_networks(subject: Subject) -> Iterator[Finding]:
    """Check that the account has room for a VPC, its internet gateway and the NAT gateways' addresses."""
    config = subject.config
    if subject.deployed or config.vpc_id:
        yield Finding(check="network quotas", state=OK, what="no VPC and no elastic address is added")
        return
    wanted = 1 if config.nat_gateways == ONE_NAT_GATEWAY else config.availability_zones
    with aws_errors("counting VPCs and addresses"):
        ec2 = subject.aws.client("ec2")
        have_vpcs = sum(len(page["Vpcs"]) for page in ec2.get_paginator("describe_vpcs").paginate())
        have_addresses = len(ec2.describe_addresses()["Addresses"])
    for service, name, have, more in (
        ("vpc", "VPCs per Region", have_vpcs, 1),
        ("ec2", "EC2-VPC Elastic IPs", have_addresses, wanted),
    ):
        yield judge_count(service, name, read_quotas(subject.aws, service).get(name), have, more)


def judge_count(service: str, name: str, limit: float | None, have: int, more: int) -> Finding:
    """Judge a quota that counts resources: `have` exist, and `more` are to be created."""
    if limit is None:
        return Finding(
            check="network quotas",
            state=UNKNOWN,
            what=f"{name}: {have} exist, {more} more wanted; the limit is unknown",
        )
    what = f"{name}: {limit:g}, {have} exist; {more} more wanted"
    if have + more <= limit:
        return Finding(check="network quotas", state=OK, what=what)
    remedy = f"delete what is not used, or {ASK.format(service=service)}"
    return Finding(check="network quotas", state=FAIL, what=what, remedy=remedy)


def read_quotas(aws: Aws, service: str) -> dict[str, float]:
    """Read the quotas of the account by name; AWS's defaults if the account has no other value."""
    with aws_errors(f"reading the quotas of {service}"):
        client = aws.client("service-quotas", impatient=True)
        found: dict[str, float] = {}
        # The applied values come first: if they cannot be read, a default would be a guess.
        for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
            for page in client.get_paginator(operation).paginate(ServiceCode=service):
                for quota in page["Quotas"]:
                    found.setdefault(quota["QuotaName"], float(quota["Value"]))
    return found
