"""The WSGI application of CloudFormation, and the actions that show stacks, resources, templates and exports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moto.core.responses import ActionResult
from moto.moto_server.werkzeug_app import BackendRequest

from localcloud.api.cloudformation.account import Account
from localcloud.api.cloudformation.actions.base import show_resource, show_stack, sorted_resources
from localcloud.api.cloudformation.actions.change_sets import ChangeSetActions
from localcloud.api.cloudformation.actions.stacks import StackActions
from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.permissions.caller import CALLER


class Responses(ChangeSetActions, StackActions):
    """All actions of CloudFormation's API, for the stacks of one account."""

    def describe_stacks(self) -> ActionResult:
        """Show the request's stack, or all stacks that are not deleted if the request names none.

        If the CDK CLI asks for one stack, wait for the stack's operation first, at most 5 s.
        """
        account, name = self._account, self._text("StackName")
        if not name:
            return ActionResult({"Stacks": [show_stack(stack) for stack in account.live()]})
        stack = account.get(name)
        self._hold(stack)
        with account.condition:
            return ActionResult({"Stacks": [show_stack(stack)]})

    def list_stacks(self) -> ActionResult:
        """List the stacks, including deleted ones, or only the stacks with a status in StackStatusFilter."""
        wanted = self._get_param("StackStatusFilter", [])
        found = [stack for stack in self._account.stacks.values() if not wanted or stack.status in wanted]
        shown = [show_stack(stack) for stack in found]
        return ActionResult(
            {"StackSummaries": [{**each, "TemplateDescription": each["Description"]} for each in shown]}
        )

    def describe_stack_events(self) -> ActionResult:
        """Show a stack's events, latest first. Reject an unknown stack."""
        stack = self._account.get(self._text("StackName"))
        with self._account.condition:
            return ActionResult({"StackEvents": list(reversed(stack.events))})

    def describe_stack_resources(self) -> ActionResult:
        """Show a stack's resources, or only the resource with the request's LogicalResourceId."""
        stack = self._account.get(self._text("StackName"))
        name = self._text("LogicalResourceId")
        found = [each for each in sorted_resources(stack) if not name or each.logical_id == name]
        return ActionResult({"StackResources": [show_resource(stack, each) for each in found]})

    def describe_stack_resource(self) -> ActionResult:
        """Show one resource of a stack. Reject an unknown logical id."""
        stack = self._account.get(self._text("StackName"))
        name = self._text("LogicalResourceId")
        for each in sorted_resources(stack):
            if each.logical_id == name:
                return ActionResult({"StackResourceDetail": show_resource(stack, each)})
        raise ValidationError(f"Resource {name} does not exist for stack {stack.name}")

    def list_stack_resources(self) -> ActionResult:
        """List the resources of a stack, sorted by logical id. Reject an unknown stack."""
        stack = self._account.get(self._text("StackName"))
        found = [show_resource(stack, each) for each in sorted_resources(stack)]
        return ActionResult({"StackResourceSummaries": found})

    def get_template(self) -> ActionResult:
        """Return the template of a stack or change set, exactly as it was sent. Reject an unknown stack or change set.

        The template is "" if the stack only has a change set, and the request does not name the change set.
        """
        name = self._text("StackName")
        target = self._find_change_set().target if self._text("ChangeSetName") else self._account.get(name).target
        # A stack that only has a change set has no template yet. AWS does not treat this as an error.
        body = target.body if target is not None else ""
        return ActionResult({"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]})

    def list_exports(self) -> ActionResult:
        """List the exports of all stacks."""
        found = [
            {"ExportingStackId": stack_id, "Name": name, "Value": value}
            for name, (value, stack_id) in self._account.exports().items()
        ]
        return ActionResult({"Exports": found})


class Application:
    """WSGI application that answers the requests for one account's stacks."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request (WSGI), for the caller that the gate has stored in `environ`."""
        request = BackendRequest(environ)
        responses = Responses(self._account, environ.get(CALLER))
        responses.setup_class(request)
        status, headers, body = responses.call_action()
        start_response(f"{status} {'OK' if status < 400 else 'Error'}", [(k, str(v)) for k, v in headers.items()])
        return [body if isinstance(body, bytes) else str(body).encode()]
