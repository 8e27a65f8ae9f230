"""Delays: pending instances and NAT gateways, and late console output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from api.templates import Stacks
from localcloud.api.cloud import Cloud
from localcloud.api.ec2.instances import Console
from localcloud.api_faults.delays import Delays
from localcloud.api_faults.throttling import Draws


def test_instance_is_pending_without_host_until_delay_is_over(cloud: Cloud, aws: Callable[[str], Any]) -> None:
    ec2 = aws("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    (made,) = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1)["Instances"]

    def state() -> str:
        return str(ec2.describe_instances()["Reservations"][0]["Instances"][0]["State"]["Name"])

    assert (state(), cloud.snapshot().instances) == ("pending", ())
    while not cloud.wait_for_change(0.1) or state() == "pending":
        pass
    assert state() == "running"
    assert [instance.id for instance in cloud.snapshot().instances] == [made["InstanceId"]]


def test_terminated_instance_does_not_start(cloud: Cloud, aws: Callable[[str], Any]) -> None:
    ec2 = aws("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    (made,) = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1)["Instances"]
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    states = Delays(Draws(1), clock=lambda: 1e12)
    assert not states.settle(cloud._backend("ec2"))
    assert ec2.describe_instances()["Reservations"][0]["Instances"][0]["State"]["Name"] == "terminated"


def test_cloudformation_waits_for_pending_nat_gateway(cloud: Cloud, aws: Callable[[str], Any]) -> None:
    resources: dict[str, Any] = {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}},
        "A": {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.9.0.0/24"}},
        "Address": {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}},
        "Nat": {
            "Type": "AWS::EC2::NatGateway",
            "Properties": {"SubnetId": {"Ref": "A"}, "AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]}},
        },
    }
    stacks, ec2 = Stacks(aws), aws("ec2")
    name = stacks.create(resources, wait=False)
    seen = []
    while (status := stacks.describe(name)["StackStatus"]) == "CREATE_IN_PROGRESS":
        seen += [gateway["State"] for gateway in ec2.describe_nat_gateways()["NatGateways"]]
    assert status == "CREATE_COMPLETE"
    assert "pending" in seen
    assert [gateway["State"] for gateway in ec2.describe_nat_gateways()["NatGateways"]] == ["available"]
    assert len(cloud.snapshot().nat_gateways) == 1


def test_console_output_is_delayed_and_in_order() -> None:
    now = 0.0
    console = Console(clock=lambda: now)
    console.write("i-1", "booting\n", late_s=10)
    now = 4.0
    console.write("i-1", "booting\nready\n", late_s=10)
    assert console.read("i-1") is None
    now = 10.0
    assert console.read("i-1") == "booting\n"
    now = 14.0
    assert console.read("i-1") == "booting\nready\n"
    console.write("i-1", "booting\nready\nend\n")
    assert console.read("i-1") == "booting\nready\nend\n"
