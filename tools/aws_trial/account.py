"""What a trial reads of the account beside the tasks: the stack's events, the groups' activities, what is left."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import Aws, aws_errors
from cluster.errors import DeepcdkError
from tools.aws_trial.observation import Resource, collapsed
from tools.aws_trial.plan import TAG

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import FilterTypeDef

_HASHES: Final = re.compile(r"[0-9A-F]{8,}")
_GONE: Final = ("terminated", "shutting-down", "deleted", "deleting")


def stack_id(aws: Aws, name: str) -> str:
    """Return the id of the stack, with which its events can be read after its deletion; "" where there is none."""
    from cluster.aws.stack import describe_stack

    found = describe_stack(aws, name)
    return str(found["StackId"]) if found else ""


def read_events(aws: Aws, stack: str) -> Sequence[Mapping[str, Any]]:
    """Return all events of a stack, oldest first."""
    with aws_errors("reading the stack's events"):
        pages = aws.client("cloudformation").get_paginator("describe_stack_events").paginate(StackName=stack)
        return [event for page in pages for event in page["StackEvents"]][::-1]


def parse_events(events: Iterable[Mapping[str, Any]], clean: Callable[[str], str]) -> tuple[Resource, ...]:
    """Return the way of each resource through the creation and the deletion, from the events, oldest first.

    The stack's own events are those of the type AWS::CloudFormation::Stack. An update's events are left out.
    Logical ids that the CDK makes with the stack's name end in hashes of it, which are left out too.
    """
    ways: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for event in events:
        phase = {"CREATE": "create", "DELETE": "delete"}.get(str(event["ResourceStatus"]).partition("_")[0])
        if phase:
            kind = event["ResourceType"]
            logical_id = (
                "STACK" if kind == "AWS::CloudFormation::Stack" else _unhashed(event["LogicalResourceId"], clean)
            )
            ways.setdefault((phase, logical_id, kind), []).append(event)
    return tuple(
        Resource(
            phase=phase,
            logical_id=logical_id,
            type=kind,
            states=collapsed(str(event["ResourceStatus"]) for event in way),
            seconds=round((way[-1]["Timestamp"] - way[0]["Timestamp"]).total_seconds(), 1),
            reasons=tuple(
                clean(str(event.get("ResourceStatusReason", "")))
                for event in way
                if str(event["ResourceStatus"]).endswith("FAILED")
            ),
        )
        for (phase, logical_id, kind), way in sorted(ways.items())
    )


def _unhashed(logical_id: str, clean: Callable[[str], str]) -> str:
    cleaned = clean(logical_id)
    return cleaned if cleaned == logical_id else _HASHES.sub("HASH", cleaned)


def read_group_facts(aws: Aws, groups: Sequence[str], clean: Callable[[str], str]) -> dict[str, str]:
    """Return the states of the groups' instances and the groups' activities, each as one text.

    The order of instances within a group tells nothing and is left out.
    """
    client, found = aws.client("autoscaling"), {}
    with aws_errors("reading the Auto Scaling groups"):
        for number, group in enumerate(groups):
            described = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
            instances = described[0]["Instances"] if described else []
            states = sorted(f"{each['LifecycleState']} {each['HealthStatus']}" for each in instances)
            name = ("workers", "master")[number]
            found[f"instances of the {name}' group"] = ", ".join(states)
            activities = client.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
            texts = sorted(f"{clean(each.get('Description', ''))} {each['StatusCode']}" for each in activities)
            found[f"activities of the {name}' group"] = "; ".join(texts)
    return found


def now() -> str:
    """Return the time, UTC, to the minute."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def find_left(aws: Aws, name: str, resources: Sequence[tuple[str, str]]) -> list[str]:
    """Return what is left of a trial after its destruction, a line each; an empty list says that nothing costs money.

    It is asked of the services themselves, by the trial's tag, and by id for the bucket, which has no such search;
    `resources` are the types and physical ids that the stack had. What could not be asked is a line too.
    """
    searches: tuple[tuple[str, Callable[[], list[str]]], ...] = (
        ("EC2 instances", lambda: _instances(aws, name)),
        ("volumes", lambda: _tagged(aws, name, "describe_volumes", "Volumes", "VolumeId", "State")),
        ("NAT gateways", lambda: _nat_gateways(aws, name)),
        ("Elastic IP addresses", lambda: _tagged(aws, name, "describe_addresses", "Addresses", "AllocationId", "")),
        ("VPCs", lambda: _tagged(aws, name, "describe_vpcs", "Vpcs", "VpcId", "State")),
        ("network interfaces", lambda: _interfaces(aws, name)),
        ("file systems", lambda: _file_systems(aws, name)),
        ("buckets", lambda: _buckets(aws, resources)),
        ("key pairs", lambda: _key_pairs(aws, name)),
        ("stack", lambda: _stack(aws, name)),
    )
    return [line for what, search in searches for line in _asked(what, search)]


