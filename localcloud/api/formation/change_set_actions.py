"""The actions on change sets."""

from __future__ import annotations

import uuid

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult

from localcloud.api.formation import changes
from localcloud.api.formation.actions import Actions
from localcloud.api.formation.errors import FormationError, ValidationError
from localcloud.api.formation.stacks import ChangeSet, Stack, Target, same
from localcloud.api.formation.views import show_parameters, show_tags

_UNCHANGED = "The submitted information didn't contain changes. Submit different information to create a change set."


class ChangeSetActions(Actions):
    """Describe changes and carry them out."""

    def create_change_set(self) -> ActionResult:
        """Describe a change, and make the stack's name known where it is to be created."""
        name, kind = self._text("ChangeSetName"), self._text("ChangeSetType") or "UPDATE"
        account = self._account
        stack = account.find(self._text("StackName"))
        fresh = stack is None
        if stack is not None and stack.target is None and kind == "UPDATE":
            raise ValidationError(f"Stack [{stack.name}] does not exist")
        if kind == "CREATE" and stack is not None and stack.target is not None:
            raise ValidationError(
                f"Stack [{stack.name}] already exists and cannot be created again with the changeSet [{name}]."
            )
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
        unchanged = stack.target is not None and same(stack.target, target)
        if unchanged and stack.status not in ("CREATE_FAILED", "UPDATE_FAILED"):
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
                "Parameters": show_parameters(each.target),
                "CreationTime": each.created,
                "ExecutionStatus": each.execution_status,
                "Status": each.status,
                "StatusReason": each.reason or None,
                "Capabilities": each.capabilities,
                "Tags": show_tags(each.target),
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
