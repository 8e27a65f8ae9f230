"""The cloud as a whole: its snapshot, notifications of changes, and errors of its API."""

from __future__ import annotations

import importlib
import json
import pkgutil
import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, connect, nodes
from localcloud import api
from localcloud.api import monkeypatch as corrections
from localcloud.api.cloud import Cloud
from localcloud.api.error_replies import WrongMotoError
from refusals.templates import ref, resource

_PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIuR6nDqj0yVq0Xl3xgBXlmqpHkVXfqhYBBbGJhqVdzc someone"


def test_every_correction_of_moto_is_applied(cloud: Cloud) -> None:
    for module in pkgutil.walk_packages(api.__path__, f"{api.__name__}."):
        importlib.import_module(module.name)
    assert corrections._declared == []


def test_snapshot_contains_resources_of_template(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    client("ec2").import_key_pair(KeyName="someone", PublicKeyMaterial=_PUBLIC_KEY.encode())
    resources = nodes(
        2,
        data={
            "KeyName": "someone",
            "MetadataOptions": {"HttpTokens": "required"},
            "IamInstanceProfile": {"Arn": {"Fn::GetAtt": ["Profile", "Arn"]}},
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "template"}]}],
        },
    )
    resources["Role"] = resource("IAM::Role", AssumeRolePolicyDocument={"Statement": []})
    resources["Profile"] = resource("IAM::InstanceProfile", Roles=[ref("Role")])
    resources["Nodes"]["Properties"]["Tags"] = [{"Key": "role", "Value": "worker", "PropagateAtLaunch": True}]
    resources["Gateway"] = resource("EC2::InternetGateway")
    resources["Attachment"] = resource("EC2::VPCGatewayAttachment", VpcId=ref("Vpc"), InternetGatewayId=ref("Gateway"))
    resources["Routes"] = resource("EC2::RouteTable", VpcId=ref("Vpc"))
    resources["Out"] = {
        "Type": "AWS::EC2::Route",
        "DependsOn": "Attachment",
        "Properties": {"RouteTableId": ref("Routes"), "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": ref("Gateway")},
    }
    resources["Association"] = resource(
        "EC2::SubnetRouteTableAssociation", RouteTableId=ref("Routes"), SubnetId=ref("A")
    )
    resources["Group"]["Properties"]["SecurityGroupIngress"] = [
        {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "100.64.0.0/30", "Description": "SSH"}
    ]
    resources["Files"] = resource("EFS::FileSystem")
    resources["Target"] = resource(
        "EFS::MountTarget", FileSystemId=ref("Files"), SubnetId=ref("A"), SecurityGroups=[ref("Group")]
    )
    name = stacks.create(resources, options={"Capabilities": ["CAPABILITY_IAM"]})
    assert stacks.describe(name)["StackStatus"] == "CREATE_COMPLETE"
    seen = cloud.snapshot()
    assert len(seen.vpcs) == 1
    by_id = {subnet.id: subnet for subnet in seen.subnets}
    assert by_id[stacks.physical(name, "A")].default_route == stacks.physical(name, "Gateway")
    assert by_id[stacks.physical(name, "B")].default_route == ""
    group = next(group for group in seen.security_groups if group.id == stacks.physical(name, "Group"))
    assert [(r.protocol, r.from_port, r.to_port, r.cidrs) for r in group.ingress] == [
        ("tcp", 22, 22, ("100.64.0.0/30",))
    ]
    assert [(rule.protocol, rule.cidrs) for rule in group.egress] == [("-1", ("0.0.0.0/0",))]
    (target,) = seen.mount_targets
    assert target.group_ids == (group.id,)
    assert target.ip.endswith(".1.4")
    one = seen.instances[0]
    assert one.user_data == f"#!/bin/sh\necho {name}\n".encode()
    assert one.public_key == _PUBLIC_KEY
    assert one.group_ids == (group.id,)
    assert one.role_name == stacks.physical(name, "Role")
    assert one.metadata_tokens_required
    assert {("from", "template"), ("role", "worker"), ("aws:cloudformation:stack-name", name)} <= set(one.tags)
    assert {instance.zone for instance in seen.instances} == {"us-east-1a", "us-east-1b"}


def test_changes_wake_waiting_thread_and_reads_do_not(cloud: Cloud, client: Client) -> None:
    while cloud.wait_for_change(0):
        pass
    client("ec2").describe_vpcs()
    assert not cloud.wait_for_change(0)
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(cloud.wait_for_change(60)))
    waiter.start()
    vpc = client("ec2").create_vpc(CidrBlock="10.250.0.0/16")["Vpc"]["VpcId"]
    waiter.join(60)
    assert woken == [True]
    client("ec2").delete_vpc(VpcId=vpc)


