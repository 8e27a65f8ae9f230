"""How resources are created, changed and deleted: what several resource types do in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from botocore.exceptions import ClientError

from localcloud.api.cloudformation.types.resource_type import Context, Create, Delete, Physical, Properties, Update


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
    before = {tag["Key"] for tag in context.tags(old.get("Tags"))}
    after = context.tags(new.get("Tags"))
    gone = before - {tag["Key"] for tag in after}
    if gone:
        ec2.delete_tags(Resources=[physical_id], Tags=[{"Key": key} for key in sorted(gone)])
    ec2.create_tags(Resources=[physical_id], Tags=after)


def retag_only(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Update an EC2 resource of which nothing but the tags can change in place."""
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
