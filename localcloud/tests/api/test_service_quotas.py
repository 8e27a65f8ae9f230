"""The quotas of a new account, and the requests beyond them that EC2 and Auto Scaling reject."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES

from api.templates import Client, Stacks, mixed, nodes
from localcloud.api.autoscaling import instance_choice
from localcloud.api.cloud import Cloud
from localcloud.api.ec2 import instances
from localcloud.api.service_quotas import QUOTAS, vcpu_quota

STANDARD = "L-1216C47A"
SPOT = "L-34B43A08"
WORDS = (
    "You have requested more vCPU capacity than your current vCPU limit of 16 allows for the instance bucket that the "
    "specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an "
    "adjustment to this limit."
)


@pytest.fixture(scope="module")
def cloud() -> Cloud:
    """Return a new account with 16 standard vCPUs."""
    return Cloud(vcpus=16)


@pytest.fixture
def ec2(client: Client) -> Iterator[Any]:
    """Return a client of EC2; terminate its instances after the test."""
    ec2 = client("ec2")
    yield ec2
    pages = ec2.describe_instances()["Reservations"]
    if ids := [instance["InstanceId"] for page in pages for instance in page["Instances"]]:
        ec2.terminate_instances(InstanceIds=ids)


def launch(ec2: Any, instance_type: str, count: int, **more: Any) -> list[str]:
    made = ec2.run_instances(ImageId="ami-12c6146b", InstanceType=instance_type, MinCount=count, MaxCount=count, **more)
    return [instance["InstanceId"] for instance in made["Instances"]]


def refused(call: Any, **given: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        call(**given)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


def test_quotas_without_an_applied_value_are_only_among_the_defaults(client: Client) -> None:
    quotas = client("service-quotas")
    applied = {each["QuotaCode"]: each["Value"] for each in quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]}
    assert applied == {STANDARD: 16.0, SPOT: 16.0}
    listed = quotas.list_aws_default_service_quotas(ServiceCode="ec2")["Quotas"]
    defaults = {each["QuotaName"]: each["Value"] for each in listed}
    assert defaults["Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"] == 5.0
    assert (defaults["Running On-Demand P instances"], defaults["EC2-VPC Elastic IPs"]) == (0.0, 5.0)
    assert quotas.list_service_quotas(ServiceCode="vpc")["Quotas"] == []
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode=STANDARD)["Quota"]["Value"] == 16.0
    default = quotas.get_aws_default_service_quota(ServiceCode="vpc", QuotaCode="L-F678F1CE")["Quota"]
    assert (default["QuotaName"], default["Value"]) == ("VPCs per Region", 5.0)
    missing = refused(quotas.get_service_quota, ServiceCode="ec2", QuotaCode="L-417A185B")
    assert missing == ("NoSuchResourceException", "The specified resource does not exist.")
    assert refused(quotas.list_service_quotas, ServiceCode="none")[0] == "NoSuchResourceException"


def test_quotas_are_listed_in_pages(client: Client) -> None:
    pages = client("service-quotas").get_paginator("list_aws_default_service_quotas")
    found = [page["Quotas"] for page in pages.paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 8})]
    assert [len(page) for page in found][:2] == [8, 8]
    assert len({each["QuotaCode"] for page in found for each in page}) == sum(map(len, found)) == 20


def test_page_has_100_quotas_at_most(client: Client) -> None:
    code, message = refused(client("service-quotas").list_service_quotas, ServiceCode="ec2", MaxResults=101)
    assert (code, "Value '101' at 'maxResults'" in message) == ("ValidationException", True)


def test_every_instance_type_but_macs_counts_against_one_on_demand_quota() -> None:
    missing = {name.split(".")[0] for name in INSTANCE_TYPES if vcpu_quota(name, spot=False) is None}
    assert {name for name in missing if not name.startswith("mac")} == set()
    chosen = {name: getattr(vcpu_quota(name, spot=False), "code", "") for name in INSTANCE_TYPES}
    assert chosen["im4gn.large"] == chosen["is4gen.large"] == chosen["t3.medium"] == STANDARD
    assert chosen["gr6.4xlarge"] == chosen["g5.xlarge"] == "L-DB2E81BA"
    assert chosen["inf2.xlarge"] == "L-1945791B"
    assert len({each.code for each in QUOTAS}) == len(QUOTAS)


def test_only_vcpus_of_running_instances_count(ec2: Any) -> None:
    ids = launch(ec2, "c5.large", 8)
    assert refused(launch, ec2=ec2, instance_type="t3.micro", count=1) == ("VcpuLimitExceeded", WORDS)
    ec2.stop_instances(InstanceIds=ids[:1])
    launch(ec2, "t3.micro", 1)
    assert refused(ec2.start_instances, InstanceIds=ids[:1]) == ("VcpuLimitExceeded", WORDS)


def test_launch_template_counts_with_its_type(ec2: Any) -> None:
    made = ec2.create_launch_template(LaunchTemplateName="big", LaunchTemplateData={"InstanceType": "c5.9xlarge"})
    template = {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"]}
    given = {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1, "LaunchTemplate": template}
    assert refused(ec2.run_instances, **given)[0] == "VcpuLimitExceeded"
    ec2.delete_launch_template(**template)


def test_families_and_spot_have_separate_vcpu_quotas(ec2: Any) -> None:
    launch(ec2, "c5.large", 8)
    code, message = refused(launch, ec2=ec2, instance_type="p4d.24xlarge", count=1)
    assert (code, "limit of 0 allows" in message) == ("VcpuLimitExceeded", True)
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    launch(ec2, "c5.large", 8, **spot)
    exceeded = ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    assert refused(launch, ec2=ec2, instance_type="c5.large", count=1, **spot) == exceeded
    specification = {"ImageId": "ami-12c6146b", "InstanceType": "c5.large"}
    assert refused(ec2.request_spot_instances, InstanceCount=1, LaunchSpecification=specification) == exceeded


def test_capacity_blocks_count_against_no_quota(ec2: Any) -> None:
    block = {"InstanceMarketOptions": {"MarketType": "capacity-block"}}
    (id,) = launch(ec2, "p5.48xlarge", 1, **block)
    (page,) = ec2.describe_instances(InstanceIds=[id])["Reservations"]
    assert page["Instances"][0]["InstanceLifecycle"] == "capacity-block"
    ec2.stop_instances(InstanceIds=[id])
    ec2.start_instances(InstanceIds=[id])


@pytest.mark.parametrize("market", ["spot", "capacity-block"])
def test_launch_template_market_selects_quota(ec2: Any, market: str) -> None:
    launch(ec2, "c5.large", 8)
    data = {"InstanceType": "c5.large", "InstanceMarketOptions": {"MarketType": market}}
    made = ec2.create_launch_template(LaunchTemplateName=market, LaunchTemplateData=data)
    template = {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"]}
    answer = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, LaunchTemplate=template)
    assert answer["Instances"][0]["InstanceLifecycle"] == market
    ec2.delete_launch_template(**template)


def test_group_beyond_the_quota_launches_what_fits_and_records_ec2_errors(
    cloud: Cloud, client: Client, stacks: Stacks
) -> None:
    name = stacks.create(nodes(9))
    assert stacks.describe(name)["StackStatus"] == "CREATE_COMPLETE"
    assert len(cloud.snapshot().instances) == 8
    group = stacks.physical(name, "Nodes")
    found = client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    failed = [each for each in found if each["StatusCode"] == "Failed"]
    assert {each["StatusMessage"] for each in failed} == {f"{WORDS} Launching EC2 instance failed."}
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3)
    assert len(cloud.snapshot().instances) == 3


def test_group_uses_family_with_vcpus_left(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(mixed(2, "p4d.24xlarge", "c5.large"))
    assert [(each.instance_type, each.spot) for each in cloud.snapshot().instances] == [("c5.large", True)] * 2


@pytest.mark.parametrize("types", [("c5.large", "p4d.24xlarge"), ("p4d.24xlarge", "c5.large")])
def test_quota_of_one_type_does_not_block_another_type_in_next_zone(
    cloud: Cloud, stacks: Stacks, monkeypatch: pytest.MonkeyPatch, types: tuple[str, ...]
) -> None:
    def check(ec2: Any, instance_type: str, zone: str) -> None:
        if zone == "us-east-1a" and instance_type == "c5.large":
            raise EC2ClientError(instance_choice.NO_CAPACITY, "no room")

    monkeypatch.setattr(instances, "check_room", check)
    stacks.create(mixed(1, *types))
    assert [each.instance_type for each in cloud.snapshot().instances] == ["c5.large"]


def test_spot_group_beyond_the_quota_is_reported(client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(mixed(1, "p5.48xlarge")), "Nodes")
    found = client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"][0]
    assert found["StatusMessage"] == "Max spot instance count exceeded. Launching EC2 instance failed."


def test_addresses_and_vpcs_are_limited(ec2: Any) -> None:
    addresses = [ec2.allocate_address(Domain="vpc")["AllocationId"] for _ in range(5)]
    assert refused(ec2.allocate_address, Domain="vpc")[0] == "AddressLimitExceeded"
    vpcs = [ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"] for _ in range(4)]  # in addition to the default VPC
    assert refused(ec2.create_vpc, CidrBlock="10.1.0.0/16")[0] == "VpcLimitExceeded"
    for address in addresses:
        ec2.release_address(AllocationId=address)
    for vpc in vpcs:
        ec2.delete_vpc(VpcId=vpc)


def test_zone_allows_five_nat_gateways(ec2: Any) -> None:
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    given: dict[str, Any] = {"VpcId": vpc, "AvailabilityZone": "us-east-1f"}
    subnet = ec2.create_subnet(CidrBlock="10.8.1.0/24", **given)["Subnet"]["SubnetId"]
    one = {"SubnetId": subnet, "ConnectivityType": "private"}
    made = [ec2.create_nat_gateway(**one)["NatGateway"]["NatGatewayId"] for _ in range(5)]
    code, message = refused(ec2.create_nat_gateway, **one)
    assert (code, "limit of 5 NAT gateways" in message) == ("NatGatewayLimitExceeded", True)
    for each in made:
        ec2.delete_nat_gateway(NatGatewayId=each)
    ec2.create_nat_gateway(**one)
