"""Resource type of Systems Manager: parameters of its store."""

from __future__ import annotations

from localcloud.api.cloudformation.types.handlers import delete_with
from localcloud.api.cloudformation.types.resource_type import DESCRIPTION, Context, Physical, Properties, ResourceType


def _put_parameter(context: Context, properties: Properties) -> Physical:
    return _write_parameter(context, properties.get("Name") or f"CFN-{context.name(200)}", properties, overwrite=False)


def _write_parameter(context: Context, name: str, properties: Properties, *, overwrite: bool) -> Physical:
    described = {"Description": properties["Description"]} if "Description" in properties else {}
    value = str(properties["Value"])
    context.aws.client("ssm").put_parameter(
        Name=name, Type=properties["Type"], Value=value, Overwrite=overwrite, **described
    )
    return Physical(id=name, attributes={"Type": properties["Type"], "Value": value})


def _update_parameter(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    return _write_parameter(context, resource.id, new, overwrite=True)


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::SSM::Parameter",
        rules={
            "Name": "unique; with a slash in it, begins with one",
        },
        named_by="Name",
        honoured=frozenset({"Name", "Type", "Value"}),
        inert={
            "Description": DESCRIPTION,
            "Tier": "all parameters cost nothing",
            "Tags": "parameters are found by name",
        },
        replaced_by=frozenset({"Name"}),
        attributes=frozenset({"Type", "Value"}),
        create=_put_parameter,
        update=_update_parameter,
        delete=delete_with("ssm", "delete_parameter", "Name", gone=("ParameterNotFound",)),
    ),
)
