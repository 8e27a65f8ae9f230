"""The description of a resource type, and handlers that several types share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypedDict

from botocore.exceptions import ClientError

Properties = Mapping[str, Any]
Attributes = dict[str, Any]

TAGS_SET_AT_CREATION = "tags are set when the resource is created"
NOTHING_TO_ENCRYPT = "it has no disk here that could be encrypted"
DESCRIPTION = "a description only"
LIFECYCLE = "nothing here lives long enough to be moved or removed by age"


class Clients(Protocol):
    """Factory of clients for AWS services."""

    def client(self, service: str) -> Any:
        """Return a client of a service (`ec2`), with boto3's methods. The same client may be returned again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Physical:
    """A physical resource: the id that `Ref` returns, and the attributes that `Fn::GetAtt` returns."""

    id: str
    attributes: Attributes = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """A resource's context for its handlers: its stack, its name in the template, and clients of the API."""

    aws: Clients
    stack_name: str
    stack_id: str
    logical_id: str
    suffix: str
    """Random part of the physical names."""
    stack_tags: Mapping[str, str]
    report: Callable[[Physical], None] = lambda physical: None
    """`create` calls it with the physical resource as soon as it exists, if it has more to do.

    If the rest fails, the rollback deletes the reported resource, as CloudFormation does. The return value of `create`
    replaces the reported resource.
    """

    def name(self, limit: int = 255) -> str:
        """Return the resource's generated physical name: stack name, logical id and the random `suffix`.

        Each call returns the same name. If it is longer than `limit` characters, the end of the stack name is cut
        first, then the start of the logical id.
        """
        tail = f"-{self.logical_id}-{self.suffix}"
        return self.stack_name[: max(0, limit - len(tail))] + tail if len(tail) < limit else tail[-limit + 1 :]

    def tags(self, own: Any = ()) -> list[dict[str, str]]:
        """Return the resource's tags: the stack's, its own, and CloudFormation's `aws:` tags.

        `own` are its tags in the template. They override tags of the stack with the same key.
        """
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
        """Return the resource's tags without CloudFormation's `aws:` tags.

        On AWS only CloudFormation may set these tags. Some of moto's APIs reject them, because moto does not
        distinguish CloudFormation's calls from others.
        """
        return [tag for tag in self.tags(own) if not tag["Key"].startswith("aws:")]

    def lost_tags(self, old: Properties, new: Properties) -> list[str]:
        """Return the keys of the tags that an update removes from a resource, sorted. The stack's tags are kept."""
        before, after = ({tag["Key"] for tag in self.tags(each.get("Tags"))} for each in (old, new))
        return sorted(before - after)


def names(text: str, *, below: str = "") -> frozenset[str]:
    """Split a space-separated text into names, or into paths BELOW.NAME if `below` is given."""
    return frozenset(f"{below}.{name}" if below else name for name in text.split())


def given(properties: Properties, keys: Iterable[str]) -> dict[str, Any]:
    """Return the properties with these keys, as far as the template sets them."""
    return {key: properties[key] for key in keys if key in properties}


