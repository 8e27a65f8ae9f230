"""Checks of the account's quotas: vCPUs of the instance types, addresses, VPCs, NAT gateways.

Quotas are found by their names, which list the instance families ("Running On-Demand G and VT instances", "All Standard
(A, C, ...) Spot Instance Requests"), so that a quota for a new family needs no new code.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import entries
from cluster.aws.errors import aws_errors
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Finding, Subject, finding
from cluster.errors import AwsError
from stacks.config import CLUSTER_TAG, ClusterConfig
from stacks.config_keys.network import ONE_NAT_GATEWAY
from stacks.instance_types import find

if TYPE_CHECKING:
    from cluster.aws.client import Aws

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
CAPACITY_BLOCK: Final = "capacity-block"
"""Market of capacity blocks. Their instances count against no quota (EC2 user guide, "Capacity Blocks for ML")."""
_NAMES: Final = {
    ON_DEMAND: re.compile(r"Running On-Demand (.+) instances"),
    SPOT: re.compile(r"All (.+) Spot Instance Requests"),
}
ASK: Final = (
    "request an increase in Service Quotas: https://console.aws.amazon.com/servicequotas/home/services/{service}/quotas"
)
_COMPARE: Final = "compare the cluster with the quotas in the Service Quotas console"

_PART_OF: Final = {"gr": "g", "im": "i", "is": "i"}
"""Families that count as part of another family with the same first letter."""

Kind = tuple[str, str]
"""An instance type and its market, on-demand or spot."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Need:
    """Numbers of vCPUs that a cluster needs of one type."""

    least: int = 0
    """The deployment fails without this many."""
    now: int = 0
    """For all of `workers`."""
    most: int = 0
    """For all of `max_workers`."""

    def __add__(self, other: Need) -> Need:
        """Return the sum of two needs, field by field."""
        return Need(least=self.least + other.least, now=self.now + other.now, most=self.most + other.most)