def test_console_output_is_what_the_host_printed(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    stacks.create(nodes(1))
    (instance,) = cloud.snapshot().instances
    assert "Output" not in client("ec2").get_console_output(InstanceId=instance.id)
    cloud.set_console_output(instance.id, "booting\n")
    assert client("ec2").get_console_output(InstanceId=instance.id, Latest=True)["Output"] == "booting\n"


def test_role_credentials_are_accepted(cloud: Cloud, client: Client, endpoint: str) -> None:
    allowed = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    client("iam").create_role(RoleName="nodes", AssumeRolePolicyDocument=trust)
    given = cloud.role_credentials("nodes", "i-0123456789abcdef0")
    assert given["Expiration"].endswith("Z")
    sts = connect(endpoint, "sts", key=given["AccessKeyId"], secret=given["SecretAccessKey"], token=given["Token"])
    assert sts.get_caller_identity()["Arn"].endswith(":assumed-role/nodes/i-0123456789abcdef0")


def test_unimplemented_action_is_reported_immediately(client: Client) -> None:
    with pytest.raises(ClientError, match="ec2:DescribeIpams") as caught:
        client("ec2").describe_ipams()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_path_unknown_to_moto_is_reported(client: Client) -> None:
    with pytest.raises(ClientError, match="The embedded cloud does not implement elasticfilesystem:") as caught:
        client("efs").describe_replication_configurations()
    assert caught.value.response["Error"]["Code"] == "InvalidAction"


def test_account_without_reservations_lists_none(client: Client) -> None:
    wanted = [{"Name": "capacity-reservation-id", "Values": ["cr-0123456789abcdef0"]}]
    assert client("ec2").describe_capacity_reservations(Filters=wanted)["CapacityReservations"] == []
    with pytest.raises(ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        client("ec2").describe_capacity_reservations(CapacityReservationIds=["cr-0123456789abcdef0"])


def test_unimplemented_service_is_reported_immediately(client: Client) -> None:
    with pytest.raises(ClientError, match="does not implement pricing:GetProducts") as caught:
        client("pricing").get_products(ServiceCode="AmazonEC2")
    assert caught.value.response["Error"]["Code"] == "InvalidAction"
    assert "no service has the host name pricing.us-east-1.amazonaws.com" in str(caught.value)


@pytest.mark.parametrize(
    ("service", "module", "method", "call"),
    [
        ("ec2", "moto.ec2.models.EC2Backend", "describe_vpcs", lambda c: c.describe_vpcs()),
        ("ssm", "moto.ssm.models.SimpleSystemManagerBackend", "get_parameter", lambda c: c.get_parameter(Name="/x")),
        ("iam", "moto.iam.models.IAMBackend", "list_roles", lambda c: c.list_roles()),
    ],
)
def test_internal_error_is_not_reported_as_5xx(
    client: Client, monkeypatch: pytest.MonkeyPatch, service: str, module: str, method: str, call: Any
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(f"{module}.{method}", fail, raising=False)
    with pytest.raises(ClientError, match=r"InternalFailure.*RuntimeError: out of order") as caught:
        call(client(service))
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_another_version_of_moto_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.9.9")
    with pytest.raises(WrongMotoError, match=rf"moto 9\.9\.9 is installed.*{corrections.MOTO_VERSION}"):
        corrections.apply()


def test_image_parameters_of_aws_are_known(client: Client) -> None:
    name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
    assert client("ssm").get_parameter(Name=name)["Parameter"]["Value"].startswith("ami-")


def test_failed_host_is_replaced_at_most_three_times(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(nodes(1))
    seen = []
    for _ in range(5):
        seen += [instance.id for instance in cloud.snapshot().instances]
        if cloud.snapshot().instances:
            cloud.instance_failed(seen[-1], "no memory left")
        cloud.wait_for_change(0)
    assert len(seen) == len(set(seen)) == 3


def test_hosts_that_die_after_boot_are_always_replaced(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(nodes(4))
    seen: set[str] = set()
    for _ in range(3):
        present = {instance.id for instance in cloud.snapshot().instances}
        assert len(present) == 4 and not present & seen
        seen |= present
        for id in present:
            cloud.instance_failed(id, "killed", has_run=True)
        cloud.wait_for_change(0)


@pytest.mark.parametrize("service", ["ec2", "cloudformation", "ssm", "autoscaling", "s3"])
def test_region_that_does_not_exist_is_rejected(endpoint: str, service: str) -> None:
    made = connect(endpoint, service, region="us-est-1")
    calls = {"ec2": "describe_instances", "cloudformation": "describe_stacks", "ssm": "describe_parameters",
             "autoscaling": "describe_auto_scaling_groups", "s3": "list_buckets"}  # fmt: skip
    with pytest.raises(ClientError, match="scoped to a valid region: us-est-1") as caught:
        getattr(made, calls[service])()
    assert caught.value.response["Error"]["Code"] in ("SignatureDoesNotMatch", "InvalidSignatureException")


def test_stack_is_visible_only_in_its_region(endpoint: str, client: Client, stacks: Stacks) -> None:
    home = stacks.create({"Queue": resource("SQS::Queue")})
    elsewhere = connect(endpoint, "cloudformation", region="eu-west-1")
    assert elsewhere.describe_stacks()["Stacks"] == []
    with pytest.raises(ClientError, match="does not exist"):
        elsewhere.describe_stacks(StackName=home)
    with pytest.raises(ClientError, match="only supports stacks in us-east-1, not in eu-west-1"):
        elsewhere.create_stack(StackName="other", TemplateBody="{}")
    assert client("cloudformation").describe_stacks(StackName=home)["Stacks"]
