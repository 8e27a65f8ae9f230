"""Quotas: which quota counts an instance type, and how much the cluster needs in addition to current usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from moto.ec2.models import ec2_backends

from cluster.aws.client import Aws, entries
from cluster.doctor import checks, quotas
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN
from cluster.doctor.quotas import (
    ON_DEMAND,
    SPOT,
    Need,
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
        ("gr6.4xlarge", ON_DEMAND, GRAPHICS),
        ("im4gn.large", ON_DEMAND, STANDARD),
        ("is4gen.large", ON_DEMAND, STANDARD),
        ("p5.48xlarge", SPOT, "All P5 Spot Instance Requests"),
        ("p4d.24xlarge", SPOT, "All P4, P3 and P2 Spot Instance Requests"),
        ("trn1.32xlarge", ON_DEMAND, ""),
    ],
)
def test_quota_of_a_type_is_found_by_its_name(instance_type: str, market: str, name: str) -> None:
    assert quota_for((instance_type, market), QUOTAS) == name


def test_cluster_needs_initial_nodes_now_and_max_workers_later() -> None:
    found = demands(config_of(workers=2, max_workers=4))
    assert found == {
        ("t3.medium", ON_DEMAND): Need(least=2, now=2, most=2),
        ("c5.2xlarge", ON_DEMAND): Need(least=16, now=16, most=32),
    }
    same = demands(config_of(workers=1, max_workers=1, master_instance_type="c5.2xlarge"))
    assert same == {("c5.2xlarge", ON_DEMAND): Need(least=16, now=16, most=16)}


def test_deployment_fails_only_without_workers_required_by_policy() -> None:
    found = demands(config_of(workers=4, max_workers=8, capacity_policy="at-least 3"))
    assert found["c5.2xlarge", ON_DEMAND] == Need(least=24, now=32, most=64)
    none = demands(config_of(workers=0, max_workers=8))
    assert none["c5.2xlarge", ON_DEMAND] == Need(most=64)


def test_deployment_of_several_types_fails_by_the_smallest() -> None:
    config = config_of(workers=2, max_workers=2, worker_alternatives=("c5.xlarge",))
    assert demands(config)["c5.2xlarge", ON_DEMAND].least == 8
    assert demands(config, several_quotas=[ON_DEMAND])["c5.2xlarge", ON_DEMAND] == Need(least=0, now=16, most=16)


@pytest.mark.parametrize(("graphics", "states"), [(0.0, [OK, WARN, FAIL]), (4.0, [OK, WARN])])
def test_types_of_several_families_fail_if_the_least_number_fits_in_none(
    subject: Examined, monkeypatch: pytest.MonkeyPatch, graphics: float, states: list[str]
) -> None:
    own = {STANDARD: 16.0, GRAPHICS: graphics, "Running On-Demand P instances": 0.0}
    monkeypatch.setattr(quotas, "read_quotas", lambda aws, service: own)
    keys: dict[str, Any] = {"worker_alternatives": ("g5.xlarge",), "workers": 1, "max_workers": 1}
    found = list(vcpus(subject(worker_instance_type="p4d.24xlarge", **keys)))
    assert [each.state for each in found] == states
    assert all("smaller" not in each.remedy for each in found)
    if states[-1] == FAIL:
        assert "there is room for 0 of the 1 on-demand workers of p4d.24xlarge or g5.xlarge" in found[-1].what


def test_types_with_one_quota_on_demand_and_two_on_spot_are_judged_by_each_market(
    subject: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {**QUOTAS, "Running On-Demand P instances": 0.0}
    monkeypatch.setattr(quotas, "read_quotas", lambda aws, service: own)
    keys: dict[str, Any] = {"workers": 2, "max_workers": 2, "spot": True, "on_demand_workers": 1}
    found = vcpus(subject(worker_instance_type="p5.48xlarge", worker_alternatives=("p4d.24xlarge",), **keys))
    states = {each.what.partition(":")[0]: each.state for each in found}
    assert states["Running On-Demand P instances"] == FAIL
    assert states["All P5 Spot Instance Requests"] == WARN


def test_spot_workers_count_against_their_own_quota() -> None:
    found = demands(config_of(workers=3, max_workers=8, spot=True, on_demand_workers=1))
    assert found["c5.2xlarge", ON_DEMAND] == Need(least=8, now=8, most=8)
    assert found["c5.2xlarge", SPOT] == Need(least=16, now=16, most=56)


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
    found = demands(config)["c5.2xlarge", SPOT]
    assert (found.now, found.most) == (8 * now, 8 * most)


@pytest.mark.parametrize(("taken", "state"), [(32, OK), (33, WARN), (48, WARN), (49, FAIL)])
def test_quota_must_fit_deployment_and_should_fit_growth(taken: int, state: str) -> None:
    found = judge_vcpus(STANDARD, 64.0, taken, {("c5.2xlarge", ON_DEMAND): Need(least=16, now=16, most=32)})
    assert found.state == state
    assert f"64 vCPUs, {taken} used by other instances; c5.2xlarge need 16" in found.what
    assert state == OK or "servicequotas" in found.remedy


def test_possibly_missing_workers_are_a_warning_with_the_number_that_fits() -> None:
    need = {("c5.2xlarge", ON_DEMAND): Need(least=8, now=16, most=16)}
    found = judge_vcpus(STANDARD, 10.0, 0, need, fitting_workers=1)
    assert (found.state, found.remedy.partition(",")[0]) == (WARN, "set workers = 1")
    assert "(16 vCPUs or more)" in found.remedy


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the account the quotas above, which moto does not support."""
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


