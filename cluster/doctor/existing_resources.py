"""Checks of existing resources that the cluster will use: subnets of a VPC, a file system, a permissions boundary."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from cluster.aws.client import IgnoredCodes, entries
from cluster.aws.errors import aws_errors
from cluster.doctor.finding import FAIL, OK, WARN, Finding, Subject, finding
from stacks.config import ClusterConfig

# Addresses that a mount target takes in a subnet. Those reserved by AWS do not count as available.
_MOUNT_TARGET: Final = 1


def subnets(subject: Subject) -> Iterator[Finding]:
    """Check an existing VPC and its subnets.

    The VPC exists and has the CIDR vpc_cidr. All subnets exist in it. The private subnets are in different zones, and
    before the deployment they have enough free addresses for the workers.

    Yields nothing for a cluster with its own VPC. Raises AwsError.
    """
    config = subject.config
    if not config.vpc_id:
        return
    wanted = [*config.public_subnet_ids, *config.private_subnet_ids]
    with aws_errors(f"describing the subnets of {config.vpc_id}"):
        ec2 = subject.aws.client("ec2")
        # Use filters, because naming a missing id is an error.
        vpcs = ec2.describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [config.vpc_id]}])["Vpcs"]
        described = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": wanted}])["Subnets"]
    yield from judge_vpc(config, vpcs, described)
    yield judge_room(config, described, deployed=subject.deployed)


def judge_vpc(
    config: ClusterConfig, vpcs: Sequence[Mapping[str, Any]], described: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Check the VPC and its subnets: they exist and belong together, the CIDR is vpc_cidr, and the private subnets are
    in different zones.

    `vpcs` and `described` are from DescribeVpcs and DescribeSubnets. Yields one finding per problem, or one that is ok.
    """
    found = functools.partial(finding, "existing VPC")

    if not vpcs:
        yield found(
            FAIL,
            f"{config.vpc_id} does not exist in this account and region",
            "set vpc_id to a VPC that exists there, or AWS_REGION to the region of this VPC",
        )
        return
    networks = [each["CidrBlock"] for each in vpcs[0].get("CidrBlockAssociationSet", ())] or [vpcs[0].get("CidrBlock")]
    if config.vpc_cidr not in networks:
        yield found(
            FAIL,
            f"{config.vpc_id} has the CIDR {networks[0]}, but vpc_cidr is {config.vpc_cidr}",
            f"set vpc_cidr = {networks[0]}",
        )
    there = {each["SubnetId"]: each for each in described}
    problems = 0
    for subnet_id in (*config.public_subnet_ids, *config.private_subnet_ids):
        subnet = there.get(subnet_id)
        if subnet is None or subnet["VpcId"] != config.vpc_id:
            place = f"is in {subnet['VpcId']}" if subnet else "does not exist in this account and region"
            key = "public_subnet_ids" if subnet_id in config.public_subnet_ids else "private_subnet_ids"
            yield found(FAIL, f"{subnet_id} {place}", f"replace it in {key} by a subnet of {config.vpc_id}")
            problems += 1
    zones = [there[each]["AvailabilityZone"] for each in config.private_subnet_ids if each in there]
    if len(set(zones)) < len(zones):
        remedy = "name one private subnet per zone, because a file system has one mount target per zone"
        yield found(FAIL, f"several of private_subnet_ids are in the same zone ({', '.join(zones)})", remedy)
        problems += 1
    if not problems and config.vpc_cidr in networks:
        yield found(OK, f"{config.vpc_id} with {len(there)} subnets in {', '.join(sorted(set(zones)))}")


def judge_room(config: ClusterConfig, described: Sequence[Mapping[str, Any]], *, deployed: bool) -> Finding:
    """Judge whether the private subnets have enough addresses for `workers`, with a warning if not for `max_workers`.

    For a deployed cluster that is always ok. `described` is from DescribeSubnets.
    """
    private = [each for each in described if each["SubnetId"] in config.private_subnet_ids]
    room = sum(max(0, int(each["AvailableIpAddressCount"]) - (0 if deployed else _MOUNT_TARGET)) for each in private)
    what = f"{room} addresses free in private_subnet_ids; workers: {config.workers} now, at most {config.max_workers}"
    remedy = "set private_subnet_ids to larger subnets, or free addresses in these subnets"
    if deployed:
        return finding("subnet room", OK, f"{what}; running nodes already have their addresses")
    if room < config.workers:
        return finding("subnet room", FAIL, what, remedy)
    if room < config.max_workers:
        return finding("subnet room", WARN, what, f"{remedy}; or set max_workers to {room}" if room else remedy)
    return finding("subnet room", OK, what)