def demands(config: ClusterConfig, *, several_quotas: Collection[str] = ()) -> dict[Kind, Need]:
    """Return the vCPUs that the cluster needs of each type, without capacity blocks and types missing from the table.

    If the workers may have several types, `now` and `most` count the preferred type, and `least` the smallest. In a
    market in `several_quotas`, where the types count against different quotas, `least` is 0. With capacity rebalancing,
    a group has one more worker while it replaces a worker at risk. A large group has up to a tenth more, even above its
    maximum (EC2 Auto Scaling user guide, "Capacity Rebalancing in Auto Scaling to replace at-risk Spot Instances").
    """
    now, most = config.workers, config.max_workers
    least = _least_workers(config)
    found: dict[Kind, Need] = {}

    def add(kind: Kind, least: int, now: int, most: int, others: Sequence[str] = ()) -> None:
        vcpus = [known.vcpus for name in (kind[0], *others) if (known := find(name))]
        if find(kind[0]) and most:
            certain = 0 if kind[1] in several_quotas and others else least * min(vcpus)
            need = Need(least=certain, now=now * vcpus[0], most=most * vcpus[0])
            found[kind] = found.get(kind, Need()) + need

    add((config.master_instance_type, ON_DEMAND), 1, 1, 1)
    worker, *others = config.worker_types
    if config.spot:
        certain = config.on_demand_workers
        add((worker, ON_DEMAND), least[ON_DEMAND], min(certain, now), certain, others)
        if config.capacity_rebalance:
            now = min(now + 1, most + now // 10) if now > certain else now
            most += most // 10
        add((worker, SPOT), least[SPOT], max(0, now - certain), most - certain, others)
    elif not config.capacity_block:
        add((worker, ON_DEMAND), least[ON_DEMAND], now, most, others)
    return found


def _least_workers(config: ClusterConfig) -> dict[str, int]:
    """Return, by market, the number of workers without which the deployment fails; 0 with a capacity block."""
    least = min(config.least_workers or config.workers, config.workers)
    if config.capacity_block:
        return {ON_DEMAND: 0, SPOT: 0}
    certain = min(config.on_demand_workers, least) if config.spot else least
    return {ON_DEMAND: certain, SPOT: least - certain}


def families(text: str) -> frozenset[str]:
    """Return the families in a quota's name, in upper case.

    `Standard (A, C and D)` gives A, C and D, and `P4, P3 and P2` gives these three.
    """
    inner = re.search(r"\((.+)\)", text)
    words = re.split(r",|\band\b", inner.group(1) if inner else text)
    return frozenset(word.strip().upper() for word in words if word.strip())


def family(instance_type: str) -> tuple[str, str]:
    """Return the two names under which quotas list a type, narrower first: `P5` and `P` for p5en.48xlarge.

    Some families count as part of another one (_PART_OF). For types u-..., both names are HIGH MEMORY.
    """
    if re.match(r"u-|u\d", instance_type):
        return "HIGH MEMORY", "HIGH MEMORY"
    letters, digits = re.findall(r"^([a-z]+)(\d*)", instance_type)[0]
    return (letters + digits).upper(), _PART_OF.get(letters, letters).upper()


def quota_for(kind: Kind, quotas: Mapping[str, float]) -> str:
    """Return the name of the narrowest quota that counts the vCPUs of a type; "" if none is known."""
    instance_type, market = kind
    listed = {name: families(found[1]) for name in quotas if (found := _NAMES[market].fullmatch(name))}
    return next((name for wanted in family(instance_type) for name in listed if wanted in listed[name]), "")


def vcpus(subject: Subject) -> Iterator[Finding]:
    """Check that the quotas have room for the cluster's vCPUs. Yields a finding per quota. Raises AwsError.

    Types without a known quota or number of vCPUs have a finding that is unknown. Further findings report quotas that
    are too small together, if the workers may have types of several quotas.
    """
    config, quotas = subject.config, quotas_of(subject, "ec2")
    used = _running(subject)
    by_quota = _by_quota(config, quotas)
    for kind in by_quota.pop("", {}):
        what = f"found no vCPU quota of this account for {kind[1]} instances of type {kind[0]}"
        yield finding(f"quota of {kind[1]} {kind[0]}", UNKNOWN, what, _COMPARE)
    judged = {config.master_instance_type, *(() if config.capacity_block else (config.worker_instance_type,))}
    for instance_type in sorted(judged):
        if find(instance_type) is None:
            what = f"the number of vCPUs of {instance_type} is unknown, so it is not compared with the quota"
            yield finding(f"quota of {instance_type}", UNKNOWN, what, _COMPARE)
    taken = {name: sum(count for kind, count in used.items() if quota_for(kind, {name: 0}) == name) for name in quotas}
    fitting = _fitting_workers(config, quotas, taken)
    for name, needed in by_quota.items():
        yield judge_vcpus(name, quotas[name], taken[name], needed, fitting)
    for market in _several_quotas(config, quotas):
        yield from _judge_together(config, market, quotas, taken)


def _several_quotas(config: ClusterConfig, quotas: Mapping[str, float]) -> list[str]:
    """Return the markets where the workers' types count against different quotas."""
    return [
        market
        for market in (ON_DEMAND, SPOT)
        if len({quota_for((instance_type, market), quotas) for instance_type in config.worker_types}) > 1
    ]


def _judge_together(
    config: ClusterConfig, market: str, quotas: Mapping[str, float], taken: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield a finding if the quotas of the workers' types together have too little room, otherwise nothing.

    There must be room for the workers of this market without which the deployment fails. If a quota or a number of
    vCPUs is unknown, nothing is judged. `taken` are the vCPUs that others use, by quota.
    """
    least = _least_workers(config)[market]
    smallest: dict[str, int] = {}
    for instance_type in config.worker_types:
        name, known = quota_for((instance_type, market), quotas), find(instance_type)
        if not name or known is None:
            return
        smallest[name] = min(known.vcpus, smallest.get(name, known.vcpus))
    master, known = (config.master_instance_type, ON_DEMAND), find(config.master_instance_type)
    with_master = {quota_for(master, quotas): known.vcpus if known else 0}
    free = {name: max(0.0, quotas[name] - taken[name] - with_master.get(name, 0)) for name in smallest}
    room = sum(int(free[name] // vcpus) for name, vcpus in smallest.items())
    if room < least:
        limits = "; ".join(
            f"{name}: {quotas[name]:g} vCPUs, {taken[name]} used by other instances" for name in smallest
        )
        what = (
            f"{limits}; there is room for {room} of the {least} {market} workers of {' or '.join(config.worker_types)}"
        )
        yield finding(
            "vCPU quota", FAIL, what, f"choose a type with a larger free quota, or {ASK.format(service='ec2')}"
        )


def _by_quota(config: ClusterConfig, quotas: Mapping[str, float]) -> dict[str, dict[Kind, Need]]:
    """Return the cluster's needs by quota name and type. Types that no known quota counts are under ""."""
    found: dict[str, dict[Kind, Need]] = {}
    for kind, needed in demands(config, several_quotas=_several_quotas(config, quotas)).items():
        found.setdefault(quota_for(kind, quotas), {})[kind] = needed
    return found


def _fitting_workers(config: ClusterConfig, quotas: Mapping[str, float], taken: Mapping[str, int]) -> int:
    """Return the largest number of workers below `workers` that fits the quotas; 0 if it is below `least_workers`.

    `taken` are the vCPUs that others use, by quota.
    """
    for count in range(config.workers - 1, max(config.least_workers, 1) - 1, -1):
        needs = _by_quota(dataclasses.replace(config, workers=count), quotas)
        if all(_total(each).now + taken.get(name, 0) <= quotas[name] for name, each in needs.items() if name):
            return count
    return 0


def _total(needed: Mapping[Kind, Need]) -> Need:
    return sum(needed.values(), Need())


def judge_vcpus(name: str, limit: float, taken: int, needed: Mapping[Kind, Need], fitting_workers: int = 0) -> Finding:
    """Judge the quota `name`. `limit` is its value, and `needed` has what the cluster needs of each type it counts.

    It fails if even the least need does not fit. If only `workers` or `max_workers` do not fit, that is a warning.
    `taken` are the vCPUs that others use. `fitting_workers` is a smaller number of workers that fits, 0 if none does.
    """
    need = _total(needed)
    kinds = ", ".join(dict.fromkeys(instance_type for instance_type, _ in needed))
    needs = f"{kinds} need {need.now}, or {need.most} with max_workers"
    what = f"{name}: {limit:g} vCPUs, {taken} used by other instances; {needs}"
    ask = ASK.format(service="ec2")
    if taken + need.now > limit:
        fewer = (
            f"set workers = {fitting_workers}"
            if fitting_workers
            else "use smaller instance types"
            if limit
            else "use types of another family"
            if any(market != SPOT for _, market in needed)
            else "set spot = false"
        )
        remedy = f"{fewer}, or {ask} ({taken + need.now} vCPUs or more)"
        return finding("vCPU quota", FAIL if taken + need.least > limit else WARN, what, remedy)
    if taken + need.most > limit:
        return finding("vCPU quota", WARN, what, f"set a smaller max_workers, or {ask}")
    return finding("vCPU quota", OK, what)


def _running(subject: Subject) -> dict[Kind, int]:
    """Return the vCPUs in use by instance type and market (on-demand or spot). Raises AwsError.

    This cluster's own instances and capacity blocks do not count.
    """
    used: dict[Kind, int] = {}
    state = {"Name": "instance-state-name", "Values": ["pending", "running"]}
    with aws_errors("counting the running instances"):
        reservations = entries(subject.aws.client("ec2"), "describe_instances", "Reservations", Filters=[state])
    for each in (instance for reservation in reservations for instance in reservation["Instances"]):
        market = each.get("InstanceLifecycle", ON_DEMAND)
        own = {"Key": CLUSTER_TAG, "Value": subject.config.name} in each.get("Tags", ())
        if not own and market != CAPACITY_BLOCK:
            kind = (each["InstanceType"], SPOT if market == SPOT else ON_DEMAND)
            used[kind] = used.get(kind, 0) + _vcpus(each)
    return used


def _vcpus(instance: Mapping[str, Any]) -> int:
    """Return the number of vCPUs of an instance, by its type or else its CPU options; 0 if EC2 reports neither."""
    if kind := find(instance["InstanceType"]):
        return kind.vcpus
    options = instance.get("CpuOptions") or {}
    return int(options.get("CoreCount", 0)) * int(options.get("ThreadsPerCore", 1))


def addresses_and_networks(subject: Subject) -> Iterator[Finding]:
    """Check that the account has room for a VPC, its NAT gateways and their addresses. Raises AwsError.

    Yields one finding per quota, or one that is ok if no new VPC is needed.
    """
    config = subject.config
    if subject.deployed or config.vpc_id:
        yield finding("network quotas", OK, "no new VPC and no elastic address is needed")
        return
    wanted = 1 if config.nat_gateways == ONE_NAT_GATEWAY else config.availability_zones
    with aws_errors("counting VPCs and addresses"):
        ec2 = subject.aws.client("ec2")
        vpcs, addresses = entries(ec2, "describe_vpcs", "Vpcs"), ec2.describe_addresses()["Addresses"]
        zones = subject.zones[:wanted]
        gateways = _gateways(subject)
    own = [each for each in vpcs if each.get("OwnerId", subject.account) == subject.account]  # without shared ones
    for service, name, have, more in (
        ("vpc", "VPCs per Region", len(own), 1),
        ("ec2", "EC2-VPC Elastic IPs", len(addresses), wanted),
        ("vpc", "NAT gateways per Availability Zone", max((gateways[zone] for zone in zones), default=0), 1),
    ):
        limit = quotas_of(subject, service).get(name)
        what = f"{name}: limit {'unknown' if limit is None else f'{limit:g}'}, {have} exist, {more} more needed"
        state = UNKNOWN if limit is None else OK if have + more <= limit else FAIL
        advice = {FAIL: f"delete unused ones, or {ASK.format(service=service)}", UNKNOWN: _COMPARE}
        remedy = advice.get(state, "")
        yield finding("network quotas", state, what, remedy)


def _gateways(subject: Subject) -> Counter[str]:
    """Return the number of NAT gateways in each zone, without those that are deleted or have failed."""
    ec2 = subject.aws.client("ec2")
    listed = entries(ec2, "describe_nat_gateways", "NatGateways")
    subnets = [each["SubnetId"] for each in listed if each["State"] in ("pending", "available", "deleting")]
    if not subnets:
        return Counter()
    described = {each["SubnetId"]: each["AvailabilityZone"] for each in entries(ec2, "describe_subnets", "Subnets")}
    return Counter(described.get(subnet, "") for subnet in subnets)


def quotas_of(subject: Subject, service: str) -> Mapping[str, float]:
    """Return the quotas of a service by name. Each service is read once per subject. Raises AwsError, also on later
    calls.
    """
    with subject.reading[service]:
        if service not in subject.quotas:
            try:
                subject.quotas[service] = read_quotas(subject.aws, service)
            except AwsError as error:
                subject.quotas[service] = error
    found = subject.quotas[service]
    if isinstance(found, AwsError):
        raise found
    return found


def read_quotas(aws: Aws, service: str) -> dict[str, float]:
    """Read the account's quotas by name. AWS's defaults are used for quotas without an applied value.

    Raises AwsError.
    """
    with aws_errors(f"reading the quotas of {service}"):
        client = aws.impatient("service-quotas")
        found: dict[str, float] = {}
        # Read the applied values first. If they cannot be read, a default would be a guess.
        for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
            for quota in entries(client, operation, "Quotas", ServiceCode=service):
                found.setdefault(quota["QuotaName"], float(quota["Value"]))
    return found