def test_only_usage_of_others_counts(subject: Examined, told: None) -> None:
    who = subject(workers=2, max_workers=2)
    launch(who.aws, "c5.2xlarge", 3, deepcdk_cluster="deepcdk")
    launch(who.aws, "c5.large", 4)
    launch(who.aws, "g4dn.xlarge", 1)
    (found,) = vcpus(who)
    assert found.state == OK
    assert "8 used by other instances" in found.what
    launch(who.aws, "m5.12xlarge", 1)
    (found,) = vcpus(who)
    assert found.state == FAIL


def test_quota_of_16_vcpus_is_reported_with_maximum_of_workers(
    subject: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "read_quotas", lambda aws, service: {STANDARD: 16.0})
    (found,) = vcpus(subject())
    assert found.state == FAIL
    assert "16 vCPUs, 0 used by other instances; t3.medium, c5.2xlarge need 18, or 130 with max_workers" in found.what
    assert found.remedy.startswith("set workers = 1, or request an increase in Service Quotas: https://")
    assert "(18 vCPUs or more)" in found.remedy
    (fits,) = vcpus(subject(workers=1, max_workers=1))
    assert fits.state == OK
    launch(subject().aws, "c5.2xlarge", 1)
    (full,) = vcpus(subject(workers=1))
    assert full.state == FAIL
    assert full.remedy.startswith("use smaller instance types, or request an increase")


def test_instances_of_a_capacity_block_are_not_in_use(subject: Examined, told: None) -> None:
    who = subject(worker_instance_type="p5.48xlarge", workers=1, max_workers=1)
    block = {"InstanceMarketOptions": {"MarketType": "capacity-block"}}
    made = who.aws.client("ec2").run_instances(
        ImageId="ami-12c6146b", InstanceType="p5.48xlarge", MinCount=1, MaxCount=1, **block,  # type: ignore[arg-type]  # not in the stubs' words
    )  # fmt: skip
    backend: Any = ec2_backends["123456789012"]["us-east-1"]
    backend.get_instance(made["Instances"][0]["InstanceId"]).lifecycle = "capacity-block"  # moto reports spot
    assert {each.state for each in vcpus(who)} == {OK}


def test_type_without_quota_is_unknown(subject: Examined, told: None) -> None:
    found = {each.check: each.state for each in vcpus(subject(worker_instance_type="trn1.2xlarge"))}
    assert found["quota of on-demand trn1.2xlarge"] == UNKNOWN