def file_system(subject: Subject) -> Iterator[Finding]:
    """Check an existing file system: it is available, and can have mount targets in the cluster's subnets.

    A file system without encryption is a warning. Yields nothing if the cluster has its own file system. Raises
    AwsError.
    """
    config = subject.config
    if not config.file_system_id:
        return
    described: Sequence[Mapping[str, Any]] = ()
    targets: Sequence[Mapping[str, Any]] = ()
    with aws_errors(f"describing {config.file_system_id}"), IgnoredCodes("FileSystemNotFound"):
        efs = subject.aws.client("efs")
        described = efs.describe_file_systems(FileSystemId=config.file_system_id)["FileSystems"]
        targets = efs.describe_mount_targets(FileSystemId=config.file_system_id)["MountTargets"]
    yield judge_file_system(config, described, targets, _own_targets(subject), subject.zones)


def _own_targets(subject: Subject) -> set[str]:
    """Return the ids of the mount targets that the stack has created; none before it is deployed. Raises AwsError."""
    if not subject.deployed:
        return set()
    with aws_errors("listing the stack's mount targets"):
        client, name = subject.aws.client("cloudformation"), subject.config.stack_name
        resources = entries(client, "list_stack_resources", "StackResourceSummaries", StackName=name)
    return {x.get("PhysicalResourceId", "") for x in resources if x["ResourceType"] == "AWS::EFS::MountTarget"}


def judge_file_system(
    config: ClusterConfig,
    described: Sequence[Mapping[str, Any]],
    targets: Sequence[Mapping[str, Any]],
    own: Collection[str],
    zones: Sequence[str],
) -> Finding:
    """Judge a file system by the answers of EFS. The first problem is reported.

    It fails if the file system does not exist or is not available, or if it has mount targets of others in another VPC
    or in one of this cluster's zones. Missing encryption is only a warning. `own` are the ids of this cluster's mount
    targets, `zones` its zones.
    """
    fs = config.file_system_id

    found = functools.partial(finding, "file system")

    if not described:
        return found(
            FAIL,
            f"{fs} does not exist in this account and region",
            "set file_system_id to a file system that exists there, or leave it empty",
        )
    state = described[0].get("LifeCycleState", "available")
    if state not in ("available", "updating"):
        return found(FAIL, f"{fs} is {state}", "wait until it is available, or set another file_system_id")
    foreign = [each for each in targets if each["MountTargetId"] not in own]
    elsewhere = sorted({each.get("VpcId", "") for each in foreign} - {config.vpc_id})
    if foreign and elsewhere:
        what = f"{fs} has mount targets in {', '.join(elsewhere)}; EFS allows mount targets in one VPC at a time"
        return found(
            FAIL, what, f"delete the mount targets, set vpc_id = {elsewhere[0]}, or leave file_system_id empty"
        )
    taken = sorted({each.get("AvailabilityZoneName", "") for each in foreign} & set(zones))
    if taken:
        what = f"{fs} already has a mount target in {', '.join(taken)}, and EFS allows one per zone"
        return found(FAIL, what, "delete the mount target, or leave file_system_id empty")
    if not described[0].get("Encrypted", True):
        return found(
            WARN,
            f"{fs} is not encrypted",
            "copy its data to an encrypted file system; encryption cannot be enabled later",
        )
    return found(OK, f"{fs} is {state}")


def permissions_boundary(subject: Subject) -> Iterator[Finding]:
    """Check that the policy for the permissions boundary exists. Otherwise IAM would not create the roles.

    Yields nothing without a boundary. Raises AwsError.
    """
    arn = subject.config.permissions_boundary
    if not arn:
        return
    found = functools.partial(finding, "permissions boundary")
    remedy = "set permissions_boundary to a policy of this account, or leave it empty"
    answer = found(FAIL, f"policy {arn} does not exist in this account", remedy)
    with aws_errors(f"reading the policy {arn}"), IgnoredCodes("NoSuchEntity"):
        subject.aws.client("iam").get_policy(PolicyArn=arn)
        answer = found(OK, f"{arn} exists")
    yield answer
