"""What a resource type is: the properties that are honoured, and how it is made, changed and removed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from botocore.exceptions import ClientError

Properties = Mapping[str, Any]
Attributes = dict[str, Any]


class Clients(Protocol):
    """Make clients of AWS services, by service name."""

    def client(self, service: str) -> Any:
        """Return a boto3 client."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where a resource stands: its stack, its name in the template, and the clients to make it with."""

    aws: Clients
    stack_name: str
    stack_id: str
    logical_id: str
    account: str
    region: str
    suffix: str
    """Random part of the names of this stack's resources."""
    stack_tags: Mapping[str, str]

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """A resource that exists: what `Ref` and `Fn::GetAtt` return for it."""

    physical_id: str
    attributes: Attributes = dataclasses.field(default_factory=dict)


Create = Callable[[Place, Properties], Made]
Update = Callable[[Place, Made, Properties, Properties], Made]
"""Takes the old and the new properties."""
Delete = Callable[[Place, Made, Properties], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One resource type."""

    type: str
    carried_out: frozenset[str]
    """Paths of properties that do here what they do on AWS; a path stands for all below it (`A`, `A.B`)."""
    create: Create
    delete: Delete
    update: Update | None = None
    """None: every change of a property replaces the resource."""
    inert: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Paths of properties that are accepted without effect, and why that is no lie."""
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Paths of properties whose refusal deserves a reason; all others that are not accepted are refused without."""
    replaced_by: frozenset[str] = frozenset()
    """Properties (of the first level) whose change replaces the resource even though it can be updated."""
    perhaps_replaced_by: frozenset[str] = frozenset()
    """Properties of which AWS says in change sets that they may replace the resource, which here they never do."""
    attributes: frozenset[str] = frozenset()
    """Names that `Fn::GetAtt` takes."""
    policies: frozenset[str] = frozenset()
    """Which of CreationPolicy and UpdatePolicy it takes."""

    def paths(self) -> frozenset[str]:
        """Return all paths of accepted properties."""
        return self.carried_out | frozenset(self.inert)


def text(value: Any) -> str:
    """Return a scalar as CloudFormation passes it to an API that takes text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def truth(value: Any) -> bool:
    """Return a boolean that a template may hold as text."""
    return value is True or str(value).lower() == "true"


def shaped(client: Any, operation: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Coerce a template's values to what an operation takes: templates may write "true" and "3" for true and 3."""
    shape = client.meta.service_model.operation_model(operation).input_shape
    found: dict[str, Any] = _coerce(shape, values)
    return found


def _coerce(shape: Any, value: Any) -> Any:
    if shape.type_name == "structure" and isinstance(value, Mapping):
        return {key: _coerce(shape.members[key], each) if key in shape.members else each for key, each in value.items()}
    if shape.type_name == "list":
        return [_coerce(shape.member, each) for each in (value if isinstance(value, list) else [value])]
    if shape.type_name == "boolean":
        return truth(value)
    if shape.type_name in ("integer", "long") and isinstance(value, str):
        return int(value)
    if shape.type_name in ("float", "double") and isinstance(value, str):
        return float(value)
    if shape.type_name == "string" and not isinstance(value, str):
        return text(value)
    return value


def unless_gone(codes: tuple[str, ...], call: Callable[..., Any], **arguments: Any) -> None:
    """Delete something; that it is gone already is no failure, as in CloudFormation."""
    try:
        call(**arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] not in codes:
            raise


def retag(ec2: Any, physical_id: str, place: Place, old: Properties, new: Properties) -> None:
    """Change the tags of an EC2 resource from those of its old properties to those of its new ones."""
    before = {tag["Key"] for tag in place.tags(old.get("Tags"))}
    after = place.tags(new.get("Tags"))
    gone = before - {tag["Key"] for tag in after}
    if gone:
        ec2.delete_tags(Resources=[physical_id], Tags=[{"Key": key} for key in sorted(gone)])
    ec2.create_tags(Resources=[physical_id], Tags=after)


def retag_only(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    """Update an EC2 resource of which nothing but the tags can change in place."""
    retag(place.aws.client("ec2"), made.physical_id, place, old, new)
    return made


def tagged(kind: str, place: Place, properties: Properties) -> list[dict[str, Any]]:
    """Return the tags as EC2's API takes them while it makes a resource of a kind (`subnet`, `natgateway`)."""
    return [{"ResourceType": kind, "Tags": place.tags(properties.get("Tags"))}]


def keep(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    """Change nothing: what AWS can change in place here is inert."""
    del place, old, new
    return made


TAGS_ONLY_ON_MAKING = "tags are set when the resource is made"
NOTHING_TO_ENCRYPT = "there is no disk behind it here that could be encrypted"
DESCRIPTION = "a text for people"
LIFECYCLE = "nothing here lives long enough to be moved or removed by age"