def test_preferred_type_missing_in_table_is_unknown(subject: Examined, told: None) -> None:
    who = subject(worker_instance_type="c99.large", allow_unknown_instance_types=True)
    found = {each.check: each.state for each in vcpus(who)}
    assert found["quota of c99.large"] == UNKNOWN


def test_suggested_workers_are_at_least_the_required_minimum(
    subject: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "read_quotas", lambda aws, service: {STANDARD: 24.0})
    (found,) = vcpus(subject(workers=4, max_workers=4, capacity_policy="at-least 3"))
    assert found.state == FAIL
    assert "set workers" not in found.remedy


def test_quotas_that_cannot_be_read_are_an_error_and_not_a_default(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    client = aws.impatient("service-quotas")

    def denied(*_: object, **__: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not for you"}}, "ListServiceQuotas")

    monkeypatch.setattr(client, "list_service_quotas", denied)
    with pytest.raises(AwsError, match="not for you"):
        read_quotas(aws, "ec2")


def test_new_network_needs_a_vpc_and_an_address(subject: Examined, told: None) -> None:
    who = subject()
    found = list(addresses_and_networks(who))
    assert [each.state for each in found] == [UNKNOWN, OK, UNKNOWN]
    for _ in range(4):
        who.aws.client("ec2").allocate_address(Domain="vpc")
    assert list(addresses_and_networks(who))[1].state == OK
    who.aws.client("ec2").allocate_address(Domain="vpc")
    assert list(addresses_and_networks(who))[1].state == FAIL
    (existing,) = addresses_and_networks(subject(vpc_id="vpc-0123456789abcdef0"))
    assert existing.state == OK


def test_applied_quotas_override_defaults(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_vpcs_that_another_account_shares_do_not_count(subject: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "read_quotas", lambda aws, service: {"VPCs per Region": 2.0})

    def with_shared(client: Any, operation: str, key: str, **given: Any) -> Any:
        shared = [{"VpcId": f"vpc-{each}", "OwnerId": "999999999999"} for each in range(5)]
        return [*entries(client, operation, key, **given), *(shared if key == "Vpcs" else [])]

    monkeypatch.setattr(quotas, "entries", with_shared)
    found = next(iter(addresses_and_networks(subject())))
    assert (found.state, "1 exist" in found.what) == (OK, True)


def test_zone_without_free_nat_gateways_is_reported(subject: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "NAT gateways per Availability Zone"
    monkeypatch.setattr(quotas, "read_quotas", lambda aws, service: {name: 2.0})
    who = subject(zones=("us-east-1b",))
    ec2 = who.aws.client("ec2")
    for zone, state in (("us-east-1a", OK), ("us-east-1a", OK), ("us-east-1b", OK), ("us-east-1b", FAIL)):
        wanted: list[Any] = [{"Name": "availability-zone", "Values": [zone]}]
        (subnet,) = ec2.describe_subnets(Filters=wanted)["Subnets"]
        ec2.create_nat_gateway(SubnetId=subnet["SubnetId"], ConnectivityType="private")
        (found,) = (each for each in addresses_and_networks(who) if each.what.startswith(name))
        assert found.state == state


def test_checks_at_the_same_time_read_the_quotas_of_a_service_once(
    subject: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def denied(_: object, service: str) -> None:
        read.append(service)
        raise AwsError("not for you")

    monkeypatch.setattr(quotas, "read_quotas", denied)
    wanted = [each for each in checks.REMOTE if each[0] in ("vCPU quota", "network quotas", "firewall")]
    assert [each.state for each in checks.examine_remote(subject(), wanted)] == [UNKNOWN] * 3
    assert sorted(read) == ["ec2", "vpc"]


def test_without_spot_vcpus_the_advice_is_to_use_on_demand() -> None:
    name = "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"
    found = quotas.judge_vcpus(name, 0.0, 0, {("c5.2xlarge", quotas.SPOT): quotas.Need(least=16, now=16, most=16)})
    assert (found.state, found.remedy.startswith("set spot = false, or request an increase")) == (FAIL, True)
