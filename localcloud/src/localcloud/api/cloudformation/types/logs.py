"""Resource type of CloudWatch Logs: log groups."""

from __future__ import annotations

from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.handlers import as_mapping, delete_with
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
)


def _create_group(context: Context, properties: Properties) -> Physical:
    logs = context.aws.client("logs")
    name = properties.get("LogGroupName") or context.name()
    if _has_group(logs, name):
        raise ResourceError(f"{name} already exists")
    tags = as_mapping(context.user_tags(properties.get("Tags")))
    logs.create_log_group(logGroupName=name, **({"tags": tags} if tags else {}))
    arn = f"arn:aws:logs:{context.region}:{context.account}:log-group:{name}:*"
    physical = Physical(id=name, attributes={"Arn": arn})
    context.report(physical)
    _set_retention(logs, name, properties)
    return physical


def _has_group(logs: Any, name: str) -> bool:
    found = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return any(group["logGroupName"] == name for group in found)


def _set_retention(logs: Any, name: str, properties: Properties) -> None:
    if "RetentionInDays" in properties:
        logs.put_retention_policy(logGroupName=name, retentionInDays=int(properties["RetentionInDays"]))
    else:
        logs.delete_retention_policy(logGroupName=name)


def _update_group(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    logs = context.aws.client("logs")
    _set_retention(logs, resource.id, new)
    before, after = (as_mapping(context.user_tags(each.get("Tags"))) for each in (old, new))
    gone = sorted(before.keys() - after.keys())
    if gone:
        logs.untag_log_group(logGroupName=resource.id, tags=gone)
    if after:
        logs.tag_log_group(logGroupName=resource.id, tags=after)
    return resource


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::Logs::LogGroup",
        rules={
            "LogGroupName": "unique",
        },
        named_by="LogGroupName",
        honoured=frozenset({"LogGroupName", "Tags"}),
        inert={
            "RetentionInDays": "it is kept and shown, but no embedded cloud lives for a day",
            "KmsKeyId": NOTHING_TO_ENCRYPT,
        },
        replaced_by=frozenset({"LogGroupName"}),
        attributes=frozenset({"Arn"}),
        create=_create_group,
        update=_update_group,
        delete=delete_with("logs", "delete_log_group", "logGroupName", gone=("ResourceNotFoundException",)),
    ),
)
