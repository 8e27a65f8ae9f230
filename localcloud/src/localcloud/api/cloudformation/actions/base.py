"""Common code of CloudFormation's actions: parameters, templates, waiting, and the form of responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlparse

from botocore.exceptions import ClientError
from moto.core.responses import BaseResponse

from localcloud.api.cloudformation.account import Account
from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.operations import Operation
from localcloud.api.cloudformation.stacks import ChangeSet, Resource, Stack, Target, now
from localcloud.api.loopback import acting_as
from localcloud.api.permissions.caller import Caller

# A response is delayed up to this time while an operation of the stack runs. The CDK CLI polls only every five seconds,
# and most operations take less than one. Other clients get immediate responses, as from AWS.
_HOLD_S = 5.0
_CLI = "aws-cdk"
_LARGEST_BYTES = 1_000_000
"""Maximum size of a template in S3."""

_UPDATABLE = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "CREATE_FAILED", "UPDATE_FAILED")


class Actions(BaseResponse):
    """Base of the API's actions on the stacks of one account."""

    def __init__(self, account: Account, caller: Caller | None) -> None:
        super().__init__(service_name="cloudformation")
        self.automated_parameter_parsing = True
        self._account = account
        self._caller = caller

    def _begin(self, stack: Stack, target: Target, executed: ChangeSet | None = None) -> None:
        """Start to create a stack, or to update a stack that has a target already, in the background.

        The stack's available change sets become obsolete. `executed`: the change set that causes the operation. Its
        execution status becomes the result. A request of the CDK CLI waits for the result, at most 5 s. Raises
        ValidationError if another operation on the stack is in progress, or if the stack's role cannot be assumed.
        """
        account = self._account
        stack.actor = account.actor(stack.role_arn, self._caller)
        with account.condition:
            self._refuse_while_busy(stack)
            for each in account.change_sets_of(stack):
                if each.execution_status == "AVAILABLE":
                    each.execution_status = "OBSOLETE"
            former = stack.target
            stack.target = target
            stack.token = self._text("ClientRequestToken")
            if former is not None:
                stack.updated = now()
            stack.set_status("CREATE_IN_PROGRESS" if former is None else "UPDATE_IN_PROGRESS", "User Initiated")
        operation = Operation(account, stack)
        run: Callable[[], None] = operation.create if former is None else lambda: operation.update(former)

        def run_and_note() -> None:
            try:
                run()
            finally:
                if executed is not None:
                    done = stack.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
                    executed.execution_status = "EXECUTE_COMPLETE" if done else "EXECUTE_FAILED"

        operation.start(run_and_note)
        self._hold(stack)

    def _text(self, key: str) -> str:
        """Return a parameter of the request as text, or ""."""
        return str(self._get_param(key) or "")

    def _read_target(self, stack: Stack) -> Target:
        """Check the request's tags, template and parameters; return the stack's new desired state.

        SSM parameters are read with the permissions of the role in the request, else of the stack's role, else of the
        caller. Raises FormationError.
        """
        tags = self._get_param("Tags")
        if any(str(tag["Key"]).lower().startswith("aws:") for tag in tags or ()):
            raise ValidationError("aws: prefixed tag key names are not allowed for external use.")
        body = self._body(stack)
        with acting_as(self._account.actor(self._text("RoleARN") or stack.role_arn, self._caller)):
            return self._account.target(
                stack,
                body,
                self._get_param("Parameters", []),
                {tag["Key"]: tag["Value"] for tag in tags} if tags else None,
                self._get_param("Capabilities", []),
            )

    def _body(self, stack: Stack) -> str:
        """Return the template's text, from the request or from S3; with UsePreviousTemplate, the stack's template.

        S3 is read with the caller's permissions. Raises ValidationError if there is no template, if its object in S3
        cannot be read, or if the object is larger than 1 MB.
        """
        if self._get_bool_param("UsePreviousTemplate", False) and stack.target is not None:
            return stack.target.body
        body, url = self._text("TemplateBody"), self._text("TemplateURL")
        if body:
            return body
        if not url:
            raise ValidationError("Either Template URL or Template Body must be specified.")
        bucket, key = bucket_and_key(url)
        try:
            with acting_as(self._account.actor("", self._caller)):
                answer = self._account.aws.client("s3").get_object(Bucket=bucket, Key=key)
        except ClientError as error:
            raise ValidationError(f"S3 error: {error.response['Error'].get('Message')} ({url})") from None
        content: bytes = answer["Body"].read()
        if len(content) > _LARGEST_BYTES:
            raise ValidationError(f"Template may not exceed {_LARGEST_BYTES} bytes in size.")
        return content.decode()

    def _hold(self, stack: Stack) -> None:
        """If the request is the CDK CLI's, wait until the stack's operation is complete, at most 5 s."""
        if _CLI in str(self.headers.get("User-Agent", "")):
            with self._account.condition:
                self._account.condition.wait_for(lambda: not stack.busy, timeout=_HOLD_S)

    def _refuse_while_busy(self, stack: Stack) -> None:
        if stack.busy:
            raise ValidationError(f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")

    def _refuse_unless_updatable(self, stack: Stack) -> None:
        if stack.target is not None and stack.status not in _UPDATABLE:
            raise ValidationError(f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")


def bucket_and_key(url: str) -> tuple[str, str]:
    """Return the bucket and the key in an object's URL.

    The bucket is the first part of the path, or on *.amazonaws.com the part of the host name before `.s3`.
    """
    parts = urlparse(url)
    host, path = parts.hostname or "", unquote(parts.path.lstrip("/"))
    if host.endswith(".amazonaws.com") and not host.startswith("s3"):
        return host.split(".s3", 1)[0], path
    bucket, _, key = path.partition("/")
    return bucket, key


def show_stack(stack: Stack) -> dict[str, Any]:
    """Return a stack in the form of DescribeStacks."""
    target = stack.target
    return {
        "StackId": stack.stack_id,
        "StackName": stack.name,
        "ChangeSetId": stack.change_set_id or None,
        "Description": target.template.get("Description") if target else None,
        "Parameters": show_parameters(target) if target else [],
        "CreationTime": stack.created,
        "LastUpdatedTime": stack.updated,
        "DeletionTime": stack.deleted,
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason or None,
        "DisableRollback": stack.disable_rollback,
        "NotificationARNs": [],
        "Capabilities": stack.capabilities,
        "Outputs": stack.outputs,
        "RoleARN": stack.role_arn or None,
        "Tags": show_tags(target) if target else [],
        "EnableTerminationProtection": stack.termination_protection,
    }


def show_parameters(target: Target) -> list[dict[str, Any]]:
    """Return a target's parameters in the form of DescribeStacks, with both values of a NoEcho parameter masked.

    A parameter with an SSM type also has the value from the SSM parameter store, as ResolvedValue.
    """
    found = []
    for parameter in target.parameters.values():
        shown = {"ParameterKey": parameter.key, "ParameterValue": parameter.given}
        if parameter.stored:
            value = parameter.value
            shown["ResolvedValue"] = ",".join(value) if isinstance(value, list) else str(value)
        if parameter.secret:
            shown |= {name: "****" for name in shown if name != "ParameterKey"}
        found.append(shown)
    return found


def show_tags(target: Target) -> list[dict[str, str]]:
    """Return a target's tags in the API's form."""
    return [{"Key": key, "Value": value} for key, value in target.tags.items()]


def sorted_resources(stack: Stack) -> list[Resource]:
    """Return a stack's resources, sorted by logical id."""
    return sorted(stack.resources.values(), key=lambda each: each.logical_id)


def show_resource(stack: Stack, resource: Resource) -> dict[str, Any]:
    """Return a resource in the API's form. It contains the time of the last change under both names that AWS uses."""
    return {
        "StackName": stack.name,
        "StackId": stack.stack_id,
        "LogicalResourceId": resource.logical_id,
        "PhysicalResourceId": resource.physical_id,
        "ResourceType": resource.type,
        "Timestamp": resource.changed,
        "LastUpdatedTimestamp": resource.changed,
        "ResourceStatus": resource.status,
        "ResourceStatusReason": resource.reason or None,
    }