Create = Callable[[Context, Properties], Physical]
Update = Callable[[Context, Physical, Properties, Properties], Physical]
"""Takes the context, the physical resource, the old and the new properties."""
Delete = Callable[[Context, Physical, Properties], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResourceType:
    """A resource type of CloudFormation: its properties and handlers."""

    name: str
    """For example `AWS::EC2::VPC`."""
    honoured: frozenset[str]
    """Paths of properties with the same effect as on AWS. A path includes everything below it (`A`, `A.B`)."""
    create: Create
    delete: Delete
    update: Update | None = None
    """None if every changed property replaces the resource."""
    inert: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Paths of properties that are accepted without effect, with the reason."""
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Paths of properties that are rejected, with a reason. Unknown properties are rejected without a reason."""
    replaced_by: frozenset[str] = frozenset()
    """Top-level properties whose change replaces the resource, although the type has an `update` handler."""
    perhaps_replaced_by: frozenset[str] = frozenset()
    """Properties that may replace the resource according to AWS's change sets. Here they never do."""
    named_by: str = ""
    """Property with the resource's name, if two resources cannot have the same name."""
    attributes: frozenset[str] = frozenset()
    """Supported names of `Fn::GetAtt`."""
    policies: frozenset[str] = frozenset()
    """The supported ones of CreationPolicy and UpdatePolicy."""

    def paths(self) -> frozenset[str]:
        """Return all paths of accepted properties."""
        return self.honoured | frozenset(self.inert)


class CreateAndUpdate(TypedDict):
    """The `create` and `update` handlers of a resource type."""

    create: Create
    update: Update


def create_and_update(write: Callable[[Context, str, Properties], Physical], name: str = "") -> CreateAndUpdate:
    """Return handlers for a resource whose create and update are the same call.

    `write` takes the context, the resource's name and the new properties. `name` is the property that contains the
    resource's name; if it is not set, a name is generated.
    """
    return {
        "create": lambda context, properties: write(context, properties.get(name) or context.name(), properties),
        "update": lambda context, resource, old, new: write(context, resource.id, new),
    }


def delete_with(service: str, method: str, id: str | None, *others: str, gone: tuple[str, ...] = ()) -> Delete:
    """Return a handler that deletes a resource with one API call, the `method` of the boto3 client of `service`.

    The parameter `id` of the call gets the physical id, unless `id` is None. `others` are parameters that have the name
    of an attribute or property of the resource. An error with a code in `gone` means that the resource is deleted.
    """

    def delete(context: Context, resource: Physical, properties: Properties) -> None:
        client = context.aws.client(service)
        known = {**properties, **resource.attributes}
        arguments = {**({id: resource.id} if id else {}), **{name: known[name] for name in others}}
        operation = client.meta.method_to_api_mapping[method]
        unless_gone(gone, getattr(client, method), **shaped(client, operation, arguments))

    return delete


def leave(context: Context, resource: Physical, properties: Properties) -> None:
    """Handle a deletion without deleting anything, for a type that is deleted with another resource."""


def unless_gone(codes: tuple[str, ...], call: Callable[..., Any], **arguments: Any) -> None:
    """Call a method that deletes something, and ignore errors with these codes: the resource is already deleted."""
    try:
        call(**arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] not in codes:
            raise


def retag(ec2: Any, physical_id: str, context: Context, old: Properties, new: Properties) -> None:
    """Replace an EC2 resource's tags: delete the tags that only `old` has, and set the tags of `new` and the stack."""
    if gone := context.lost_tags(old, new):
        ec2.delete_tags(Resources=[physical_id], Tags=[{"Key": key} for key in gone])
    ec2.create_tags(Resources=[physical_id], Tags=context.tags(new.get("Tags")))


def retag_only(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Handle the update of an EC2 resource whose tags are the only property that can change in place."""
    retag(context.aws.client("ec2"), resource.id, context, old, new)
    return resource


def tagged(resource_type: str, context: Context, properties: Properties) -> list[dict[str, Any]]:
    """Return the tags for a new EC2 resource of a type (`subnet`, `natgateway`), in the form of EC2's API."""
    return [{"ResourceType": resource_type, "Tags": context.tags(properties.get("Tags"))}]


def keep(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Handle an update without changing anything, for a type whose other properties have no effect here."""
    return resource


def as_mapping(tags: list[dict[str, str]]) -> dict[str, str]:
    """Convert a list of tags to a dict from key to value, for APIs that expect an object."""
    return {tag["Key"]: tag["Value"] for tag in tags}


def text(value: Any) -> str:
    """Convert a scalar to text as CloudFormation does: `true` for True, and `3` for 3."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def truth(value: Any) -> bool:
    """Convert a boolean, which may be text in a template. Any value other than true is False."""
    return value is True or str(value).lower() == "true"


def shaped(client: Any, operation: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a template's values, converted to the types of the parameters of an API operation (`CreateVpc`).

    For example, templates may contain "true" and "3" as text. Raises ValueError for text that is not a number.
    """
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
