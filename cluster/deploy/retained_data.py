"""The data of a stack that is kept after its destruction, and the data that is deleted with it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import entries
from cluster.aws.errors import aws_errors
from cluster.aws.stack import read_template
from cluster.deploy.cdk import CdkError
from cluster.deploy.change_effects import KINDS, noun
from cluster.errors import DeepcdkError

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ObjectIdentifierTypeDef

    from cluster.aws.client import Aws

MAX_DELETIONS: Final = 1000
"""Maximum number of objects that one S3 request may delete."""

BUCKET: Final = "AWS::S3::Bucket"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataResource:
    """A resource of a stack that contains data or is retained."""

    noun: str
    type: str
    physical_id: str
    kept: bool
    """Whether it is kept when the stack is deleted."""

    def __str__(self) -> str:
        """Return what the resource is, and its physical id, such as `file system fs-0123456789abcdef0`."""
        return f"{self.noun} {self.physical_id}"


def check_deletable(stack: str, description: Mapping[str, Any] | None) -> None:
    """Raise DeepcdkError for a stack that is protected or being changed, before anything in it is stopped or emptied.

    `description` is from DescribeStacks; None if there is no such stack. CloudFormation can delete a stack that is
    being created, but not one that is being changed otherwise.
    """
    status = str((description or {}).get("StackStatus", ""))
    if status.endswith("_IN_PROGRESS") and status.startswith(("UPDATE", "ROLLBACK")):
        raise DeepcdkError(
            f"stack {stack} is being changed, by `fab up` on this machine or another",
            where=f"CloudFormation ({status})",
            remedy="wait until the change has ended (`fab status`), then repeat the command; nothing was stopped or "
            "deleted",
        )
    if description is not None and description.get("EnableTerminationProtection"):
        raise DeepcdkError(
            f"stack {stack} has termination protection",
            where="termination_protection, as deployed last",
            remedy="remove the protection with `fab up --set termination_protection=false`, then repeat",
        )


def find(aws: Aws, stack: str) -> tuple[DataResource, ...]:
    """Return the resources of a deployed stack that contain data, kept or not, and others that its template retains.

    Raises AwsError.
    """
    template = read_template(aws, stack)
    with aws_errors(f"listing the resources of {stack}"):
        client = aws.client("cloudformation")
        there = entries(client, "list_stack_resources", "StackResourceSummaries", StackName=stack)
    return parse(template, there)


def parse(template: Mapping[str, Any], there: Sequence[Mapping[str, Any]]) -> tuple[DataResource, ...]:
    """Return the resources of a stack that contain data or that its template retains. Deleted resources are left out.

    `there` is the answer of ListStackResources.
    """
    declared = template.get("Resources", {})
    found = []
    for each in there:
        name, type_name = each["LogicalResourceId"], each["ResourceType"]
        physical_id = each.get("PhysicalResourceId") or ""
        if name not in declared or not physical_id or each["ResourceStatus"] == "DELETE_COMPLETE":
            continue
        kept = str(declared[name].get("DeletionPolicy", "Delete")).startswith("Retain")
        kind = KINDS.get(type_name)
        if kept or (kind is not None and kind.loss.endswith("DELETED")):
            found.append(DataResource(noun=noun(type_name), type=type_name, physical_id=physical_id, kept=kept))
    return tuple(found)


def describe_fate(resources: Sequence[DataResource]) -> str:
    """Return the end of a sentence on the data that is kept and the data that is deleted with a stack.

    Without resources, it is "it contains no data".
    """
    stays = [each.noun for each in resources if each.kept]
    goes = [each.noun for each in resources if not each.kept]
    parts = [f"its {' and '.join(stays)} {'is' if len(stays) == 1 else 'are'} kept"] if stays else []
    if goes:
        parts.append(
            f"ITS {' AND '.join(goes).upper()} {'IS' if len(goes) == 1 else 'ARE'} DELETED TOO, WITH ALL CONTENT"
        )
    return ", ".join(parts) or "it contains no data"


def describe_remains(resources: Sequence[DataResource], key_name: str, toolkit: str) -> list[str]:
    """Return lines on what was deleted, what remains after the destruction, and whether it costs money.

    `toolkit` is the name of the stack of the CDK's bootstrap.
    """
    kept = [each for each in resources if each.kept]
    lines = ["deleted: the nodes, the network and its NAT gateway; they no longer cost money"]
    lines += [f"kept: {each}; AWS bills it until you delete it" for each in kept]
    lines.append(
        f"kept: key pair {key_name} and the CDK's stack {toolkit}, for the next `fab up`. A key pair costs nothing, "
        "and the bucket of the stack contains only templates"
    )
    return lines


def empty_bucket(aws: Aws, bucket: str) -> int:
    """Delete all objects and versions in a bucket, so that CloudFormation can delete it. Return their number.

    Returns 0 if another `fab down` has removed the bucket in the meantime. Raises CdkError if an object cannot be
    deleted, and AwsError.
    """
    s3 = aws.client("s3")
    objects: list[ObjectIdentifierTypeDef] = []
    with aws_errors(f"emptying bucket {bucket}"), contextlib.suppress(s3.exceptions.NoSuchBucket):
        # List all of them first: a deletion between two pages could remove the start of the second page.
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            entries = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
            objects += [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in entries]
        for start in range(0, len(objects), MAX_DELETIONS):
            batch = objects[start : start + MAX_DELETIONS]
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})
            if answer.get("Errors"):
                first = answer["Errors"][0]
                raise CdkError(
                    f"object {first.get('Key')} cannot be deleted: {first.get('Message')}",
                    where=f"bucket {bucket}",
                    remedy="fix the cause, or delete the object in the S3 console, then repeat `fab down`",
                )
    return len(objects)