def _asked(what: str, search: Callable[[], list[str]]) -> list[str]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return search()
    except (BotoCoreError, ClientError, DeepcdkError) as error:
        return [f"{what}: could not be asked ({error})"]


def _filter(name: str) -> list[FilterTypeDef]:
    return [{"Name": f"tag:{TAG}", "Values": [name]}]


def _tagged(aws: Aws, name: str, operation: str, key: str, id_key: str, state_key: str) -> list[str]:
    answer = getattr(aws.client("ec2"), operation)(Filters=_filter(name))
    return [
        f"{each[id_key]} {each.get(state_key, '')}".strip() for each in answer[key] if each.get(state_key) not in _GONE
    ]


def _instances(aws: Aws, name: str) -> list[str]:
    pages = aws.client("ec2").get_paginator("describe_instances").paginate(Filters=_filter(name))
    found = [each for page in pages for reservation in page["Reservations"] for each in reservation["Instances"]]
    return [
        f"{each['InstanceId']} {each['InstanceType']} {each['State']['Name']}"
        for each in found
        if each["State"]["Name"] not in _GONE
    ]


def _nat_gateways(aws: Aws, name: str) -> list[str]:
    found = aws.client("ec2").describe_nat_gateways(Filters=_filter(name))["NatGateways"]
    return [f"{each['NatGatewayId']} {each['State']}" for each in found if each["State"] not in _GONE]


def _interfaces(aws: Aws, name: str) -> list[str]:
    found = aws.client("ec2").describe_network_interfaces(Filters=_filter(name))["NetworkInterfaces"]
    return [f"{each['NetworkInterfaceId']} {each['Status']}" for each in found]


def _file_systems(aws: Aws, name: str) -> list[str]:
    pages = aws.client("efs").get_paginator("describe_file_systems").paginate()
    found = [each for page in pages for each in page["FileSystems"]]
    mine = [each for each in found if {"Key": TAG, "Value": name} in [dict(tag) for tag in each["Tags"]]]
    return [f"{each['FileSystemId']} {each['LifeCycleState']}" for each in mine if each["LifeCycleState"] not in _GONE]


def _buckets(aws: Aws, resources: Sequence[tuple[str, str]]) -> list[str]:
    from botocore.exceptions import ClientError

    left = []
    for bucket in [physical_id for kind, physical_id in resources if kind == "AWS::S3::Bucket"]:
        try:
            aws.client("s3").head_bucket(Bucket=bucket)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchBucket"):
                continue
            raise
        left.append(f"bucket {bucket}")
    return left


def _key_pairs(aws: Aws, name: str) -> list[str]:
    found = aws.client("ec2").describe_key_pairs(Filters=[{"Name": "key-name", "Values": [name]}])["KeyPairs"]
    return [f"key pair {each['KeyName']}" for each in found]


def _stack(aws: Aws, name: str) -> list[str]:
    from cluster.aws.stack import describe_stack

    found = describe_stack(aws, name)
    return (
        [] if found is None or found["StackStatus"] == "DELETE_COMPLETE" else [f"stack {name} {found['StackStatus']}"]
    )


def read_resources(aws: Aws, stack: str) -> list[tuple[str, str]]:
    """Return type and physical id of each resource of a stack."""
    with aws_errors("listing the stack's resources"):
        pages = aws.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
        found = [each for page in pages for each in page["StackResourceSummaries"]]
    return [(each["ResourceType"], each.get("PhysicalResourceId", "")) for each in found]
