"""Stacks are created, updated, rolled back and deleted as by CloudFormation."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, network, nodes
from localcloud.api.cloud import Cloud
from localcloud.snapshot import Snapshot
from refusals.templates import ref, resource

_BAD_SUBNET = {
    "Type": "AWS::EC2::Subnet",
    "DependsOn": ["A", "B"],
    "Properties": {"VpcId": ref("Vpc"), "CidrBlock": "192.168.0.0/24"},
}


def _signalled(count: int, timeout: str = "PT20S") -> dict[str, Any]:
    return nodes(count, CreationPolicy={"ResourceSignal": {"Count": count, "Timeout": timeout}})


def _signal(client: Client, cloud: Cloud, name: str, *statuses: str) -> None:
    for instance, status in zip(cloud.snapshot().instances, statuses, strict=False):
        client("cloudformation").signal_resource(
            StackName=name, LogicalResourceId="Nodes", UniqueId=instance.id, Status=status
        )


def test_create_scale_edit_destroy(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    resources = nodes(2)
    name = stacks.create(resources, Outputs={"Vpc": {"Value": ref("Vpc")}})
    assert stacks.describe(name)["Outputs"] == [{"OutputKey": "Vpc", "OutputValue": stacks.physical(name, "Vpc")}]
    first = [instance.id for instance in cloud.snapshot().instances]
    groups = [stacks.physical(name, each) for each in ("Group", "Nodes", "Template")]
    resources["Nodes"]["Properties"]["DesiredCapacity"] = "4"
    stacks.update(name, resources)
    assert [instance.id for instance in cloud.snapshot().instances][:2] == first
    assert len(cloud.snapshot().instances) == 4
    resources["Group"]["Properties"]["SecurityGroupIngress"] = [
        {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "100.64.0.0/30"}
    ]
    resources["Template"]["Properties"]["LaunchTemplateData"]["InstanceType"] = "c5.xlarge"
    resources["Nodes"]["Properties"]["DesiredCapacity"] = "2"
    stacks.update(name, resources)
    assert [stacks.physical(name, each) for each in ("Group", "Nodes", "Template")] == groups, "all in place"
    (group,) = [each for each in cloud.snapshot().security_groups if each.id == groups[0]]
    assert [rule.cidrs for rule in group.ingress] == [("100.64.0.0/30",)]
    assert len(cloud.snapshot().instances) == 2
    stacks.delete(name)
    assert cloud.snapshot() == Snapshot()
    with pytest.raises(ClientError, match="does not exist"):
        stacks.describe(name)


def test_stack_waits_for_its_signals(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    name = stacks.create(_signalled(2), wait=False)
    stacks.await_status(name, "Nodes", "CREATE_IN_PROGRESS")
    _signal(client, cloud, name, "SUCCESS")
    assert stacks.describe(name)["StackStatus"] == "CREATE_IN_PROGRESS"
    with pytest.raises(ClientError, match=r"already exists\. Signals may only be updated with a FAILURE"):
        _signal(client, cloud, name, "SUCCESS")
    last = cloud.snapshot().instances[1].id
    client("cloudformation").signal_resource(StackName=name, LogicalResourceId="Nodes", UniqueId=last, Status="SUCCESS")
    assert stacks.settle(name) == "CREATE_COMPLETE"
    assert f"CREATE_IN_PROGRESS: Received SUCCESS signal with UniqueId {last}" in stacks.reasons(name, "Nodes")
    with pytest.raises(ClientError, match="is in CREATE_COMPLETE state and cannot be signaled"):
        _signal(client, cloud, name, "SUCCESS")


def test_failure_signal_fails_the_stack_and_rolls_it_back(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    name = stacks.create(_signalled(2), wait=False)
    stacks.await_status(name, "Nodes", "CREATE_IN_PROGRESS")
    _signal(client, cloud, name, "SUCCESS", "FAILURE")
    assert stacks.settle(name) == "ROLLBACK_COMPLETE"
    assert cloud.snapshot() == Snapshot()
    failed = [each for each in stacks.reasons(name, "Nodes") if each.startswith("CREATE_FAILED")]
    assert failed == [
        "CREATE_FAILED: Received 1 FAILURE signal(s) out of 2.  "
        "Unable to satisfy 100% MinSuccessfulInstancesPercent requirement"
    ]
    assert stacks.reasons(name, name)[1] == (
        "ROLLBACK_IN_PROGRESS: The following resource(s) failed to create: [Nodes]. Rollback requested by user."
    )
    with pytest.raises(ClientError, match="is in ROLLBACK_COMPLETE state and can not be updated"):
        stacks.update(name, nodes(1))


def test_missing_signals_fail_the_stack(stacks: Stacks) -> None:
    name = stacks.create(_signalled(1, "PT0S"))
    assert stacks.describe(name)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "CREATE_FAILED: Failed to receive 1 resource signal(s) within the specified duration" in stacks.reasons(
        name, "Nodes"
    )


def test_without_rollback_resources_remain_and_can_be_repaired(cloud: Cloud, stacks: Stacks) -> None:
    resources = {**network(), "Bad": _BAD_SUBNET}
    name = stacks.create(resources, options={"DisableRollback": True})
    assert stacks.describe(name)["StackStatus"] == "CREATE_FAILED"
    assert len(cloud.snapshot().subnets) == 2
    del resources["Bad"]
    stacks.update(name, resources)
    assert stacks.describe(name)["StackStatus"] == "UPDATE_COMPLETE"


def test_failed_update_is_rolled_back_to_previous_template(cloud: Cloud, stacks: Stacks) -> None:
    resources = nodes(2)
    name = stacks.create(resources)
    before = cloud.snapshot()
    changed = {
        **resources,
        "Bad": {**_BAD_SUBNET, "DependsOn": ["Nodes", "Extra"]},
        "Extra": resource("EC2::InternetGateway"),
    }
    changed["Nodes"] = {
        **resources["Nodes"],
        "Properties": {**resources["Nodes"]["Properties"], "DesiredCapacity": "3"},
    }
    stacks.update(name, changed)
    assert stacks.describe(name)["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert cloud.snapshot() == before
    assert any(each.startswith("CREATE_FAILED: Resource handler returned") for each in stacks.reasons(name, "Bad"))
    assert stacks.reasons(name, "Extra")[-1].startswith("DELETE_COMPLETE")
    changed["Bad"] = {**_BAD_SUBNET, "Condition": "Never"}
    stacks.update(name, changed, Conditions={"Never": {"Fn::Equals": ["1", "2"]}})
    assert stacks.describe(name)["StackStatus"] == "UPDATE_COMPLETE"
    assert len(cloud.snapshot().instances) == 3


def test_retained_resources_survive_their_stack(client: Client, stacks: Stacks) -> None:
    name = stacks.create({"Files": {"Type": "AWS::EFS::FileSystem", "DeletionPolicy": "Retain"}, **network()})
    files = stacks.physical(name, "Files")
    stacks.delete(name)
    efs = client("efs")
    assert [each["FileSystemId"] for each in efs.describe_file_systems()["FileSystems"]] == [files]
    efs.delete_file_system(FileSystemId=files)


def test_stack_may_be_deleted_again_while_it_is_being_deleted(client: Client, stacks: Stacks) -> None:
    name = stacks.create(network())
    stack_id = stacks.describe(name)["StackId"]
    for _ in range(3):
        client("cloudformation").delete_stack(StackName=stack_id)
    assert stacks.settle(stack_id) == "DELETE_COMPLETE"


def test_bucket_with_objects_is_not_deleted(client: Client, stacks: Stacks) -> None:
    name = stacks.create({"Bucket": resource("S3::Bucket"), **network()})
    bucket = stacks.physical(name, "Bucket")
    s3 = client("s3")
    s3.put_object(Bucket=bucket, Key="result", Body=b"1")
    stacks.delete(name)
    described = stacks.describe(name)
    assert described["StackStatus"] == "DELETE_FAILED"
    assert "failed to delete: [Bucket]" in described["StackStatusReason"]
    s3.delete_object(Bucket=bucket, Key="result")
    stacks.delete(name)


def test_unsupported_template_creates_nothing(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    with pytest.raises(ClientError, match=r"does not support AWS::Kinesis::Stream \(resource Stream\)"):
        stacks.create({**network(), "Stream": resource("Kinesis::Stream")})
    assert cloud.snapshot() == Snapshot()
    assert stacks.names[-1] not in {s["StackName"] for s in client("cloudformation").describe_stacks()["Stacks"]}


def test_iam_resources_require_a_capability(stacks: Stacks) -> None:
    role = resource("IAM::Role", AssumeRolePolicyDocument={})
    with pytest.raises(ClientError, match=r"Requires capabilities : \[CAPABILITY_IAM\]"):
        stacks.create({"Role": role})


def test_protected_stack_is_not_deleted(client: Client, stacks: Stacks) -> None:
    name = stacks.create(network(), options={"EnableTerminationProtection": True})
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        stacks.delete(name)
    client("cloudformation").update_termination_protection(StackName=name, EnableTerminationProtection=False)
    stacks.delete(name)


def test_rolling_update_replaces_all_in_batches_and_waits(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    policy = {"AutoScalingRollingUpdate": {"MaxBatchSize": 2, "WaitOnResourceSignals": True, "PauseTime": "PT20S"}}
    resources = nodes(2, UpdatePolicy=policy)
    name = stacks.create(resources)
    before = {instance.id for instance in cloud.snapshot().instances}
    resources["Template"]["Properties"]["LaunchTemplateData"]["InstanceType"] = "c5.xlarge"
    stacks.update(name, resources, wait=False)
    stacks.await_status(name, "Nodes", "UPDATE_IN_PROGRESS")
    while before & {instance.id for instance in cloud.snapshot().instances} or len(cloud.snapshot().instances) < 2:
        cloud.wait_for_change(0.05)
    _signal(client, cloud, name, "SUCCESS", "SUCCESS")
    assert stacks.settle(name) == "UPDATE_COMPLETE"
    assert {instance.instance_type for instance in cloud.snapshot().instances} == {"c5.xlarge"}


def test_unmodified_sizes_stay_if_the_policy_requires_it(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    policy = {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}
    resources = nodes(1, UpdatePolicy=policy)
    name = stacks.create(resources)
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=stacks.physical(name, "Nodes"), DesiredCapacity=3)
    resources["Nodes"]["Properties"]["Cooldown"] = "60"
    stacks.update(name, resources)
    assert len(cloud.snapshot().instances) == 3
