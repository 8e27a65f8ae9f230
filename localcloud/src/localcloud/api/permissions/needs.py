"""The permissions that a call requires: actions on resources, including implied actions of other services.

Actions are from the service authorization reference. Implied actions are from the user guides: passing a role, tagging
a created resource, using the key of an encrypted object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

from localcloud.api.permissions import s3_actions
from localcloud.api.permissions.known_condition_keys import Context
from localcloud.api.permissions.request import Call
from localcloud.api.permissions.resource_arns import Resources, action, values
from localcloud.snapshot import REGION

# Operations whose actions have other names.
_ACTIONS: Final = {
    ("budgets", "CreateBudget"): ("ModifyBudget",),
    ("budgets", "DeleteBudget"): ("ModifyBudget",),
    ("budgets", "UpdateBudget"): ("ModifyBudget",),
    ("budgets", "DescribeBudget"): ("ViewBudget",),
    ("budgets", "DescribeBudgets"): ("ViewBudget",),
    ("budgets", "DescribeNotificationsForBudget"): ("ViewBudget",),
    ("budgets", "DescribeSubscribersForNotification"): ("ViewBudget",),
    ("kms", "ReEncrypt"): ("ReEncryptFrom", "ReEncryptTo"),
    ("sns", "PublishBatch"): ("Publish",),
    ("sqs", "ChangeMessageVisibilityBatch"): ("ChangeMessageVisibility",),
    ("sqs", "DeleteMessageBatch"): ("DeleteMessage",),
    ("sqs", "SendMessageBatch"): ("SendMessage",),
}
# Operations that pass a role to a service: the parameter with the role's name or ARN, and the service.
_PASSED: Final = {
    ("cloudformation", "CreateChangeSet"): ("RoleARN", "cloudformation.amazonaws.com"),
    ("cloudformation", "CreateStack"): ("RoleARN", "cloudformation.amazonaws.com"),
    ("cloudformation", "DeleteStack"): ("RoleARN", "cloudformation.amazonaws.com"),
    ("cloudformation", "UpdateStack"): ("RoleARN", "cloudformation.amazonaws.com"),
    ("ec2", "CreateFlowLogs"): ("DeliverLogsPermissionArn", "vpc-flow-logs.amazonaws.com"),
    ("iam", "AddRoleToInstanceProfile"): ("RoleName", "ec2.amazonaws.com"),
}
_PROFILES: Final = {
    ("ec2", "AssociateIamInstanceProfile"),
    ("ec2", "ReplaceIamInstanceProfileAssociation"),
    ("ec2", "RunInstances"),
}
_S3_KEY: Final = "aws:kms"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Need:
    """A required action on a resource."""

    action: str
    """With its service: `s3:PutObject`."""
    resource: str
    """ARN, or * for an action without resources."""
    context: Context = dataclasses.field(default_factory=dict)
    """Condition keys of this requirement only."""


class Needs:
    """Determines the permissions that calls require."""

    def __init__(self, resources: Resources, backend: Callable[[str], Any]) -> None:
        self._resources, self._backend = resources, backend

    def of(self, call: Call) -> list[Need]:
        """Return the permissions that a call requires. All of them must be allowed.

        Raises UndecidableError for an operation that AWS's reference lacks, or if the call's resources cannot be found.
        """
        if call.service == "s3":
            return list(self._of_s3(call))
        return [*self._own(call), *self._passed_roles(call), *self._tags(call)]

    def _own(self, call: Call) -> Iterator[Need]:
        """Yield the permissions for the operation itself."""
        for name in _ACTIONS.get((call.service, call.operation), (call.operation,)):
            known = action(call.service, name)
            for arn in self._resources.of(call, known):
                yield Need(action=known.name, resource=arn, context=self._tags_of(arn))

    def _tags_of(self, arn: str) -> Context:
        """Return the tags of an EC2 resource or an Auto Scaling group as condition keys; none for other resources."""
        service, last = arn.split(":")[2:3], arn.rpartition("/")[2]
        if service == ["ec2"]:
            tags = dict(self._backend("ec2").tags.get(last, {}))
            prefixes = ("aws", "ec2")
        elif service == ["autoscaling"]:
            group = self._backend("autoscaling").autoscaling_groups.get(last)
            tags = {each["Key"]: each.get("Value") or "" for each in (group.tags if group else ())}
            prefixes = ("aws", "autoscaling")
        else:
            return {}
        return {f"{prefix}:ResourceTag/{key}": str(value) for prefix in prefixes for key, value in tags.items()}

    def _passed_roles(self, call: Call) -> Iterator[Need]:
        """Yield the permissions to pass roles to services."""
        where, service = _PASSED.get((call.service, call.operation), ("", ""))
        for name in values(call.params, where) if where else ():
            yield self._pass(name, service)
        if (call.service, call.operation) in _PROFILES:
            for name in values(call.params, "IamInstanceProfile.Name", "IamInstanceProfile.Arn"):
                for role in self._roles_in(name):
                    yield self._pass(role, "ec2.amazonaws.com")

    def _pass(self, role: str, service: str) -> Need:
        roles = {each.name: each.arn for each in self._backend("iam").roles.values()}
        arn = role if role.startswith("arn:") else roles.get(role, self._resources.arn("iam", "role", role))
        return Need(action="iam:PassRole", resource=arn, context={"iam:PassedToService": service})

    def _roles_in(self, profile: str) -> list[str]:
        found = self._backend("iam").instance_profiles.values()
        return [role.name for each in found if profile in (each.name, each.arn) for role in each.roles]

    def _tags(self, call: Call) -> Iterator[Need]:
        """Yield the permissions for tagging a resource of EC2 while creating it."""
        if call.service != "ec2":
            return
        for each in call.params.get("TagSpecifications") or ():
            kind = str(each.get("ResourceType", "*"))
            tags = {str(tag.get("Key")): str(tag.get("Value", "")) for tag in each.get("Tags") or ()}
            context: Context = {"ec2:CreateAction": call.operation, "aws:TagKeys": list(tags)}
            context |= {f"aws:RequestTag/{key}": value for key, value in tags.items()}
            yield Need(action="ec2:CreateTags", resource=self._resources.arn("ec2", kind), context=context)

    def _of_s3(self, call: Call) -> Iterator[Need]:
        for need in s3_actions.needs(call):
            yield Need(action=action("s3", need.action).name, resource=need.arn)
        bucket, key = str(call.params.get("Bucket", "")), call.params.get("Key")
        used = self._key(bucket, key, call)
        for each in s3_actions.key_actions(call.operation) if used else ():
            yield self._through_s3(each, used)
        if "CopySource" in call.params:
            need = s3_actions.source(call.params)
            if source_key := self._key_of_object(need.bucket, str(need.key)):
                yield self._through_s3("Decrypt", source_key)

    def _through_s3(self, name: str, key: str) -> Need:
        """Return the permission to use a KMS key through S3."""
        return Need(
            action=f"kms:{name}",
            resource=self._resources.key(key),
            context={"kms:ViaService": f"s3.{REGION}.amazonaws.com"},
        )

    def _key(self, bucket: str, key: Any, call: Call) -> str:
        """Return the KMS key of an operation: the existing object's, the requested one, or the bucket's default.

        "" if the operation uses none.
        """
        if call.operation in ("GetObject", "HeadObject", "GetObjectAttributes"):
            return self._key_of_object(bucket, str(key))
        if call.params.get("ServerSideEncryption"):
            chosen = call.params["ServerSideEncryption"] == _S3_KEY
            return str(call.params.get("SSEKMSKeyId") or self._key_of_bucket(bucket)) if chosen else ""
        return self._key_of_bucket(bucket)

    def _key_of_object(self, bucket: str, key: str) -> str:
        found = self._backend("s3").buckets.get(bucket)
        stored = found.keys.get(key) if found is not None else None
        return str(stored.kms_key_id or "") if stored is not None and stored.encryption == _S3_KEY else ""

    def _key_of_bucket(self, bucket: str) -> str:
        found = self._backend("s3").buckets.get(bucket)
        rule = ((found.encryption or {}) if found is not None else {}).get("Rule", {})
        default = (rule[0] if isinstance(rule, list) else rule).get("ApplyServerSideEncryptionByDefault", {})
        return str(default.get("KMSMasterKeyID", "")) if default.get("SSEAlgorithm") == _S3_KEY else ""
