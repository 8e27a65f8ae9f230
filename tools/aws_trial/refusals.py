"""Calls that AWS must refuse, made on purpose: its code and its words, to compare with the embedded cloud's.

None of them can change anything: each names something that does not exist, asks for what exists already, goes beyond a
bound, or is a dry run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from cluster.polling import poll
from tools.aws_trial.observation import Refusal
from tools.aws_trial.plan import MAX_WORKERS

if TYPE_CHECKING:
    from cluster.aws.client import Aws
    from cluster.aws.stack import Stack

NO_INSTANCE: Final = "i-00000000000000000"
_CHANGE_SET: Final = "trial-without-a-change"
CHANGE_SET_S: Final = 120.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The deployed cluster that the calls are made at."""

    aws: Aws
    stack: Stack
    resources: tuple[tuple[str, str], ...]
    """Type and physical id of each of its resources."""

    def first(self, kind: str) -> str:
        """Return the physical id of the first resource of a type. Raises LookupError."""
        for found, physical_id in self.resources:
            if found == kind:
                return physical_id
        raise LookupError(f"the stack has no {kind}")


def _instance_that_is_not_there(target: Target) -> None:
    target.aws.client("ec2").describe_instances(InstanceIds=[NO_INSTANCE])


def _console_of_no_instance(target: Target) -> None:
    target.aws.client("ec2").get_console_output(InstanceId=NO_INSTANCE)


def _malformed_instance_id(target: Target) -> None:
    target.aws.client("ec2").describe_instances(InstanceIds=["i-not-an-id"])


def _key_pair_that_is_not_there(target: Target) -> None:
    target.aws.client("ec2").describe_key_pairs(KeyNames=[f"{target.stack.name}-missing"])


def _key_pair_twice(target: Target) -> None:
    ec2, name = target.aws.client("ec2"), target.stack.name
    (pair,) = ec2.describe_key_pairs(KeyNames=[name], IncludePublicKey=True)["KeyPairs"]
    ec2.import_key_pair(KeyName=name, PublicKeyMaterial=pair["PublicKey"])


def _rule_twice(target: Target) -> None:
    """Repeat the first rule that names a port and a network or group."""
    ec2 = target.aws.client("ec2")
    groups = [physical_id for kind, physical_id in target.resources if kind == "AWS::EC2::SecurityGroup"]
    for group in ec2.describe_security_groups(GroupIds=groups)["SecurityGroups"]:
        for rule in group["IpPermissions"]:
            again: dict[str, Any] = {"IpProtocol": rule["IpProtocol"], "FromPort": rule.get("FromPort", -1)}
            again["ToPort"] = rule.get("ToPort", -1)
            if rule["UserIdGroupPairs"]:
                again["UserIdGroupPairs"] = [{"GroupId": rule["UserIdGroupPairs"][0]["GroupId"]}]
            elif rule["IpRanges"]:
                again["IpRanges"] = [{"CidrIp": rule["IpRanges"][0]["CidrIp"]}]
            else:
                continue
            ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[again])  # type: ignore[list-item]
            return
    raise LookupError("the stack's security groups have no rule to repeat")


def _reserved_tag(target: Target) -> None:
    vpc = target.first("AWS::EC2::VPC")
    target.aws.client("ec2").create_tags(Resources=[vpc], Tags=[{"Key": "aws:trial", "Value": "x"}])


def _dry_run(target: Target) -> None:
    template = target.first("AWS::EC2::LaunchTemplate")
    subnet = target.first("AWS::EC2::Subnet")
    target.aws.client("ec2").run_instances(
        LaunchTemplate={"LaunchTemplateId": template}, SubnetId=subnet, MinCount=1, MaxCount=1, DryRun=True
    )


def _size_beyond_the_maximum(target: Target) -> None:
    target.aws.client("autoscaling").set_desired_capacity(
        AutoScalingGroupName=target.stack.worker_group, DesiredCapacity=MAX_WORKERS + 1
    )


def _end_of_a_stranger(target: Target) -> None:
    target.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=NO_INSTANCE, ShouldDecrementDesiredCapacity=False
    )


def _stack_that_is_not_there(target: Target) -> None:
    target.aws.client("cloudformation").describe_stacks(StackName=f"{target.stack.name}-missing")


def _change_without_a_change(target: Target) -> None:
    """Make a change set of the deployed template: it fails, which DescribeChangeSet tells. It is deleted."""
    client, name = target.aws.client("cloudformation"), target.stack.name
    described = client.describe_stacks(StackName=name)["Stacks"][0]
    parameters = [
        {"ParameterKey": each["ParameterKey"], "UsePreviousValue": True} for each in described.get("Parameters", [])
    ]
    made = client.create_change_set(
        StackName=name,
        ChangeSetName=_CHANGE_SET,
        UsePreviousTemplate=True,
        Parameters=parameters,  # type: ignore[arg-type]
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
    )
    try:
        for _ in poll(CHANGE_SET_S, every_s=1.0):
            answer = client.describe_change_set(ChangeSetName=made["Id"])
            if answer["Status"] == "FAILED":
                raise _FailedChangeSetError(answer["StatusReason"])
            if answer["Status"] == "CREATE_COMPLETE":
                break
    finally:
        client.delete_change_set(ChangeSetName=made["Id"])


def _object_that_is_not_there(target: Target) -> None:
    target.aws.client("s3").get_object(Bucket=target.stack.bucket, Key="trial/missing")


def _file_system_that_is_not_there(target: Target) -> None:
    target.aws.client("efs").describe_mount_targets(FileSystemId="fs-00000000000000000")


class _FailedChangeSetError(Exception):
    """Report a change set that failed, in the words of its StatusReason."""


CALLS: Final[Mapping[str, Callable[[Target], None]]] = {
    "an instance that is not there": _instance_that_is_not_there,
    "the console of an instance that is not there": _console_of_no_instance,
    "a malformed instance id": _malformed_instance_id,
    "a key pair that is not there": _key_pair_that_is_not_there,
    "a key pair imported twice": _key_pair_twice,
    "a security group's rule twice": _rule_twice,
    "a tag whose key begins with aws:": _reserved_tag,
    "a dry run of a launch template": _dry_run,
    "a size beyond the group's maximum": _size_beyond_the_maximum,
    "the end of an instance of no group": _end_of_a_stranger,
    "a stack that is not there": _stack_that_is_not_there,
    "a change set without a change": _change_without_a_change,
    "an object that is not there": _object_that_is_not_there,
    "the mount targets of a file system that is not there": _file_system_that_is_not_there,
}


def observe(target: Target, clean: Callable[[str], str]) -> Iterator[Refusal]:
    """Make each call and yield how it was answered; a call that was not refused has no code."""
    from botocore.exceptions import BotoCoreError, ClientError

    for name, call in CALLS.items():
        code, message = "", ""
        try:
            call(target)
        except ClientError as error:
            told: Mapping[str, Any] = error.response.get("Error", {})
            code, message = str(told.get("Code", "")), clean(str(told.get("Message", "")))
        except _FailedChangeSetError as error:
            code, message = "FAILED", clean(str(error))
        except (BotoCoreError, LookupError) as error:
            code, message = type(error).__name__, clean(str(error))
        yield Refusal(name=name, code=code, message=message)
