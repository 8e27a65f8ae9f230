"""The actions that create, update and delete stacks, and that signal their resources."""

from __future__ import annotations

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult

from localcloud.api.cloudformation import template
from localcloud.api.cloudformation.actions.base import Actions
from localcloud.api.cloudformation.errors import FormationError, ValidationError
from localcloud.api.cloudformation.operations import Operation
from localcloud.api.cloudformation.stacks import Stack, Target, same


class StackActions(Actions):
    """Create, update, delete and protect stacks, and receive signals."""

    def create_stack(self) -> ActionResult:
        """Check the template, and start the creation of a stack. Reject a name that another stack has.

        A rejected request leaves no stack behind.
        """
        account, name = self._account, self._text("StackName")
        if account.find(name) is not None:
            raise FormationError("AlreadyExistsException", f"Stack [{name}] already exists")
        stack = account.new_stack(name)
        try:
            target = self._read_target(stack)
            self._validate_early(stack, target)
        except ServiceException:
            account.stacks.pop(stack.stack_id)
            raise
        stack.termination_protection = self._get_bool_param("EnableTerminationProtection", False)
        stack.disable_rollback = (
            self._get_bool_param("DisableRollback", False) or self._text("OnFailure") == "DO_NOTHING"
        )
        stack.capabilities = self._get_param("Capabilities", [])
        stack.role_arn = self._text("RoleARN")
        self._begin(stack, target)
        return ActionResult({"StackId": stack.stack_id})

    def update_stack(self) -> ActionResult:
        """Check the template, and start the update of a stack.

        Reject an update without changes, and one of a stack that does not exist or whose status does not allow updates.
        """
        stack = self._account.get(self._text("StackName"))
        if stack.target is None:
            raise ValidationError(f"Stack [{stack.name}] does not exist")
        self._refuse_unless_updatable(stack)
        target = self._read_target(stack)
        if same(stack.target, target):
            raise ValidationError("No updates are to be performed.")
        self._validate_early(stack, target)
        stack.disable_rollback = self._get_bool_param("DisableRollback", False)
        stack.capabilities = self._get_param("Capabilities", []) or stack.capabilities
        stack.role_arn = self._text("RoleARN") or stack.role_arn
        self._begin(stack, target)
        return ActionResult({"StackId": stack.stack_id})

    def _validate_early(self, stack: Stack, target: Target) -> None:
        """Reject properties that violate their type's schema. AWS rejects them too, but its error text is not known."""
        found = self._account.findings(stack, target)
        if found:
            listed = "; ".join(f"{each.reason} (at {each.path})" for each in found)
            raise ValidationError(f"Early validation failed: {listed}")

    def delete_stack(self) -> ActionResult:
        """Start the deletion of a stack. It is no error if the stack does not exist or is already being deleted.

        The stack's change sets are deleted, and the resources in RetainResources are kept. Reject the deletion if the
        stack is protected or busy, or if another stack imports its exports.
        """
        account = self._account
        stack = account.find(self._text("StackName"))
        if stack is None or stack.status in ("DELETE_COMPLETE", "DELETE_IN_PROGRESS"):
            return EmptyResult()
        if stack.termination_protection:
            raise ValidationError(f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled")
        importers = self._importers(stack)
        if importers:
            raise ValidationError(f"Cannot delete export {importers[0]}")
        retained: list[str] = self._get_param("RetainResources", [])
        with account.condition:
            self._refuse_while_busy(stack)
            for each in account.change_sets_of(stack):
                account.change_sets.pop(each.change_set_id)
            stack.token = self._text("ClientRequestToken")
            stack.role_arn = self._text("RoleARN") or stack.role_arn
            stack.actor = account.actor(stack.role_arn, self._caller)
            stack.set_status("DELETE_IN_PROGRESS", "User Initiated")
        operation = Operation(account, stack)
        operation.start(lambda: operation.delete(retained))
        self._hold(stack)
        return EmptyResult()

    def _importers(self, stack: Stack) -> list[str]:
        """Return "EXPORT as it is in use by STACK" for each import of the stack's exports by another stack."""
        names = {output["ExportName"] for output in stack.outputs if "ExportName" in output}
        return [
            f"{each['Fn::ImportValue']} as it is in use by {other.name}"
            for other in self._account.live()
            if other is not stack and other.target is not None
            for each in template.walk(dict(other.target.template))
            if each.get("Fn::ImportValue") in names
        ]

    def rollback_stack(self) -> ActionResult:
        """Reject the rollback of a stack that failed with rollback disabled. It must be updated or deleted."""
        raise ValidationError(
            f"the embedded cloud cannot roll back the failed stack {self._text('StackName')} afterwards; update or "
            "delete the stack"
        )

    def continue_update_rollback(self) -> ActionResult:
        """Reject the request, as `rollback_stack` does. The stack must be updated or deleted."""
        return self.rollback_stack()

    def update_termination_protection(self) -> ActionResult:
        """Enable or disable a stack's protection against deletion. Without the parameter, it is disabled."""
        stack = self._account.get(self._text("StackName"))
        stack.termination_protection = self._get_bool_param("EnableTerminationProtection", False)
        return ActionResult({"StackId": stack.stack_id})

    def signal_resource(self) -> ActionResult:
        """Receive a signal that an instance of a resource is ready or has failed.

        Reject the signal unless the resource is being created or updated. A second signal with the same UniqueId must
        be a FAILURE.
        """
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
