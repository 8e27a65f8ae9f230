"""Stacks, their resources and events, and change sets."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from localcloud.api.cloudformation.early_validation import Finding
from localcloud.api.cloudformation.parameters import Parameter
from localcloud.api.cloudformation.types.resource_type import Physical
from localcloud.api.permissions.caller import Caller

STACK_TYPE = "AWS::CloudFormation::Stack"


def now() -> datetime.datetime:
    """Return the time, UTC."""
    return datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass(kw_only=True)
class Resource:
    """One resource of a stack, from the start of its creation."""

    logical_id: str
    type: str
    declaration: Mapping[str, Any]
    """As it stands in the template."""
    properties: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Without intrinsic functions."""
    physical: Physical | None = None
    status: str = ""
    reason: str = ""
    changed: datetime.datetime = dataclasses.field(default_factory=now)
    signals: dict[str, str] = dataclasses.field(default_factory=dict)
    """Status by UniqueId of the signals since its making or changing began."""

    @property
    def physical_id(self) -> str:
        """Return what Ref returns; empty before it is made."""
        return self.physical.id if self.physical else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """What a stack is to become."""

    body: str
    template: Mapping[str, Any]
    parameters: Mapping[str, Parameter]
    tags: Mapping[str, str]


@dataclasses.dataclass(kw_only=True)
class Stack:
    """One stack."""

    stack_id: str
    name: str
    target: Target | None = None
    """What it is, or is becoming; None while its first change set waits."""
    status: str = "REVIEW_IN_PROGRESS"
    reason: str = ""
    role_arn: str = ""
    actor: Caller | None = None
    """With whose rights its resources are changed; None: the cloud's own."""
    capabilities: list[str] = dataclasses.field(default_factory=list)
    disable_rollback: bool = False
    termination_protection: bool = False
    created: datetime.datetime = dataclasses.field(default_factory=now)
    updated: datetime.datetime | None = None
    deleted: datetime.datetime | None = None
    change_set_id: str = ""
    token: str = ""
    """ClientRequestToken of the operation in progress, which its events carry."""
    resources: dict[str, Resource] = dataclasses.field(default_factory=dict)
    outputs: list[dict[str, str]] = dataclasses.field(default_factory=list)
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """In the shape of the API, oldest first."""

    @property
    def busy(self) -> bool:
        """Return whether an operation is in progress."""
        return self.status.endswith("_IN_PROGRESS") and self.status != "REVIEW_IN_PROGRESS"

    def set_status(self, status: str, reason: str = "") -> None:
        """Change the stack's status and record it."""
        self.status, self.reason = status, reason
        self._record(self.name, self.stack_id, STACK_TYPE, status, reason)

    def note(self, resource: Resource, status: str, reason: str = "") -> None:
        """Change a resource's status and record it."""
        resource.status, resource.reason, resource.changed = status, reason, now()
        self._record(resource.logical_id, resource.physical_id, resource.type, status, reason)

    def _record(self, logical_id: str, physical_id: str, type_name: str, status: str, reason: str) -> None:
        # The CLI orders events by their time, in milliseconds.
        earliest = self.events[-1]["Timestamp"] + datetime.timedelta(milliseconds=1) if self.events else now()
        self.events.append(
            {
                "StackId": self.stack_id,
                "StackName": self.name,
                "EventId": str(uuid.uuid4()),
                "LogicalResourceId": logical_id,
                "PhysicalResourceId": physical_id,
                "ResourceType": type_name,
                "Timestamp": max(now(), earliest),
                "ResourceStatus": status,
                "ResourceStatusReason": reason or None,
                "ClientRequestToken": self.token or None,
            }
        )


@dataclasses.dataclass(kw_only=True)
class ChangeSet:
    """A change that was described and may be executed."""

    change_set_id: str
    name: str
    stack: Stack
    target: Target
    changes: list[dict[str, Any]]
    status: str = "CREATE_COMPLETE"
    reason: str = ""
    execution_status: str = "AVAILABLE"
    description: str = ""
    capabilities: list[str] = dataclasses.field(default_factory=list)
    role_arn: str = ""
    disable_rollback: bool = False
    findings: Sequence[Finding] = ()
    """What early validation found, for which the change set has failed."""
    created: datetime.datetime = dataclasses.field(default_factory=now)

    @property
    def executed(self) -> bool:
        """Return whether its execution has begun: it is then listed no more, and described by its ARN alone."""
        return self.execution_status.startswith("EXECUTE_")


def same(old: Target, new: Target) -> bool:
    """Return whether two targets are equal; parameters of the store are compared by their present values."""
    return (
        old.template == new.template
        and {key: each.value for key, each in old.parameters.items()}
        == {key: each.value for key, each in new.parameters.items()}
        and old.tags == new.tags
    )
