"""Existing networks and file systems: anything that would make the deployment fail is reported first."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.doctor.existing_resources import (
    file_system,
    judge_file_system,
    judge_room,
    judge_vpc,
    permissions_boundary,
    subnets,
)
from cluster.doctor.finding import FAIL, OK, WARN
from tests.cluster.doctor.conftest import Examined, config_of

VPC, FS = "vpc-0123456789abcdef0", "fs-0123456789abcdef0"
PUBLIC, PRIVATE = "subnet-0123456789abcdef0", "subnet-0123456789abcdef1"
EXISTING = {"vpc_id": VPC, "public_subnet_ids": (PUBLIC,), "private_subnet_ids": (PRIVATE,)}


def subnet(subnet_id: str, vpc: str = VPC, zone: str = "us-east-1a", free: int = 100) -> dict[str, Any]:
    return {"SubnetId": subnet_id, "VpcId": vpc, "AvailabilityZone": zone, "AvailableIpAddressCount": free}


THERE = [{"VpcId": VPC, "CidrBlock": "10.0.0.0/16"}]
BOTH = [subnet(PUBLIC), subnet(PRIVATE)]


@pytest.mark.parametrize(
    ("vpcs", "described", "says"),
    [
        ([], BOTH, "does not exist in this account"),
        ([{"VpcId": VPC, "CidrBlock": "10.1.0.0/16"}], BOTH, "vpc_cidr is 10.0.0.0/16"),
        (THERE, [subnet(PUBLIC)], "does not exist in this account and region"),
        (THERE, [subnet(PUBLIC), subnet(PRIVATE, vpc="vpc-2")], "is in vpc-2"),
    ],
)
def test_subnets_must_be_in_configured_vpc(
    vpcs: list[dict[str, Any]], described: list[dict[str, Any]], says: str
) -> None:
    (found,) = judge_vpc(config_of(**EXISTING), vpcs, described)
    assert (found.state, says in found.what) == (FAIL, True)
    assert found.remedy


def test_suitable_vpc_passes_but_not_two_private_subnets_in_a_zone() -> None:
    (found,) = judge_vpc(config_of(**EXISTING), THERE, BOTH)
    assert (found.state, "us-east-1a" in found.what) == (OK, True)
    other = "subnet-0123456789abcdef2"
    config = config_of(**{**EXISTING, "private_subnet_ids": (PRIVATE, other), "availability_zones": 2})
    (found,) = judge_vpc(config, THERE, [*BOTH, subnet(other)])
    assert (found.state, "in the same zone" in found.what) == (FAIL, True)


@pytest.mark.parametrize(
    ("free", "deployed", "state"), [(17, False, OK), (16, False, WARN), (2, False, FAIL), (0, True, OK)]
)
def test_private_subnets_need_addresses_for_workers(free: int, deployed: bool, state: str) -> None:
    found = judge_room(config_of(**EXISTING), [subnet(PUBLIC), subnet(PRIVATE, free=free)], deployed=deployed)
    assert found.state == state


def test_full_subnets_do_not_advise_a_maximum_of_zero() -> None:
    found = judge_room(config_of(**EXISTING, workers=0), [subnet(PRIVATE, free=1)], deployed=False)
    assert (found.state, "max_workers" in found.remedy) == (WARN, False)


def target(vpc: str = "vpc-2", zone: str = "us-east-1a") -> dict[str, str]:
    return {"MountTargetId": "fsmt-1", "VpcId": vpc, "AvailabilityZoneName": zone}


@pytest.mark.parametrize(
    ("described", "targets", "own", "state", "says"),
    [
        ([], [], (), FAIL, "does not exist in this account"),
        ([{"LifeCycleState": "deleting"}], [], (), FAIL, "is deleting"),
        ([{}], [target()], (), FAIL, "in one VPC at a time"),
        ([{}], [target(VPC)], (), FAIL, "EFS allows one per zone"),
        ([{}], [target(VPC, "us-east-1b")], (), OK, "is available"),
        ([{}], [target()], ("fsmt-1",), OK, "is available"),
        ([{"Encrypted": False}], [], (), WARN, "not encrypted"),
    ],
)
def test_file_system_must_allow_mount_targets_of_cluster(
    described: list[dict[str, Any]], targets: list[dict[str, str]], own: tuple[str, ...], state: str, says: str
) -> None:
    config = config_of(**EXISTING, file_system_id=FS)
    found = judge_file_system(config, described, targets, own, ["us-east-1a"])
    assert (found.state, says in found.what) == (state, True)
    assert state == OK or found.remedy


def test_only_requested_checks_run(subject: Examined) -> None:
    assert [*subnets(subject()), *file_system(subject())] == []


def test_existing_network_and_file_system_are_found(subject: Examined) -> None:
    ec2 = subject().aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    made = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{n}.0/24", AvailabilityZone="us-east-1a")["Subnet"]["SubnetId"]
        for n in (1, 2)
    ]
    fs = subject().aws.client("efs").create_file_system(CreationToken="datasets", Encrypted=True)["FileSystemId"]
    names = {"vpc_id": vpc, "public_subnet_ids": (made[0],), "private_subnet_ids": (made[1],)}
    found = [*subnets(subject(**names)), *file_system(subject(**names, file_system_id=fs))]
    assert [(each.check, each.state) for each in found] == [
        ("existing VPC", OK), ("subnet room", OK), ("file system", OK),
    ]  # fmt: skip
    (missing,) = file_system(subject(file_system_id=FS))
    assert missing.state == FAIL


def test_permissions_boundary_must_exist_in_the_account(subject: Examined) -> None:
    import boto3

    assert list(permissions_boundary(subject())) == []
    document = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
    iam = boto3.Session().client("iam")
    arn = iam.create_policy(PolicyName="boundary", PolicyDocument=document)["Policy"]["Arn"]
    (found,) = permissions_boundary(subject(permissions_boundary=arn))
    assert (found.state, found.remedy) == (OK, "")
    (found,) = permissions_boundary(subject(permissions_boundary=f"{arn}-2"))
    assert (found.state, f"{arn}-2" in found.what) == (FAIL, True)
    assert "permissions_boundary" in found.remedy
