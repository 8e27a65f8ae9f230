"""Auto Scaling groups maintain their instances."""

from __future__ import annotations

from collections import Counter

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, nodes
from localcloud.api.cloud import Cloud


def _ids(cloud: Cloud) -> list[str]:
    return [instance.id for instance in cloud.snapshot().instances]


def test_growing_keeps_instances_and_shrinking_uses_fullest_zone(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(nodes(2)), "Nodes")
    autoscaling = client("autoscaling")
    first = _ids(cloud)
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=5)
    assert _ids(cloud)[:2] == first
    assert sorted(Counter(i.zone for i in cloud.snapshot().instances).values()) == [2, 3]
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    assert _ids(cloud) == first
    assert {i.zone for i in cloud.snapshot().instances} == {"us-east-1a", "us-east-1b"}


def test_second_network_interface_is_rejected(stacks: Stacks) -> None:
    group = {"Fn::GetAtt": ["Group", "GroupId"]}
    interfaces = [{"DeviceIndex": index, "Groups": [group]} for index in (0, 1)]
    resources = nodes(1, data={"NetworkInterfaces": interfaces})
    del resources["Template"]["Properties"]["LaunchTemplateData"]["SecurityGroupIds"]
    name = stacks.create(resources)
    assert any("one network interface per instance" in reason for reason in stacks.reasons(name, "Nodes"))


def test_terminated_and_unhealthy_members_are_replaced(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    stacks.create(nodes(2))
    gone, kept = _ids(cloud)
    client("ec2").terminate_instances(InstanceIds=[gone])
    cloud.wait_for_change(0)
    client("autoscaling").set_instance_health(InstanceId=kept, HealthStatus="Unhealthy")
    cloud.wait_for_change(0)
    assert len(set(_ids(cloud)) - {gone, kept}) == 2


def test_termination_with_decrement_is_not_replaced(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(nodes(3)), "Nodes")
    autoscaling = client("autoscaling")
    gone, *kept = _ids(cloud)
    autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=gone, ShouldDecrementDesiredCapacity=True)
    assert _ids(cloud) == kept
    (described,) = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    assert described["DesiredCapacity"] == 2
    assert [each["InstanceId"] for each in described["Instances"]] == kept


def test_protected_members_survive_shrinking(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(nodes(2)), "Nodes")
    autoscaling = client("autoscaling")
    newest = _ids(cloud)[-1]
    autoscaling.set_instance_protection(AutoScalingGroupName=group, InstanceIds=[newest], ProtectedFromScaleIn=True)
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    assert _ids(cloud) == [newest]


def test_size_out_of_bounds_is_rejected(client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(nodes(1)), "Nodes")
    with pytest.raises(ClientError, match="is above max value 64"):
        client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group, DesiredCapacity=65)
    for wanted, words in ((65, "65 is above max value 64"), (0, "0 is below min value 1")):
        client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group, MinSize=1)
        with pytest.raises(ClientError, match=f"New SetDesiredCapacity value {words} for the AutoScalingGroup"):
            client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=wanted)
    client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=1, DesiredCapacity=1)
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    with pytest.raises(ClientError, match="AutoScalingGroup name not found"):
        client("autoscaling").set_desired_capacity(AutoScalingGroupName="nobody", DesiredCapacity=1)


def test_new_instances_use_template_version_of_group(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    resources = nodes(1)
    name = stacks.create(resources)
    resources["Template"]["Properties"]["LaunchTemplateData"]["InstanceType"] = "m5.large"
    stacks.update(name, resources)
    (old,) = cloud.snapshot().instances
    assert old.instance_type == "c5.large", "a new version leaves the instances alone"
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=stacks.physical(name, "Nodes"), DesiredCapacity=2)
    assert {i.instance_type for i in cloud.snapshot().instances} == {"c5.large", "m5.large"}


def test_failed_launch_is_recorded_as_activity(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    client("ec2").create_key_pair(KeyName="brief")
    group = stacks.physical(stacks.create(nodes(1, data={"KeyName": "brief"})), "Nodes")
    client("ec2").delete_key_pair(KeyName="brief")
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    assert len(_ids(cloud)) == 1
    latest = client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"][0]
    assert latest["StatusCode"] == "Failed"
    assert latest["StatusMessage"] == "The key pair 'brief' does not exist. Launching EC2 instance failed."
    client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)
    assert client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"] == []
    gone = {"AutoScalingGroupName": group, "IncludeDeletedGroups": True}
    found = client("autoscaling").describe_scaling_activities(**gone)["Activities"]
    assert latest["ActivityId"] in {each["ActivityId"] for each in found}


def test_group_with_instances_is_deleted_only_by_force(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    resources = nodes(1)
    resources["Nodes"]["Properties"]["NewInstancesProtectedFromScaleIn"] = True
    group = stacks.physical(stacks.create(resources), "Nodes")
    with pytest.raises(ClientError, match="ResourceInUse"):
        client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=group)
    client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)
    assert _ids(cloud) == []
