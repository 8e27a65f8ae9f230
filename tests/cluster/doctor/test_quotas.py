"""Facts about quotas: which one counts a type, and what the cluster needs of it beside what is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from cluster.aws.client import Aws
from cluster.doctor import quotas
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN
from cluster.doctor.quotas import (
    ON_DEMAND,
    SPOT,
    addresses_and_networks,
    demands,
    judge_vcpus,
    quota_for,
    read_quotas,
    vcpus,
)
from cluster.errors import AwsError
from tests.cluster.doctor.conftest import Examined, config_of

if TYPE_CHECKING:
    from types_boto3_ec2.literals import InstanceTypeType
    from types_boto3_ec2.type_defs import TagTypeDef

STANDARD = "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
GRAPHICS = "Running On-Demand G and VT instances"
QUOTAS = {
    STANDARD: 64.0,
    GRAPHICS: 8.0,
    "Running On-Demand P instances": 192.0,
    "Running On-Demand High Memory instances": 448.0,
    "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests": 5.0,
    "All P4, P3 and P2 Spot Instance Requests": 96.0,
    "All P5 Spot Instance Requests": 0.0,
    "EC2-VPC Elastic IPs": 5.0,
}


@pytest.mark.parametrize(
    ("instance_type", "market", "name"),
    [
        ("c5.2xlarge", ON_DEMAND, STANDARD),
        ("t3.medium", ON_DEMAND, STANDARD),
        ("g5.xlarge", ON_DEMAND, GRAPHICS),
        ("vt1.3xlarge", ON_DEMAND, GRAPHICS),
        ("p5en.48xlarge", ON_DEMAND, "Running On-Demand P instances"),
        ("u-6tb1.metal", ON_DEMAND, "Running On-Demand High Memory instances"),
        ("u7i-12tb.224xlarge", ON_DEMAND, "Running On-Demand High Memory instances"),
        ("p5.48xlarge", SPOT, "All P5 Spot Instance Requests"),
        ("p4d.24xlarge", SPOT, "All P4, P3 and P2 Spot Instance Requests"),
        ("trn1.32xlarge", ON_DEMAND, ""),
    ],
)
def test_quota_of_a_type_is_found_by_its_name(instance_type: str, market: str, name: str) -> None:
    assert quota_for((instance_type, market), QUOTAS) == name


def test_the_cluster_needs_its_nodes_now_and_max_workers_at_most() -> None:
    found = demands(config_of(workers=2, max_workers=4))
    assert found == {("t3.medium", ON_DEMAND): (2, 2), ("c5.2xlarge", ON_DEMAND): (16, 32)}
    same = demands(config_of(workers=1, max_workers=1, master_instance_type="c5.2xlarge"))
    assert same == {("c5.2xlarge", ON_DEMAND): (16, 16)}


def test_spot_workers_count_against_their_own_quota() -> None:
    found = demands(config_of(workers=3, max_workers=8, spot=True, on_demand_workers=1))
    assert (found["c5.2xlarge", ON_DEMAND], found["c5.2xlarge", SPOT]) == ((8, 8), (16, 56))


@pytest.mark.parametrize(
    ("workers", "max_workers", "on_demand_workers", "now", "most"),
    [(3, 8, 0, 4, 8), (8, 8, 0, 8, 8), (20, 20, 0, 21, 22), (20, 20, 4, 17, 18), (2, 8, 2, 0, 6)],
)
def test_capacity_rebalancing_needs_a_worker_beyond_the_size(
    workers: int, max_workers: int, on_demand_workers: int, now: int, most: int
) -> None:
    config = config_of(
        workers=workers,
        max_workers=max_workers,
        spot=True,
        on_demand_workers=on_demand_workers,
        capacity_rebalance=True,
        termination_notice_s=120,
    )
    assert demands(config)["c5.2xlarge", SPOT] == (8 * now, 8 * most)


@pytest.mark.parametrize(("taken", "state"), [(32, OK), (33, WARN), (48, WARN), (49, FAIL)])
def test_a_quota_must_hold_the_deployment_and_should_hold_the_growth(taken: int, state: str) -> None:
    found = judge_vcpus(STANDARD, 64.0, taken, {("c5.2xlarge", ON_DEMAND): (16, 32)})
    assert found.state == state
    assert f"64 vCPUs, {taken} in use by others; c5.2xlarge need 16" in found.what
    assert state == OK or "servicequotas" in found.remedy


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the account have the quotas above, which moto does not know."""
    monkeypatch.setattr(quotas, "read_quotas", lambda aws, service: QUOTAS)


