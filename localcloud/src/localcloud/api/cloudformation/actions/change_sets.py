"""The actions on change sets."""

from __future__ import annotations

import re
import uuid
from typing import Any, Final

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult

from localcloud.api.cloudformation import described_changes
from localcloud.api.cloudformation.actions.base import Actions, show_parameters, show_tags
from localcloud.api.cloudformation.early_validation import FAILED
from localcloud.api.cloudformation.errors import FormationError, ValidationError
from localcloud.api.cloudformation.stacks import ChangeSet, Stack, Target, same
from localcloud.snapshot import ACCOUNT, REGION

_NAME: Final = re.compile(r"[a-zA-Z][-a-zA-Z0-9]{0,127}")
_UNCHANGED = "The submitted information didn't contain changes. Submit different information to create a change set."


class ChangeSetActions(Actions):
    """Create, show, execute and delete change sets."""

    def create_change_set(self) -> ActionResult:
        """Create a change set. If its stack does not exist, register the stack as REVIEW_IN_PROGRESS.

        A change set of type UPDATE needs an existing stack. A rejected request registers no stack.
        """
        name, kind = self._text("ChangeSetName"), self._text("ChangeSetType") or "UPDATE"
        account = self._account
        if not _NAME.fullmatch(name):
            raise ValidationError(
                f"1 validation error detected: Value '{name}' at 'changeSetName' failed to satisfy constraint: Member "
                "must satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*"
            )
        with account.condition:
            stack = account.find(self._text("StackName"))
            self._refuse_unless_fitting(stack, name, kind)
            fresh = stack is None
            stack = stack or account.new_stack(self._text("StackName"))
        try:
            target = self._read_target(stack)
            with account.condition:
                self._refuse_unless_fitting(stack, name, kind)  # Another request may have come first meanwhile.
                change_set = self._change_set(name, stack, target)
                account.change_sets[change_set.change_set_id] = change_set
                if fresh:
                    stack.set_status("REVIEW_IN_PROGRESS", "User Initiated")
        except ServiceException:
            with account.condition:
                if fresh and stack.target is None and not account.change_sets_of(stack):
                    account.stacks.pop(stack.stack_id, None)
            raise
        return ActionResult({"Id": change_set.change_set_id, "StackId": stack.stack_id})

    def _refuse_unless_fitting(self, stack: Stack | None, name: str, kind: str) -> None:
        """Reject a change set whose kind (CREATE or UPDATE) does not fit the stack, or whose name is used.

        `stack` is None if it does not exist. UPDATE needs a stack that was created, CREATE a missing stack or one that
        only has change sets. A stack whose status does not allow updates is rejected too.
        """
        if kind == "UPDATE" and (stack is None or stack.target is None):
            raise ValidationError(f"Stack [{stack.name if stack else self._text('StackName')}] does not exist")
        if stack is None:
            return
        if kind == "CREATE" and stack.target is not None:
            raise ValidationError(
                f"Stack [{stack.name}] already exists and cannot be created again with the changeSet [{name}]."
            )
        self._refuse_unless_updatable(stack)
        if any(each.name == name and not each.executed for each in self._account.change_sets_of(stack)):
            raise FormationError("AlreadyExistsException", f"ChangeSet {name} already exists")

    def _change_set(self, name: str, stack: Stack, target: Target) -> ChangeSet:
        """Return a new change set of the request. It is FAILED if a property is invalid or nothing would change.

        After a failed operation on the stack, a change set without changes is allowed.
        """
        account = self._account
        arn = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:changeSet/{name}/{uuid.uuid4()}"
        found = described_changes.describe(stack, target, account.active_resources(stack, target))
        change_set = ChangeSet(
            change_set_id=arn,
            name=name,
            stack=stack,
            target=target,
            changes=found,
            description=self._text("Description"),
            capabilities=self._get_param("Capabilities", []),
            role_arn=self._text("RoleARN"),
            disable_rollback=self._text("OnStackFailure") == "DO_NOTHING",
        )
        change_set.findings = account.findings(stack, target)
        if change_set.findings:
            change_set.status, change_set.execution_status, change_set.reason = "FAILED", "UNAVAILABLE", FAILED
            return change_set
        unchanged = stack.target is not None and same(stack.target, target)
        if unchanged and stack.status not in ("CREATE_FAILED", "UPDATE_FAILED"):
            change_set.status, change_set.execution_status, change_set.reason = "FAILED", "UNAVAILABLE", _UNCHANGED
        return change_set

    def describe_change_set(self) -> ActionResult:
        """Show the request's change set. Reject a missing one."""
        return ActionResult(_shown(self._find_change_set()))

    def describe_events(self) -> ActionResult:
        """Answer DescribeEvents with a change set's findings of early validation.

        Reject a request without a change set.
        """
        if not self._text("ChangeSetName"):
            raise ValidationError("the embedded cloud only shows events of change sets; pass ChangeSetName")
        each = self._find_change_set()
        return ActionResult(
            {
                "OperationEvents": [
                    {
                        "EventId": f"{each.change_set_id}/{number}",
                        "StackId": each.stack.stack_id,
                        "OperationId": each.change_set_id,
                        "OperationType": "CREATE_CHANGESET",
                        "EventType": "VALIDATION_ERROR",
                        "LogicalResourceId": finding.logical_id,
                        "ResourceType": finding.type,
                        "Timestamp": each.created,
                        "ValidationFailureMode": "FAIL",
                        "ValidationName": "PROPERTY_VALIDATION",
                        "ValidationStatus": "FAILED",
                        "ValidationStatusReason": finding.reason,
                        "ValidationPath": finding.path,
                    }
                    for number, finding in enumerate(each.findings)
                ]
            }
        )

    def list_change_sets(self) -> ActionResult:
        """List a stack's change sets that have not been executed. Reject an unknown stack."""
        stack = self._account.get(self._text("StackName"))
        found = [_shown(each) for each in self._account.change_sets_of(stack) if not each.executed]
        return ActionResult({"Summaries": found})

    def delete_change_set(self) -> ActionResult:
        """Delete a change set. A missing change set or stack is no error."""
        try:
            each = self._find_change_set()
        except FormationError:
            return EmptyResult()
        with self._account.condition:
            self._account.change_sets.pop(each.change_set_id, None)
        return EmptyResult()

    def execute_change_set(self) -> ActionResult:
        """Start to execute a change set. Delete the stack's other change sets, which no longer match the stack.

        Raises FormationError if the change set has failed or was executed, or if the stack is busy.
        """
        with self._account.condition:
            each = self._find_change_set()
            stack = each.stack
            if each.status != "CREATE_COMPLETE":
                raise _unfit(each, f"status of [{each.status}]")
            if each.execution_status != "AVAILABLE":
                raise _unfit(each, f"execution status of [{each.execution_status}]")
            if stack.busy:
                raise _unfit(each, f"stack status of [{stack.status}]")
            for other in self._account.change_sets_of(stack):
                self._account.change_sets.pop(other.change_set_id)
            self._account.change_sets[each.change_set_id] = each  # From now on it is only found by its ARN.
            each.execution_status = "EXECUTE_IN_PROGRESS"
            stack.change_set_id = each.change_set_id
            stack.disable_rollback = each.disable_rollback or self._get_bool_param("DisableRollback", False)
            stack.role_arn = each.role_arn or stack.role_arn
            stack.capabilities = each.capabilities
            self._begin(stack, each.target, each)
        return EmptyResult()

    def _find_change_set(self) -> ChangeSet:
        """Return the request's change set, by ARN or by name and stack. An executed one is only found by its ARN.

        Raises FormationError if it is missing.
        """
        name = self._text("ChangeSetName")
        if name in self._account.change_sets:
            return self._account.change_sets[name]
        stack_name = self._text("StackName")
        stack = self._account.find(stack_name) if stack_name else None
        if stack_name and stack is None:
            raise ValidationError(f"Stack [{stack_name}] does not exist")
        for each in self._account.change_sets_of(stack) if stack else ():
            if each.name == name and not each.executed:
                return each
        raise FormationError("ChangeSetNotFound", f"ChangeSet [{name}] does not exist")


def _unfit(change_set: ChangeSet, state: str) -> FormationError:
    """Return the error for a change set that cannot be executed. `state`: why not, such as `status of [FAILED]`."""
    return FormationError(
        "InvalidChangeSetStatus", f"ChangeSet [{change_set.change_set_id}] cannot be executed in its current {state}"
    )


def _shown(change_set: ChangeSet) -> dict[str, Any]:
    """Return a change set in the API's form."""
    return {
        "ChangeSetName": change_set.name,
        "ChangeSetId": change_set.change_set_id,
        "StackId": change_set.stack.stack_id,
        "StackName": change_set.stack.name,
        "Description": change_set.description or None,
        "Parameters": show_parameters(change_set.target),
        "CreationTime": change_set.created,
        "ExecutionStatus": change_set.execution_status,
        "Status": change_set.status,
        "StatusReason": change_set.reason or None,
        "Capabilities": change_set.capabilities,
        "Tags": show_tags(change_set.target),
        "Changes": change_set.changes,
    }
