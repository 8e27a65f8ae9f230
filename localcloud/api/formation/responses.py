"""The actions of CloudFormation's API."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlparse

from botocore.exceptions import ClientError
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, BaseResponse, EmptyResult

from localcloud.api.formation import changes, template
from localcloud.api.formation.account import Account
from localcloud.api.formation.errors import FormationError, ValidationError
from localcloud.api.formation.operations import Operation
from localcloud.api.formation.stacks import ChangeSet, Resource, Stack, Target, now
from localcloud.api.formation.supported import needed_capabilities

# How long a request that starts an operation is held while the operation is about to end. The CDK CLI looks again only
# every five seconds, and most operations are over in one.
_HOLD_START_S = 2.0
# The same for the CLI's own looks at a stack in progress.
_HOLD_LOOK_S = 5.0
_CLI = "aws-cdk"

_UNCHANGED = "The submitted information didn't contain changes. Submit different information to create a change set."
_UPDATABLE = (
    "CREATE_COMPLETE",
    "UPDATE_COMPLETE",
    "UPDATE_ROLLBACK_COMPLETE",
    "CREATE_FAILED",
    "UPDATE_FAILED",
)


class Responses(BaseResponse):
    """Answer requests with the stacks of one account."""

    def __init__(self, account: Account) -> None:
        super().__init__(service_name="cloudformation")
        self.automated_parameter_parsing = True
        self._account = account

    # Change sets.

    def create_change_set(self) -> ActionResult:
        """Describe a change, and make the stack's name known where it is to be created."""
        name, kind = self._text("ChangeSetName"), self._text("ChangeSetType") or "UPDATE"
        account = self._account
        stack = account.find(self._text("StackName"))
        fresh = stack is None
        if stack is not None and stack.target is None and kind == "UPDATE":
            raise ValidationError(f"Stack [{stack.name}] does not exist")
        if kind == "CREATE" and stack is not None and stack.target is not None:
            raise ValidationError(f"Stack [{stack.name}] already exists and cannot be created again with the changeSet [{name}].")
        if stack is None:
            if kind != "CREATE":
                raise ValidationError(f"Stack [{self._text('StackName')}] does not exist")
            stack = account.new_stack(self._text("StackName"))
        else:
            self._refuse_unless_updatable(stack)
        try:
            target = self._read_target(stack)
        except ServiceException:
            if fresh:
                account.stacks.pop(stack.stack_id)
            raise
        with account.condition:
            if fresh:
                stack.set_status("REVIEW_IN_PROGRESS", "User Initiated")
            change_set = self._change_set(name, kind, stack, target)
            account.change_sets[change_set.change_set_id] = change_set
        return ActionResult({"Id": change_set.change_set_id, "StackId": stack.stack_id})

    def _change_set(self, name: str, kind: str, stack: Stack, target: Target) -> ChangeSet:
        account = self._account
        arn = f"arn:aws:cloudformation:{account.region}:{account.account}:changeSet/{name}/{uuid.uuid4()}"
        found = changes.describe(stack, target, account.made_of(stack, target))
        change_set = ChangeSet(
            change_set_id=arn,
            name=name,
            stack=stack,
            kind=kind,
            target=target,
            changes=found,
            description=self._text("Description"),
            capabilities=self._get_param("Capabilities", []),
            role_arn=self._text("RoleARN"),
            disable_rollback=self._text("OnStackFailure") == "DO_NOTHING",
        )
        same = stack.target is not None and _same(stack.target, target)
        if same and stack.status not in ("CREATE_FAILED", "UPDATE_FAILED"):
            change_set.status, change_set.execution_status, change_set.reason = "FAILED", "UNAVAILABLE", _UNCHANGED
        return change_set

    def describe_change_set(self) -> ActionResult:
        """Show a change set."""
        each = self._find_change_set()
        return ActionResult(
            {
                "ChangeSetName": each.name,
                "ChangeSetId": each.change_set_id,
                "StackId": each.stack.stack_id,
                "StackName": each.stack.name,
                "Description": each.description or None,
                "Parameters": _parameters(each.target),
                "CreationTime": each.created,
                "ExecutionStatus": each.execution_status,
                "Status": each.status,
                "StatusReason": each.reason or None,
                "Capabilities": each.capabilities,
                "Tags": _tags(each.target),
                "Changes": each.changes,
            }
        )

    def list_change_sets(self) -> ActionResult:
        """List the change sets of a stack."""
        stack = self._account.get(self._text("StackName"))
        found = [each for each in self._account.change_sets.values() if each.stack is stack]
        return ActionResult(
            {
                "Summaries": [
                    {
                        "ChangeSetId": each.change_set_id,
                        "ChangeSetName": each.name,
                        "StackId": stack.stack_id,
                        "StackName": stack.name,
                        "Status": each.status,
                        "ExecutionStatus": each.execution_status,
                        "CreationTime": each.created,
                    }
                    for each in found
                ]
            }
        )

    def delete_change_set(self) -> ActionResult:
        """Forget a change set; that there is none is no error on AWS, where its stack exists."""
        try:
            each = self._find_change_set()
        except FormationError:
            return EmptyResult()
        with self._account.condition:
            self._account.change_sets.pop(each.change_set_id, None)
        return EmptyResult()

    def execute_change_set(self) -> ActionResult:
        """Start what a change set describes."""
        each = self._find_change_set()
        if each.execution_status != "AVAILABLE":
            raise FormationError(
                "InvalidChangeSetStatus",
                f"ChangeSet [{each.change_set_id}] cannot be executed in its current status of [{each.status}]",
            )
        stack = each.stack
        with self._account.condition:
            each.execution_status = "EXECUTE_COMPLETE"
            stack.change_set_id = each.change_set_id
            for other in [other for other in self._account.change_sets.values() if other.stack is stack]:
                self._account.change_sets.pop(other.change_set_id)
            stack.disable_rollback = each.disable_rollback or self._get_bool_param("DisableRollback", False)
            stack.role_arn = each.role_arn or stack.role_arn
            stack.capabilities = each.capabilities
        self._begin(stack, each.target)
        return EmptyResult()

    def _find_change_set(self) -> ChangeSet:
        name = self._text("ChangeSetName")
        if name in self._account.change_sets:
            return self._account.change_sets[name]
        stack_name = self._text("StackName")
        stack = self._account.find(stack_name) if stack_name else None
        if stack_name and stack is None:
            raise ValidationError(f"Stack [{stack_name}] does not exist")
        for each in reversed(self._account.change_sets.values()):
            if each.name == name and each.stack is stack:
                return each
        raise FormationError("ChangeSetNotFound", f"ChangeSet [{name}] does not exist")

    # Stacks.

    def create_stack(self) -> ActionResult:
        """Start the creation of a stack."""
        account, name = self._account, self._text("StackName")
        if account.find(name) is not None:
            raise FormationError("AlreadyExistsException", f"Stack [{name}] already exists")
        stack = account.new_stack(name)
        try:
            target = self._read_target(stack)
        except ServiceException:
            account.stacks.pop(stack.stack_id)
            raise
        stack.termination_protection = self._get_bool_param("EnableTerminationProtection", False)
        stack.disable_rollback = (
            self._get_bool_param("DisableRollback", False) or self._text("OnFailure") == "DO_NOTHING"
        )
        stack.capabilities = self._get_param("Capabilities", [])
        self._begin(stack, target)
        return ActionResult({"StackId": stack.stack_id})

    def update_stack(self) -> ActionResult:
        """Start the update of a stack."""
        stack = self._account.get(self._text("StackName"))
        if stack.target is None:
            raise ValidationError(f"Stack [{stack.name}] does not exist")
        self._refuse_unless_updatable(stack)
        target = self._read_target(stack)
        if _same(stack.target, target):
            raise ValidationError("No updates are to be performed.")
        stack.disable_rollback = self._get_bool_param("DisableRollback", False)
        stack.capabilities = self._get_param("Capabilities", []) or stack.capabilities
        self._begin(stack, target)
        return ActionResult({"StackId": stack.stack_id})

    def _begin(self, stack: Stack, target: Target) -> None:
        account = self._account
        with account.condition:
            self._refuse_while_busy(stack)
            former = stack.target
            stack.target = target
            stack.token = self._text("ClientRequestToken")
            if former is not None:
                stack.updated = now()
            stack.set_status("CREATE_IN_PROGRESS" if former is None else "UPDATE_IN_PROGRESS", "User Initiated")
        operation = Operation(account, stack)
        run: Callable[[], None] = operation.create if former is None else lambda: operation.update(former)
        operation.start(run)
        self._hold(stack, _HOLD_START_S)

    def delete_stack(self) -> ActionResult:
        """Start the deletion of a stack; that there is none is no error."""
        account = self._account
        stack = account.find(self._text("StackName"))
        if stack is None or stack.status == "DELETE_COMPLETE":
            return EmptyResult()
        if stack.termination_protection:
            raise ValidationError(f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled")
        importers = self._importers(stack)
        if importers:
            raise ValidationError(f"Cannot delete stack {stack.name}: its exports are in use by {', '.join(importers)}")
        retained: list[str] = self._get_param("RetainResources", [])
        with account.condition:
            self._refuse_while_busy(stack)
            stack.token = self._text("ClientRequestToken")
            stack.set_status("DELETE_IN_PROGRESS", "User Initiated")
        operation = Operation(account, stack)
        operation.start(lambda: operation.delete(retained))
        self._hold(stack, _HOLD_START_S)
        return EmptyResult()

    def _importers(self, stack: Stack) -> list[str]:
        names = {output["ExportName"] for output in stack.outputs if "ExportName" in output}
        return [
            other.name
            for other in self._account.live()
            if other is not stack and other.target is not None
            if any(each.get("Fn::ImportValue") in names for each in template.walk(dict(other.target.template)))
        ]

    def rollback_stack(self) -> ActionResult:
        """Refuse: a stack that failed without roll-back is to be updated or deleted here."""
        raise ValidationError("the embedded cloud does not roll a failed stack back later; deploy again, or destroy it")

    def continue_update_rollback(self) -> ActionResult:
        """Refuse: see rollback_stack."""
        return self.rollback_stack()

    def update_termination_protection(self) -> ActionResult:
        """Set or lift the protection against deletion."""
        stack = self._account.get(self._text("StackName"))
        stack.termination_protection = self._get_bool_param("EnableTerminationProtection", False)
        return ActionResult({"StackId": stack.stack_id})

    def describe_stacks(self) -> ActionResult:
        """Show one stack, or all that are not deleted."""
        account, name = self._account, self._text("StackName")
        if not name:
            return ActionResult({"Stacks": [_describe(stack) for stack in account.live()]})
        stack = account.get(name)
        if _CLI in str(self.headers.get("User-Agent", "")):
            self._hold(stack, _HOLD_LOOK_S)
        with account.condition:
            return ActionResult({"Stacks": [_describe(stack)]})

    def list_stacks(self) -> ActionResult:
        """List the stacks, deleted ones included."""
        wanted = self._get_param("StackStatusFilter", [])
        found = [stack for stack in self._account.stacks.values() if not wanted or stack.status in wanted]
        return ActionResult(
            {
                "StackSummaries": [
                    {
                        "StackId": stack.stack_id,
                        "StackName": stack.name,
                        "TemplateDescription": stack.target.template.get("Description") if stack.target else None,
                        "CreationTime": stack.created,
                        "LastUpdatedTime": stack.updated,
                        "DeletionTime": stack.deleted,
                        "StackStatus": stack.status,
                        "StackStatusReason": stack.reason or None,
                    }
                    for stack in found
                ]
            }
        )

    def describe_stack_events(self) -> ActionResult:
        """Show a stack's history, latest first."""
        stack = self._account.get(self._text("StackName"))
        with self._account.condition:
            events = [
                {
                    "StackId": stack.stack_id,
                    "StackName": stack.name,
                    "EventId": event.event_id,
                    "LogicalResourceId": event.logical_id,
                    "PhysicalResourceId": event.physical_id,
                    "ResourceType": event.type,
                    "Timestamp": event.timestamp,
                    "ResourceStatus": event.status,
                    "ResourceStatusReason": event.reason or None,
                    "ClientRequestToken": event.token or None,
                }
                for event in reversed(stack.events)
            ]
        return ActionResult({"StackEvents": events})

    def describe_stack_resources(self) -> ActionResult:
        """Show the resources of a stack, or one of them."""
        if self._text("PhysicalResourceId") and not self._text("StackName"):
            stack = self._holder_of(self._text("PhysicalResourceId"))
        else:
            stack = self._account.get(self._text("StackName"))
        name = self._text("LogicalResourceId")
        found = [each for each in _resources(stack) if not name or each.logical_id == name]
        return ActionResult({"StackResources": [_show(stack, each, "Timestamp") for each in found]})

    def _holder_of(self, physical_id: str) -> Stack:
        for stack in self._account.live():
            if any(each.physical_id == physical_id for each in stack.resources.values()):
                return stack
        raise ValidationError(f"Stack for {physical_id} does not exist")

    def describe_stack_resource(self) -> ActionResult:
        """Show one resource of a stack."""
        stack = self._account.get(self._text("StackName"))
        name = self._text("LogicalResourceId")
        for each in _resources(stack):
            if each.logical_id == name:
                return ActionResult({"StackResourceDetail": _show(stack, each, "LastUpdatedTimestamp")})
        raise ValidationError(f"Resource {name} does not exist for stack {stack.name}")

    def list_stack_resources(self) -> ActionResult:
        """List the resources of a stack."""
        stack = self._account.get(self._text("StackName"))
        found = [_show(stack, each, "LastUpdatedTimestamp") for each in _resources(stack)]
        return ActionResult({"StackResourceSummaries": found})

    def get_template(self) -> ActionResult:
        """Return the template that a stack was made from, as it was sent."""
        name = self._text("StackName")
        target = self._find_change_set().target if self._text("ChangeSetName") else self._account.get(name).target
        # A stack that only has a change set has no template yet, which is no error.
        body = target.body if target is not None else ""
        return ActionResult({"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]})

    def get_template_summary(self) -> ActionResult:
        """Return a template's parameters, types and capabilities."""
        name = self._text("StackName")
        if name:
            target = self._account.get(name).target
            if target is None:
                raise ValidationError("GetTemplateSummary cannot be called on REVIEW_IN_PROGRESS stacks.")
            document: Mapping[str, Any] = target.template
        else:
            document = template.parse(self._body(None))
        needed = needed_capabilities(document)
        return ActionResult(
            {
                "Parameters": _declared(document),
                "Description": document.get("Description"),
                "ResourceTypes": sorted({each["Type"] for each in document["Resources"].values()}),
                "Capabilities": needed,
                "CapabilitiesReason": f"The following resource(s) require capabilities: {needed}" if needed else None,
                "Version": document.get("AWSTemplateFormatVersion"),
            }
        )

    def validate_template(self) -> ActionResult:
        """Check that a template can be read."""
        document = template.parse(self._body(None))
        shown = [
            {key: each[key] for key in ("ParameterKey", "DefaultValue", "NoEcho", "Description")}
            for each in _declared(document)
        ]
        needed = needed_capabilities(document)
        return ActionResult({"Parameters": shown, "Description": document.get("Description"), "Capabilities": needed})

    def list_exports(self) -> ActionResult:
        """List the exports of all stacks."""
        found = [
            {"ExportingStackId": stack_id, "Name": name, "Value": value}
            for name, (value, stack_id) in self._account.exports().items()
        ]
        return ActionResult({"Exports": found})

    def signal_resource(self) -> ActionResult:
        """Take a signal that one instance of a resource is ready, or that it failed."""
        account = self._account
        name, unique_id, status = self._text("LogicalResourceId"), self._text("UniqueId"), self._text("Status")
        stack = account.get(self._text("StackName"))
        with account.condition:
            resource = stack.resources.get(name)
            if resource is None:
                raise ValidationError(f"Resource {name} does not exist for stack {stack.name}")
            if not resource.status.endswith("_IN_PROGRESS") or resource.status.startswith("DELETE"):
                raise ValidationError(f"Resource {name} is in {resource.status} state and cannot be signaled")
            if unique_id in resource.signals and status != "FAILURE":
                raise ValidationError(
                    f"Signal with ID {unique_id} for resource {name} already exists. "
                    "Signals may only be updated with a FAILURE status."
                )
            resource.signals[unique_id] = status
            stack.note(resource, resource.status, f"Received {status} signal with UniqueId {unique_id}")
            account.condition.notify_all()
        return EmptyResult()

    # What the actions share.

    def _text(self, key: str) -> str:
        return str(self._get_param(key) or "")

    def _read_target(self, stack: Stack) -> Target:
        tags = self._get_param("Tags")
        return self._account.target(
            stack,
            self._body(stack),
            self._get_param("Parameters", []),
            {tag["Key"]: tag["Value"] for tag in tags} if tags else None,
            self._get_param("Capabilities", []),
        )

    def _body(self, stack: Stack | None) -> str:
        """Return the template's text, from the request, from S3, or the stack's own."""
        if self._get_bool_param("UsePreviousTemplate", False) and stack is not None and stack.target is not None:
            return stack.target.body
        body, url = self._text("TemplateBody"), self._text("TemplateURL")
        if body:
            return body
        if not url:
            raise ValidationError("Either Template URL or Template Body must be specified.")
        bucket, key = bucket_and_key(url)
        try:
            answer = self._account.aws.client("s3").get_object(Bucket=bucket, Key=key)
        except ClientError as error:
            raise ValidationError(f"S3 error: {error.response['Error'].get('Message')} ({url})") from None
        text: str = answer["Body"].read().decode()
        return text

    def _hold(self, stack: Stack, timeout_s: float) -> None:
        """Wait a little for a stack's operation to end."""
        with self._account.condition:
            self._account.condition.wait_for(lambda: not stack.busy, timeout=timeout_s)

    def _refuse_while_busy(self, stack: Stack) -> None:
        if stack.busy:
            raise ValidationError(f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")

    def _refuse_unless_updatable(self, stack: Stack) -> None:
        if stack.target is not None and stack.status not in _UPDATABLE:
            raise ValidationError(f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")


def bucket_and_key(url: str) -> tuple[str, str]:
    """Split the address of an object: path style on any host, or the bucket's name before `.s3.`."""
    parts = urlparse(url)
    host, path = parts.hostname or "", unquote(parts.path.lstrip("/"))
    if host.endswith(".amazonaws.com") and not host.startswith("s3"):
        return host.split(".s3", 1)[0], path
    bucket, _, key = path.partition("/")
    return bucket, key


def _same(old: Target, new: Target) -> bool:
    return (
        old.template == new.template
        and {key: each.value for key, each in old.parameters.items()}
        == {key: each.value for key, each in new.parameters.items()}
        and old.tags == new.tags
    )


def _describe(stack: Stack) -> dict[str, Any]:
    target = stack.target
    return {
        "StackId": stack.stack_id,
        "StackName": stack.name,
        "ChangeSetId": stack.change_set_id or None,
        "Description": target.template.get("Description") if target else None,
        "Parameters": _parameters(target) if target else [],
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
        "Tags": _tags(target) if target else [],
        "EnableTerminationProtection": stack.termination_protection,
    }


def _parameters(target: Target) -> list[dict[str, Any]]:
    found = []
    for parameter in target.parameters.values():
        shown = {"ParameterKey": parameter.key, "ParameterValue": "****" if parameter.secret else parameter.given}
        if parameter.stored:
            value = parameter.value
            shown["ResolvedValue"] = ",".join(value) if isinstance(value, list) else str(value)
        found.append(shown)
    return found


def _declared(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "ParameterKey": key,
            "DefaultValue": str(each["Default"]) if "Default" in each else None,
            "ParameterType": each.get("Type", "String"),
            "NoEcho": str(each.get("NoEcho", False)).lower() == "true",
            "Description": each.get("Description"),
            "ParameterConstraints": {"AllowedValues": [str(value) for value in each.get("AllowedValues", [])]},
        }
        for key, each in document.get("Parameters", {}).items()
    ]


def _tags(target: Target) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in target.tags.items()]


def _resources(stack: Stack) -> list[Resource]:
    return sorted(stack.resources.values(), key=lambda each: each.logical_id)


def _show(stack: Stack, resource: Resource, time_key: str) -> dict[str, Any]:
    return {
        "StackName": stack.name,
        "StackId": stack.stack_id,
        "LogicalResourceId": resource.logical_id,
        "PhysicalResourceId": resource.physical_id,
        "ResourceType": resource.type,
        time_key: resource.changed,
        "ResourceStatus": resource.status,
        "ResourceStatusReason": resource.reason or None,
    }