def launch(aws: Aws, kind: InstanceTypeType, count: int, **tags: str) -> None:
    given: list[TagTypeDef] = [{"Key": key.replace("_", ":"), "Value": value} for key, value in tags.items()]
    aws.client("ec2").run_instances(
        ImageId="ami-12c6146b",
        InstanceType=kind,
        MinCount=count,
        MaxCount=count,
        TagSpecifications=[{"ResourceType": "instance", "Tags": given}] if given else [],
    )


def test_what_others_use_counts_and_what_the_cluster_uses_itself_does_not(subject: Examined, told: None) -> None:
    who = subject(workers=2, max_workers=2)
    launch(who.aws, "c5.2xlarge", 3, deepcdk_cluster="deepcdk")
    launch(who.aws, "c5.large", 4)
    launch(who.aws, "g4dn.xlarge", 1)
    (found,) = vcpus(who)
    assert found.state == OK
    assert "8 in use by others" in found.what
    launch(who.aws, "m5.12xlarge", 1)
    (found,) = vcpus(who)
    assert found.state == FAIL


def test_a_type_that_no_quota_counts_is_unknown(subject: Examined, told: None) -> None:
    found = {each.check: each.state for each in vcpus(subject(worker_instance_type="trn1.2xlarge"))}
    assert found["quota of on-demand trn1.2xlarge"] == UNKNOWN


def test_quotas_that_cannot_be_read_are_an_error_and_not_a_default(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    client = aws.impatient("service-quotas")

    def denied(*_: object, **__: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not for you"}}, "ListServiceQuotas")

    monkeypatch.setattr(client, "list_service_quotas", denied)
    with pytest.raises(AwsError, match="not for you"):
        read_quotas(aws, "ec2")


def test_a_network_of_its_own_needs_a_vpc_and_an_address(subject: Examined, told: None) -> None:
    who = subject()
    found = list(addresses_and_networks(who))
    assert [each.state for each in found] == [UNKNOWN, OK]
    for _ in range(4):
        who.aws.client("ec2").allocate_address(Domain="vpc")
    assert list(addresses_and_networks(who))[1].state == OK
    who.aws.client("ec2").allocate_address(Domain="vpc")
    assert list(addresses_and_networks(who))[1].state == FAIL
    (existing,) = addresses_and_networks(subject(vpc_id="vpc-0123456789abcdef0"))
    assert existing.state == OK


def test_both_lists_of_quotas_are_read_and_what_applies_wins(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: dict[str, list[dict[str, Any]]] = {
        "list_service_quotas": [{"Quotas": [{"QuotaName": "a", "Value": 9}]}],
        "list_aws_default_service_quotas": [
            {"Quotas": [{"QuotaName": "a", "Value": 5}]},
            {"Quotas": [{"QuotaName": "b", "Value": 1}]},
        ],
    }

    class Client:
        def get_paginator(self, operation: str) -> Any:
            class Paginator:
                def paginate(self, **_: str) -> list[dict[str, Any]]:
                    return pages[operation]

            return Paginator()

    monkeypatch.setattr(aws, "impatient", lambda _: Client())
    assert read_quotas(aws, "ec2") == {"a": 9.0, "b": 1.0}
