"""The CloudFormation of one account and region: its stacks, change sets and exports."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from localcloud.api.cloudformation import parameters
from localcloud.api.cloudformation.early_validation import Finding, findings
from localcloud.api.cloudformation.errors import FormationError, ResourceError, ValidationError
from localcloud.api.cloudformation.intrinsics import Scope, dependencies, order
from localcloud.api.cloudformation.parameters import Parameter
from localcloud.api.cloudformation.stacks import ChangeSet, Stack, Target
from localcloud.api.cloudformation.template import parse
from localcloud.api.cloudformation.types import allowlist
from localcloud.api.cloudformation.types.resource_type import Clients, Context, Physical
from localcloud.api.permissions.caller import CLOUDFORMATION, Caller
from localcloud.snapshot import ACCOUNT, REGION

_STABLE_WITHIN_S: Final = 120.0
_POLL_S: Final = 0.1


class Account:
    """The stacks and change sets of an account and region. Hold `condition` to read or change a stack.

    `assume` takes a role's ARN and returns its identity, or None if CloudFormation cannot assume the role.
    """

    def __init__(
        self,
        aws: Clients,
        assume: Callable[[str], Caller | None] = lambda role_arn: None,
        is_stable: Callable[[str, str], bool] = lambda resource_type, physical_id: True,
    ) -> None:
        self.aws = aws
        self._assume = assume
        self._is_stable = is_stable
        """Takes a resource type and a physical id; returns whether other resources can use the resource yet."""
        self.condition = threading.Condition()
        """Notified after every change of a stack and every signal."""
        self.stacks: dict[str, Stack] = {}
        """By id, including deleted stacks, because they can still be described by id."""
        self.change_sets: dict[str, ChangeSet] = {}

    def live(self) -> list[Stack]:
        """Return the stacks that are not deleted, including failed stacks and stacks that only have change sets."""
        return [stack for stack in self.stacks.values() if stack.status != "DELETE_COMPLETE"]

    def find(self, name_or_id: str) -> Stack | None:
        """Return a stack by its name or id, or None. A deleted stack is only found by id."""
        if name_or_id in self.stacks:
            return self.stacks[name_or_id]
        return next((stack for stack in self.live() if stack.name == name_or_id), None)

    def id_of(self, name: str) -> str:
        """Return a stack's id by its name, or by the ARN of one of its change sets; empty if there is no such stack."""
        if name in self.change_sets:
            return self.change_sets[name].stack.stack_id
        stack = self.find(name)
        return stack.stack_id if stack else ""

    def actor(self, role_arn: str, caller: Caller | None) -> Caller | None:
        """Return the identity that an operation acts as: the role, or without a role the caller through CloudFormation.

        `role_arn` is "" without a role. Without both, return None: the cloud itself. Raises ValidationError if
        CloudFormation cannot assume the role.
        """
        if not role_arn:
            return caller.through(CLOUDFORMATION) if caller else None
        role = self._assume(role_arn)
        if role is None:
            raise ValidationError(f"Role {role_arn} is invalid or cannot be assumed")
        return role

    def get(self, name_or_id: str) -> Stack:
        """Return a stack by its name or id.

        Raises ValidationError with AWS's message, which the CDK CLI uses to detect a missing stack.
        """
        stack = self.find(name_or_id)
        if stack is None:
            raise ValidationError(f"Stack with id {name_or_id} does not exist")
        return stack

    def new_stack(self, name: str) -> Stack:
        """Register a new stack with a new id, the status REVIEW_IN_PROGRESS and no resources. Nothing is created."""
        stack_id = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{name}/{uuid.uuid4()}"
        stack = Stack(stack_id=stack_id, name=name)
        self.stacks[stack_id] = stack
        return stack

    def change_sets_of(self, stack: Stack) -> list[ChangeSet]:
        """Return a stack's change sets, oldest first, including the executed one."""
        return [each for each in self.change_sets.values() if each.stack is stack]

    def exports(self) -> dict[str, tuple[str, str]]:
        """Return the value and the exporting stack's id of each export, by name."""
        return {
            output["ExportName"]: (output["OutputValue"], stack.stack_id)
            for stack in self.live()
            for output in stack.outputs
            if "ExportName" in output
        }

    def wait_until_stable(self, resource_type: str, physical_id: str) -> None:
        """Wait until a new resource has stabilized, as CloudFormation does before it continues.

        Raises ResourceError after two minutes.
        """
        deadline = time.monotonic() + _STABLE_WITHIN_S
        while not self._is_stable(resource_type, physical_id):
            if time.monotonic() > deadline:
                raise ResourceError(f"Exceeded attempts to wait: {resource_type} {physical_id} did not stabilize")
            time.sleep(_POLL_S)

    def context(
        self,
        stack: Stack,
        logical_id: str,
        tags: Mapping[str, str],
        report: Callable[[Physical], None] = lambda physical: None,
    ) -> Context:
        """Return the context for a resource's handlers. Each context generates other physical names.

        `tags` are the stack's tags. A creation calls `report` with the physical resource as soon as it exists.
        """
        return Context(
            aws=self.aws,
            stack_name=stack.name,
            stack_id=stack.stack_id,
            logical_id=logical_id,
            suffix=uuid.uuid4().hex[:12],
            stack_tags=tags,
            report=report,
        )

    def scope(self, stack: Stack, target: Target) -> Scope:
        """Return a resolver for the functions in a target's template.

        References resolve to the stack's present resources. It raises ValidationError for a resource that does not
        exist yet.
        """

        def reference(name: str) -> str:
            resource = stack.resources.get(name)
            if resource is None or resource.physical is None:
                raise ValidationError(
                    f"Template format error: Unresolved resource dependencies [{name}] "
                    "in the Resources block of the template"
                )
            return resource.physical.id

        def attribute(name: str, key: str) -> Any:
            resource = stack.resources.get(name)
            if resource is None or resource.physical is None or key not in resource.physical.attributes:
                raise ValidationError(
                    f"Template error: resource {name} does not support attribute type {key} in Fn::GetAtt"
                )
            return resource.physical.attributes[key]

        return Scope(
            target.template,
            parameters={key: parameter.value for key, parameter in target.parameters.items()},
            pseudo={
                "AWS::AccountId": ACCOUNT,
                "AWS::NotificationARNs": [],
                "AWS::Partition": "aws",
                "AWS::Region": REGION,
                "AWS::StackId": stack.stack_id,
                "AWS::StackName": stack.name,
                "AWS::URLSuffix": "amazonaws.com",
            },
            zones=[f"{REGION}{letter}" for letter in "abcdef"],
            exports={name: value for name, (value, _) in self.exports().items()},
            reference=reference,
            attribute=attribute,
        )

    def target(
        self,
        stack: Stack,
        body: str,
        given: list[Mapping[str, Any]],
        tags: Mapping[str, str] | None,
        capabilities: list[str],
    ) -> Target:
        """Check a template (`body`) and its parameters; return the desired state. The stack is not changed.

        `given`: the request's Parameters. `tags`: None to keep the stack's tags. `capabilities`: the request's
        Capabilities. Raises FormationError if a capability is missing, otherwise ValidationError.
        """
        template = parse(body)
        previous: Mapping[str, Parameter] = stack.target.parameters if stack.target else {}
        chosen = parameters.choose(template.get("Parameters", {}), given, previous)
        target = Target(
            body=body,
            template=template,
            parameters=parameters.resolve(template, chosen, self.aws),
            tags=dict(tags if tags is not None else stack.target.tags if stack.target else {}),
        )
        scope = self.scope(stack, target)
        allowlist.check(template, holds=scope.condition)
        needed = allowlist.needed_capabilities(template)
        if needed and not {*needed, "CAPABILITY_NAMED_IAM"} & set(capabilities):
            raise FormationError("InsufficientCapabilitiesException", f"Requires capabilities : [{', '.join(needed)}]")
        parameters.check_rules(template, scope)
        order(dependencies(self.active_resources(stack, target)))
        return target

    def findings(self, stack: Stack, target: Target) -> list[Finding]:
        """Return the properties of a target that violate their resource type's schema. Unknown values are skipped."""
        return findings(self.scope(stack, target), self.active_resources(stack, target))

    def active_resources(self, stack: Stack, target: Target) -> dict[str, Mapping[str, Any]]:
        """Return a target's resources without those whose condition is false."""
        scope = self.scope(stack, target)
        return {
            name: resource
            for name, resource in target.template["Resources"].items()
            if "Condition" not in resource or scope.condition(resource["Condition"])
        }
