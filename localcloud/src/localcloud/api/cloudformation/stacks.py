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
    """Return the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass(kw_only=True)
class Resource:
    """One resource of a stack, from the start of its creation."""

    logical_id: str
    type: str
    declaration: Mapping[str, Any]
    """The resource's section of the template."""
    properties: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Properties with resolved intrinsic functions."""
    physical: Physical | None = None
    """None before the resource exists."""
    status: str = ""
    reason: str = ""
    changed: datetime.datetime = dataclasses.field(default_factory=now)
    signals: dict[str, str] = dataclasses.field(default_factory=dict)
    """Status by UniqueId of the signals since the resource's creation or update began."""

    @property
    def physical_id(self) -> str:
        """Return the value of Ref, or "" before the resource exists."""
        return self.physical.id if self.physical else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The desired state of a stack: its template, parameters and tags."""

    body: str
    """The template's text, as it was sent."""
    template: Mapping[str, Any]
    """The parsed template, with its intrinsic functions."""
    parameters: Mapping[str, Parameter]
    tags: Mapping[str, str]


@dataclasses.dataclass(kw_only=True)
class Stack:
    """One stack: its desired state, status, resources, outputs and events."""

    stack_id: str
    name: str
    target: Target | None = None
    """The state that the stack has or is changing to. None before its first change set is executed."""
    status: str = "REVIEW_IN_PROGRESS"
    reason: str = ""
    role_arn: str = ""
    actor: Caller | None = None
    """The identity that changes the stack's resources. None for the cloud itself."""
    capabilities: list[str] = dataclasses.field(default_factory=list)
    disable_rollback: bool = False
    termination_protection: bool = False
    created: datetime.datetime = dataclasses.field(default_factory=now)
    updated: datetime.datetime | None = None
    deleted: datetime.datetime | None = None
    change_set_id: str = ""
    token: str = ""
    """ClientRequestToken of the current operation, included in its events."""
    resources: dict[str, Resource] = dataclasses.field(default_factory=dict)
    outputs: list[dict[str, str]] = dataclasses.field(default_factory=list)
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """In the API's form, oldest first."""

    @property
    def busy(self) -> bool:
        """Return whether an operation is in progress.

        REVIEW_IN_PROGRESS, the status before the first operation, does not count.
        """
        return self.status.endswith("_IN_PROGRESS") and self.status != "REVIEW_IN_PROGRESS"

    def set_status(self, status: str, reason: str = "") -> None:
        """Set the stack's status and add an event. Requests that wait on `Account.condition` are not notified."""
        self.status, self.reason = status, reason
        self._record(self.name, self.stack_id, STACK_TYPE, status, reason)

    def note(self, resource: Resource, status: str, reason: str = "") -> None:
        """Set a resource's status and add an event, like `set_status`."""
        resource.status, resource.reason, resource.changed = status, reason, now()
        self._record(resource.logical_id, resource.physical_id, resource.type, status, reason)

    def _record(self, logical_id: str, physical_id: str, type_name: str, status: str, reason: str) -> None:
        """Append an event in the API's form. Its time is later than the previous event's."""
        # Timestamps are unique, because the CLI sorts events by their time in milliseconds.
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
    """A proposed change of a stack, which can be executed once."""

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
    """Findings of early validation. A change set with findings has failed."""
    created: datetime.datetime = dataclasses.field(default_factory=now)

    @property
    def executed(self) -> bool:
        """Return whether execution has started. From then on, the change set is only found by its ARN."""
        return self.execution_status.startswith("EXECUTE_")


def same(old: Target, new: Target) -> bool:
    """Return whether two targets have the same template, parameters and tags.

    Parameters with an SSM type are compared by their current values.
    """
    return (
        old.template == new.template
        and {key: each.value for key, each in old.parameters.items()}
        == {key: each.value for key, each in new.parameters.items()}
        and old.tags == new.tags
    )
