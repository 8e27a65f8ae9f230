"""What a resource type is, and the handlers that several types share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypedDict

from botocore.exceptions import ClientError

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

    def lost_tags(self, old: Properties, new: Properties) -> list[str]:
        """Return the keys of the tags that a resource loses in an update."""
        before, after = ({tag["Key"] for tag in self.tags(each.get("Tags"))} for each in (old, new))
        return sorted(before - after)


def names(text: str, *, below: str = "") -> frozenset[str]:
    """Return the names or paths in a text, separated by blanks; each below another path, if one is given."""
    return frozenset(f"{below}.{name}" if below else name for name in text.split())


def given(properties: Properties, keys: Iterable[str]) -> dict[str, Any]:
    """Return those of some properties that a template sets."""
    return {key: properties[key] for key in keys if key in properties}


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


class CreateAndUpdate(TypedDict):
    """Two handlers of a resource type."""

    create: Create
    update: Update


def create_and_update(write: Callable[[Context, str, Properties], Physical], name: str = "") -> CreateAndUpdate:
    """Return the handlers of a resource that one call creates and changes; `name` is the property that may name it."""
    return {
        "create": lambda context, properties: write(context, properties.get(name) or context.name(), properties),
        "update": lambda context, resource, old, new: write(context, resource.id, new),
    }


def delete_with(service: str, method: str, id: str | None, *others: str, gone: tuple[str, ...] = ()) -> Delete:
    """Return a handler that deletes a resource with one call of a client.

    The parameter `id` takes the physical id; `others` are named like attributes or properties of the resource. An error
    whose code is in `gone` means that it is deleted already.
    """

    def delete(context: Context, resource: Physical, properties: Properties) -> None:
        client = context.aws.client(service)
        known = {**properties, **resource.attributes}
        arguments = {**({id: resource.id} if id else {}), **{name: known[name] for name in others}}
        operation = client.meta.method_to_api_mapping[method]
        unless_gone(gone, getattr(client, method), **shaped(client, operation, arguments))

    return delete


def leave(context: Context, resource: Physical, properties: Properties) -> None:
    """Delete nothing: what it belongs to is deleted or changed with it."""


def unless_gone(codes: tuple[str, ...], call: Callable[..., Any], **arguments: Any) -> None:
    """Call a method that deletes something; that it is gone already is not a failure, as in CloudFormation."""
    try:
        call(**arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] not in codes:
            raise


def retag(ec2: Any, physical_id: str, context: Context, old: Properties, new: Properties) -> None:
    """Change the tags of an EC2 resource from those of its old properties to those of its new ones."""
    if gone := context.lost_tags(old, new):
        ec2.delete_tags(Resources=[physical_id], Tags=[{"Key": key} for key in gone])
    ec2.create_tags(Resources=[physical_id], Tags=context.tags(new.get("Tags")))


def retag_only(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Update an EC2 resource. Only its tags can change in place."""
    retag(context.aws.client("ec2"), resource.id, context, old, new)
    return resource


def tagged(resource_type: str, context: Context, properties: Properties) -> list[dict[str, Any]]:
    """Return the tags as EC2's API takes them for a new resource of a type (`subnet`, `natgateway`)."""
    return [{"ResourceType": resource_type, "Tags": context.tags(properties.get("Tags"))}]


def keep(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Change nothing: what AWS can change in place here is inert."""
    return resource


def as_mapping(tags: list[dict[str, str]]) -> dict[str, str]:
    """Return tags as the APIs take them that want an object."""
    return {tag["Key"]: tag["Value"] for tag in tags}


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
