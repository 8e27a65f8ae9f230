"""What a resource type is: the properties that are honoured, and how it is created, changed and deleted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

Properties = Mapping[str, Any]
Attributes = dict[str, Any]

TAGS_SET_AT_CREATION = "tags are set when the resource is created"
NOTHING_TO_ENCRYPT = "there is no disk behind it here that could be encrypted"
DESCRIPTION = "a description only"
LIFECYCLE = "nothing here lives long enough to be moved or removed by age"


class Clients(Protocol):
    """Make clients of AWS services, by service name."""

    def client(self, service: str) -> Any:
        """Return a boto3 client."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Physical:
    """A physical resource: what `Ref` and `Fn::GetAtt` return for it."""

    id: str
    attributes: Attributes = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """What handlers know of a resource: its stack, its name in the template, and clients of the API."""

    aws: Clients
    stack_name: str
    stack_id: str
    logical_id: str
    account: str
    region: str
    suffix: str
    """Random part of the names of this stack's resources."""
    stack_tags: Mapping[str, str]
    report: Callable[[Physical], None] = lambda physical: None
    """Takes the physical resource as soon as it exists, from a `create` that has more to do: should the rest fail, the
    roll-back deletes what was reported, as CloudFormation does. What `create` returns takes its place."""

    def name(self, limit: int = 255) -> str:
        """Return a physical name as CloudFormation makes them up."""
        tail = f"-{self.logical_id}-{self.suffix}"
        return self.stack_name[: max(0, limit - len(tail))] + tail if len(tail) < limit else tail[-limit + 1 :]

    def tags(self, own: Any = ()) -> list[dict[str, str]]:
        """Return the tags of the resource: the stack's, its own, and those that CloudFormation adds."""
        merged = dict(self.stack_tags)
        merged.update({str(tag["Key"]): str(tag["Value"]) for tag in own or ()})
        merged.update(
            {
                "aws:cloudformation:stack-name": self.stack_name,
                "aws:cloudformation:stack-id": self.stack_id,
                "aws:cloudformation:logical-id": self.logical_id,
            }
        )
        return [{"Key": key, "Value": value} for key, value in merged.items()]

    def user_tags(self, own: Any = ()) -> list[dict[str, str]]:
        """Return the tags without those that CloudFormation adds: some APIs of moto refuse keys that begin with `aws:`.

        On AWS only CloudFormation itself may set them, and moto does not know its calls from others.
        """
        return [tag for tag in self.tags(own) if not tag["Key"].startswith("aws:")]


Create = Callable[[Context, Properties], Physical]
Update = Callable[[Context, Physical, Properties, Properties], Physical]
"""Takes the old and the new properties."""
Delete = Callable[[Context, Physical, Properties], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResourceType:
    """One resource type."""

    name: str
    """Such as `AWS::EC2::VPC`."""
    honoured: frozenset[str]
    """Paths of properties that do here what they do on AWS; a path stands for all below it (`A`, `A.B`)."""
    create: Create
    delete: Delete
    update: Update | None = None
    """None: every change of a property replaces the resource."""
    inert: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Paths of properties that are accepted without effect, and why."""
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Paths of properties that are refused with a reason; unknown ones are refused without."""
    rules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Paths of properties of which more is checked than their schema says, and what; shown in docs/ alone."""
    replaced_by: frozenset[str] = frozenset()
    """Properties (of the first level) whose change replaces the resource even though it can be updated."""
    perhaps_replaced_by: frozenset[str] = frozenset()
    """Properties that may replace the resource in AWS's change sets; here they never do."""
    named_by: str = ""
    """The property that may name the resource, where a second one of a name cannot be made."""
    attributes: frozenset[str] = frozenset()
    """Names that `Fn::GetAtt` takes."""
    policies: frozenset[str] = frozenset()
    """Which of CreationPolicy and UpdatePolicy it takes."""

    def paths(self) -> frozenset[str]:
        """Return all paths of accepted properties."""
        return self.honoured | frozenset(self.inert)
