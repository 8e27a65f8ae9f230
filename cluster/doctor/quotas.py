"""Checks of the account's quotas: vCPUs of the instance types, addresses, VPCs.

Quotas are found by their names, which list the instance families ("Running On-Demand G and VT instances", "All Standard
(A, C, ...) Spot Instance Requests"), so that a quota for a new family needs no new code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import aws_errors, entries
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Finding, Subject, finding
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

Kind = tuple[str, str]
"""An instance type, and on-demand or spot."""


def demands(config: ClusterConfig) -> dict[Kind, tuple[int, int]]:
    """Return the vCPUs that the cluster needs at deployment, and with all of max_workers.

    If the workers may have several types, the preferred one counts. Types that are not in the table, and capacity
    blocks, are left out. With capacity rebalancing a group has one worker more while it replaces a worker at risk, and
    of many a tenth more, beyond its maximum too (EC2 Auto Scaling user guide, "Capacity Rebalancing in Auto Scaling to
    replace at-risk Spot Instances").
    """
    now, most = config.workers, config.max_workers
    nodes = [((config.master_instance_type, ON_DEMAND), 1, 1)]
    worker = config.worker_instance_type
    if config.spot:
        certain = config.on_demand_workers
        nodes.append(((worker, ON_DEMAND), min(certain, now), certain))
        if config.capacity_rebalance:
            now = min(now + 1, most + now // 10) if now > certain else now
            most += most // 10
        nodes.append(((worker, SPOT), max(0, now - certain), most - certain))
    elif not config.capacity_block:
        nodes.append(((worker, ON_DEMAND), now, most))
    found: dict[Kind, tuple[int, int]] = {}
    for kind, first, all_nodes in nodes:
        known = find(kind[0])
        if known and all_nodes:
            before = found.get(kind, (0, 0))
            found[kind] = (before[0] + first * known.vcpus, before[1] + all_nodes * known.vcpus)
    return found


def families(text: str) -> frozenset[str]:
    """Parse the families in the name of a quota: `Standard (A, C and D)`, `G and VT`, `P4, P3 and P2`, `P`."""
    inner = re.search(r"\((.+)\)", text)
    words = re.split(r",|\band\b", inner.group(1) if inner else text)
    return frozenset(word.strip().upper() for word in words if word.strip())


def family(instance_type: str) -> tuple[str, str]:
    """Return generation and family of a type as in the names of quotas: `P5` and `P` of p5en.48xlarge."""
    if re.match(r"u-|u\d", instance_type):
        return "HIGH MEMORY", "HIGH MEMORY"
    letters, digits = re.findall(r"^([a-z]+)(\d*)", instance_type)[0]
    return (letters + digits).upper(), letters.upper()


def quota_for(kind: Kind, quotas: Mapping[str, float]) -> str:
    """Return the name of the quota for the vCPUs of a type, the narrowest one; "" if none is known."""
    instance_type, market = kind
    listed = {name: families(found[1]) for name in quotas if (found := _NAMES[market].fullmatch(name))}
    return next((name for wanted in family(instance_type) for name in listed if wanted in listed[name]), "")


def vcpus(subject: Subject) -> Iterator[Finding]:
    """Check that the quotas have room for the cluster's vCPUs."""
    quotas = read_quotas(subject.aws, "ec2")
    used = _running(subject)
    by_quota: dict[str, dict[Kind, tuple[int, int]]] = {}
    for kind, needed in demands(subject.config).items():
        if name := quota_for(kind, quotas):
            by_quota.setdefault(name, {})[kind] = needed
        else:
            what = f"no quota of this account is known to count {kind[1]} {kind[0]}"
            yield finding(f"quota of {kind[1]} {kind[0]}", UNKNOWN, what)
    for name, those in by_quota.items():
        taken = sum(count for kind, count in used.items() if quota_for(kind, {name: 0}) == name)
        yield judge_vcpus(name, quotas[name], taken, those)


def judge_vcpus(name: str, limit: float, taken: int, needed: Mapping[Kind, tuple[int, int]]) -> Finding:
    """Judge one quota; `taken` are the vCPUs used by others than this cluster."""
    now, most = map(sum, zip(*needed.values(), strict=True))
    kinds = ", ".join(dict.fromkeys(instance_type for instance_type, _ in needed))
    what = f"{name}: {limit:g} vCPUs, {taken} in use by others; {kinds} need {now}, {most} with all of max_workers"
    remedy = ASK.format(service="ec2")
    if taken + now > limit:
        return finding("vCPU quota", FAIL, what, remedy)
    if taken + most > limit:
        return finding("vCPU quota", WARN, what, f"set a smaller max_workers, or {remedy}")
    return finding("vCPU quota", OK, what)


def _running(subject: Subject) -> dict[Kind, int]:
    """Return the vCPUs in use, without this cluster's own."""
    used: dict[Kind, int] = {}
    state = {"Name": "instance-state-name", "Values": ["pending", "running"]}
    with aws_errors("counting the running instances"):
        reservations = entries(subject.aws.client("ec2"), "describe_instances", "Reservations", Filters=[state])
    for each in (instance for reservation in reservations for instance in reservation["Instances"]):
        if {"Key": CLUSTER_TAG, "Value": subject.config.name} not in each.get("Tags", ()):
            kind = (each["InstanceType"], SPOT if each.get("InstanceLifecycle") == "spot" else ON_DEMAND)
            used[kind] = used.get(kind, 0) + _vcpus(each)
    return used


def _vcpus(instance: Mapping[str, Any]) -> int:
    if kind := find(instance["InstanceType"]):
        return kind.vcpus
    options = instance.get("CpuOptions") or {}
    return int(options.get("CoreCount", 0)) * int(options.get("ThreadsPerCore", 1))


def addresses_and_networks(subject: Subject) -> Iterator[Finding]:
    """Check that the account has room for a VPC and the addresses of its NAT gateways."""
    config = subject.config
    if subject.deployed or config.vpc_id:
        yield finding("network quotas", OK, "no VPC and no elastic address is added")
        return
    wanted = 1 if config.nat_gateways == ONE_NAT_GATEWAY else config.availability_zones
    with aws_errors("counting VPCs and addresses"):
        ec2 = subject.aws.client("ec2")
        vpcs, addresses = entries(ec2, "describe_vpcs", "Vpcs"), ec2.describe_addresses()["Addresses"]
    for service, name, have, more in (
        ("vpc", "VPCs per Region", len(vpcs), 1),
        ("ec2", "EC2-VPC Elastic IPs", len(addresses), wanted),
    ):
        limit = read_quotas(subject.aws, service).get(name)
        what = f"{name}: {'unknown limit' if limit is None else f'{limit:g}'}, {have} exist; {more} more wanted"
        state = UNKNOWN if limit is None else OK if have + more <= limit else FAIL
        remedy = f"delete what is not used, or {ASK.format(service=service)}" if state == FAIL else ""
        yield finding("network quotas", state, what, remedy)


def read_quotas(aws: Aws, service: str) -> dict[str, float]:
    """Read the quotas of the account by name; AWS's defaults if the account has no other value."""
    with aws_errors(f"reading the quotas of {service}"):
        client = aws.impatient("service-quotas")
        found: dict[str, float] = {}
        # The applied values come first: if they cannot be read, a default would be a guess.
        for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
            for quota in entries(client, operation, "Quotas", ServiceCode=service):
                found.setdefault(quota["QuotaName"], float(quota["Value"]))
    return found
