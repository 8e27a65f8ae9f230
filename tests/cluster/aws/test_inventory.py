"""The inventory shows what AWS reports, and explains why it may have nothing to show."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cluster.aws import inventory
from cluster.aws.client import Aws
from cluster.aws.instance_console import read_console
from cluster.aws.inventory import await_master, find, find_master, parse_inventory, refresh
from cluster.aws.stack import BeingDestroyedError, find_stack, parse_stack
from cluster.errors import AwsError, NoStackError
from cluster.session import Session
from stacks.config import CLUSTER_TAG, ROLE_TAG

OUTPUTS = {
    "MasterGroupName": "masters",
    "WorkerGroupName": "workers",
    "EfsMount": "/mnt/efs",
    "BucketName": "bucket",
    "LoginUser": "ec2-user",
    "MaxWorkers": "16",
}
IMAGE = "ami-12c6146b"
LAUNCHED = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)


def description(**changes: Any) -> dict[str, Any]:
    outputs = [{"OutputKey": key, "OutputValue": value} for key, value in {**OUTPUTS, **changes}.items() if value]
    arn = "arn:aws:cloudformation:us-east-1:123456789012:stack/deepcdk/6f4a8b10-0000-11f0-8a54-0e1b2c3d4e5f"
    return {"StackName": "deepcdk", "StackId": arn, "StackStatus": "CREATE_COMPLETE", "Outputs": outputs}


def group(name: str, *ids: str, desired: int = 0) -> dict[str, Any]:
    members = [{"InstanceId": instance_id, "LifecycleState": "InService"} for instance_id in ids]
    return {"AutoScalingGroupName": name, "DesiredCapacity": desired, "Instances": members}


def instance(instance_id: str, state: str = "running", minute: int = 0, **further: Any) -> dict[str, Any]:
    return {
        "InstanceId": instance_id,
        "State": {"Name": state},
        "InstanceType": "c5.2xlarge",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "LaunchTime": LAUNCHED + datetime.timedelta(minutes=minute),
        **further,
    }


def test_master_comes_first_and_workers_by_age() -> None:
    found = parse_inventory(
        parse_stack(description()),
        [group("workers", "i-2", "i-1", desired=3), group("masters", "i-0", desired=1)],
        [{"Instances": [instance("i-2", minute=2), instance("i-1", minute=1)]},
         {"Instances": [instance("i-0", minute=9, PublicIpAddress="198.18.1.2"), instance("i-stranger")]}],
    )  # fmt: skip
    assert [(i.id, i.role) for i in found.instances] == [("i-0", "master"), ("i-1", "worker"), ("i-2", "worker")]
    assert (found.master.public_ip, found.desired_workers) == ("198.18.1.2", 3)


def test_spot_instances_are_recognized() -> None:
    found = parse_inventory(
        parse_stack(description()),
        [group("workers", "i-1", "i-2")],
        [{"Instances": [instance("i-1", InstanceLifecycle="spot"), instance("i-2")]}],
    )
    assert [(i.id, i.spot) for i in found.instances] == [("i-1", True), ("i-2", False)]


@pytest.mark.parametrize(
    ("zones", "suspended", "rebalances"),
    [
        (["us-east-1a", "us-east-1b"], [], True),
        (["us-east-1a", "us-east-1b"], ["AZRebalance"], False),
        (["us-east-1a", "us-east-1b"], ["AlarmNotification"], True),
        (["us-east-1a"], [], False),
    ],
)
def test_group_balances_its_zones_unless_suspended(zones: list[str], suspended: list[str], rebalances: bool) -> None:
    processes = [{"ProcessName": name, "SuspensionReason": ""} for name in suspended]
    workers = {**group("workers"), "AvailabilityZones": zones, "SuspendedProcesses": processes}
    masters = {**group("masters"), "AvailabilityZones": ["us-east-1a", "us-east-1b"]}
    found = parse_inventory(parse_stack(description()), [masters, workers], [])
    assert found.rebalances_zones is rebalances


def test_master_without_public_address_needs_session_manager() -> None:
    reservations: list[Any] = [{"Instances": [instance("i-0")]}]
    for access, reachable in (("session-manager", True), ("port", False), ("", False)):
        stack = parse_stack(description(SshAccess=access))
        found = parse_inventory(stack, [group("masters", "i-0", desired=1)], reservations)
        if reachable:
            assert found.master.id == "i-0"
        else:
            with pytest.raises(AwsError, match="the running master i-0 has no public address") as caught:
                _ = found.master
            assert "associate an Elastic IP address" in caught.value.remedy


def test_master_without_public_address_is_expected_during_a_deployment() -> None:
    stack = parse_stack({**description(), "StackStatus": "UPDATE_IN_PROGRESS"})
    found = parse_inventory(stack, [group("masters", "i-0", desired=1)], [{"Instances": [instance("i-0")]}])
    with pytest.raises(AwsError, match="has no public address") as caught:
        _ = found.master
    assert caught.value.remedy.startswith("wait until the deployment has ended")


@pytest.mark.parametrize("state", ["pending", "stopped"])
def test_master_that_is_not_running_is_reported_with_its_state(state: str) -> None:
    found = parse_inventory(
        parse_stack(description()), [group("masters", "i-0")], [{"Instances": [instance("i-0", state)]}]
    )
    with pytest.raises(AwsError, match=f"i-0 is {state}"):
        _ = found.master


def test_missing_stack_is_reported_with_the_region(aws: Aws) -> None:
    for ask in (find, find_master, find_stack):
        with pytest.raises(NoStackError, match="stack deepcdk is not deployed\n  where: region us-east-1"):
            ask(aws, "deepcdk")


def deploy(aws: Aws, outputs: dict[str, str]) -> None:
    template = {
        "Resources": {"Bucket": {"Type": "AWS::S3::Bucket"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items()},
    }
    aws.client("cloudformation").create_stack(StackName="deepcdk", TemplateBody=json.dumps(template))


def test_deployed_stack_is_found_with_its_nodes(aws: Aws) -> None:
    deploy(aws, OUTPUTS)
    scaling = aws.client("autoscaling")
    aws.client("ec2").create_launch_template(
        LaunchTemplateName="nodes", LaunchTemplateData={"ImageId": IMAGE, "InstanceType": "t3.medium"}
    )
    subnet = aws.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    for name, count in (("masters", 1), ("workers", 2)):
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=name, LaunchTemplate={"LaunchTemplateName": "nodes", "Version": "$Latest"},
            MinSize=0, MaxSize=4, DesiredCapacity=count, VPCZoneIdentifier=subnet,
        )  # fmt: skip
    found = find(aws, "deepcdk")
    assert [i.role for i in found.instances] == ["master", "worker", "worker"]
    assert (found.stack.max_workers, found.max_workers) == (16, 4), "what the group takes decides"
    assert find_master(aws, "deepcdk").master == found.master  # nothing there has the cluster's tags
    scaling.set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=3)
    assert len(refresh(aws, found.stack).workers) == 3
    assert isinstance(read_console(aws, found.instances[0].id), str)


def test_instance_unknown_to_ec2_does_not_hide_others(aws: Aws) -> None:
    """EC2 answers by id only once it knows an instance, which is some time after Auto Scaling lists it."""
    deploy(aws, OUTPUTS)
    aws.client("ec2").create_launch_template(
        LaunchTemplateName="nodes", LaunchTemplateData={"ImageId": IMAGE, "InstanceType": "t3.medium"}
    )
    scaling = aws.client("autoscaling")
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="workers", LaunchTemplate={"LaunchTemplateName": "nodes", "Version": "$Latest"},
        MinSize=0, MaxSize=4, DesiredCapacity=2, AvailabilityZones=["us-east-1a"],
    )  # fmt: skip

    def list_one_more(parsed: dict[str, Any], **_: Any) -> None:
        for listed in parsed["AutoScalingGroups"]:
            listed["Instances"].append({"InstanceId": "i-0123456789abcdef0", "LifecycleState": "Pending"})

    scaling.meta.events.register("after-call.auto-scaling.DescribeAutoScalingGroups", list_one_more)
    found = find(aws, "deepcdk")
    assert len(found.workers) == found.desired_workers == 2
    assert "i-0123456789abcdef0" not in {each.id for each in found.instances}


def test_newest_running_master_is_found_by_tags(aws: Aws) -> None:
    deploy(aws, OUTPUTS)
    ec2 = aws.client("ec2")

    def launch(cluster: str, role: str) -> str:
        launched = ec2.run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            NetworkInterfaces=[{"DeviceIndex": 0, "AssociatePublicIpAddress": True}],
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": CLUSTER_TAG, "Value": cluster}, {"Key": ROLE_TAG, "Value": role}],
                }
            ],
        )
        return launched["Instances"][0]["InstanceId"]

    ended, wanted = launch("deepcdk", "master"), launch("deepcdk", "master")
    launch("deepcdk", "worker")
    launch("other", "master")
    ec2.terminate_instances(InstanceIds=[ended])
    found = find_master(aws, "deepcdk")
    assert (found.master.id, found.master.role, found.stack) == (wanted, "master", find_stack(aws, "deepcdk"))


def test_cluster_being_destroyed_rejects_connections_but_is_listed(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(aws, OUTPUTS)
    described = aws.client("cloudformation").describe_stacks(StackName="deepcdk")["Stacks"][0]
    monkeypatch.setattr(inventory, "describe_stack", lambda *_: {**described, "StackStatus": "DELETE_IN_PROGRESS"})
    with pytest.raises(BeingDestroyedError, match="stack deepcdk is being destroyed, by `fab down` on this machine or"):
        find_master(aws, "deepcdk")
    found = find(aws, "deepcdk")
    assert found.stack.status == "DELETE_IN_PROGRESS"
    (tmp_path / "cdk.json").write_text('{"context": {"cluster": {}}}')
    session = Session(tmp_path, [])
    session.loaded_inventory = found
    with pytest.raises(BeingDestroyedError):
        session.load_master()


def test_partially_failed_stack_is_found_for_destroying(aws: Aws) -> None:
    deploy(aws, {"BucketName": "bucket"})
    assert find_stack(aws, "deepcdk").bucket == "bucket"
    with pytest.raises(AwsError, match="lacks the outputs"):
        find(aws, "deepcdk")


def test_console_of_instance_not_yet_known_to_ec2_is_empty(aws: Aws) -> None:
    assert read_console(aws, "i-00000000000000000") == ""


def test_other_console_errors_are_reported_as_aws_errors(aws: Aws) -> None:
    def deny(**_: Any) -> tuple[Any, dict[str, Any]]:
        return mock.Mock(status_code=403), {"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}

    events: Any = aws.client("ec2").meta.events  # its type allows no handler that answers
    events.register("before-call.ec2.GetConsoleOutput", deny)
    with pytest.raises(AwsError, match="AWS denied the request") as caught:
        read_console(aws, "i-00000000000000000")
    assert caught.value.where == "reading the console of i-00000000000000000"


def starting(state: str = "") -> dict[str, Any]:
    """Return the arguments of an inventory with a master in this state; without a state, EC2 does not list it."""
    listed = [instance("i-0", state, PublicIpAddress="198.18.1.2")] if state else []
    return {
        "stack": parse_stack(description()),
        "groups": [group("masters", "i-0", desired=1)],
        "reservations": [{"Instances": listed}],
    }


def test_starting_master_is_awaited(aws: Aws, monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    seen = iter(["", "pending", "pending", "running", "never asked for"])
    monkeypatch.setattr(inventory, "refresh", lambda aws, stack: parse_inventory(**starting(next(seen))))
    assert await_master(aws, parse_inventory(**starting())).master.id == "i-0"
    assert slept == [inventory.MASTER_POLL_S] * 4


def test_wait_for_master_is_limited_and_needs_starting_master(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    monkeypatch.setattr(inventory, "refresh", lambda aws, stack: parse_inventory(**starting()))
    with pytest.raises(AwsError, match="i-0 is not in EC2's list yet"):
        _ = await_master(aws, parse_inventory(**starting())).master
    assert sum(slept) == pytest.approx(inventory.MASTER_WITHIN_S)
    slept.clear()
    for state in ("stopped", "terminated", "running"):
        await_master(aws, parse_inventory(**starting(state)))
    assert slept == []
