"""Check that the rules that admit SSH fit into one security group."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cluster.aws.errors import aws_errors
from cluster.doctor import quotas
from cluster.doctor.finding import FAIL, OK, UNKNOWN, Finding, Subject, finding
from stacks.config import LUSTRE_PORTS, ClusterConfig

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import ManagedPrefixListTypeDef

QUOTA: Final = "Inbound or outbound rules per security group"


def rules(subject: Subject) -> Iterator[Finding]:
    """Check that the prefix lists exist, and that the master's inbound rules are within the account's quota.

    Yields nothing if the SSH port is not open. Raises AwsError.
    """
    config = subject.config
    wanted = list(config.ssh_prefix_lists)
    lists: Sequence[ManagedPrefixListTypeDef] = []
    if wanted:
        with aws_errors("describing the prefix lists"):
            # Use a filter, because naming a missing id is an error.
            lists = subject.aws.client("ec2").describe_managed_prefix_lists(
                Filters=[{"Name": "prefix-list-id", "Values": wanted}]
            )["PrefixLists"]
    entries = {each["PrefixListId"]: each.get("MaxEntries") for each in lists}
    limit = quotas.quotas_of(subject, "vpc").get(QUOTA) if config.opens_ssh_port else None
    yield from judge_rules(config, entries, limit)


def judge_rules(config: ClusterConfig, entries: Mapping[str, int | None], limit: float | None) -> Iterator[Finding]:
    """Judge the inbound rules of the master's group: one finding for each missing prefix list, and one on the quota.

    `entries` has the maximum number of entries of each existing prefix list. It is None for AWS's own lists, because
    EC2 does not report their weight. A list always counts with its maximum ("Prefix lists and security group rules",
    VPC User Guide). `limit` is the account's quota of rules per group, None if unknown. Without one of these numbers,
    the finding on the quota may be unknown. Yields nothing if the SSH port is not open.
    """
    if not config.opens_ssh_port:
        return

    found = functools.partial(finding, "firewall")

    for name in config.ssh_prefix_lists:
        if name not in entries:
            remedy = "set ssh_prefix_lists to lists of this account and region, or to lists shared with the account"
            yield found(FAIL, f"prefix list {name} does not exist in this account and region", remedy)
    count = own_rules(config) + sum(each or 0 for each in entries.values())
    what = f"{count} inbound rules for the master, with prefix lists counted by their maximum entries"
    unknown = sorted(name for name, most in entries.items() if most is None)
    if limit is None:
        yield found(UNKNOWN, f"{what}; the quota is unknown", f"compare with {QUOTA!r} in the Service Quotas console")
    elif count > limit:
        remedy = f"set fewer networks in ssh_cidr, use smaller prefix lists, or {quotas.ASK.format(service='vpc')}"
        yield found(FAIL, f"{what}; the quota per security group is {limit:g}", remedy)
    elif unknown:
        more = f"EC2 does not report the size of {', '.join(unknown)}, so it is not counted"
        remedy = "add their weights (VPC User Guide, AWS-managed prefix lists), and compare the sum with the quota"
        yield found(UNKNOWN, f"{what}; the quota per security group is {limit:g}; {more}", remedy)
    else:
        yield found(OK, f"{what}; the quota per security group is {limit:g}")


def own_rules(config: ClusterConfig) -> int:
    """Return the number of inbound rules in the master's group, without prefix lists."""
    lustre = len(LUSTRE_PORTS) if config.fsx_capacity_gib else 0
    return len(config.ssh_cidr) + lustre
