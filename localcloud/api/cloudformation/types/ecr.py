"""Resource types of the parameter store and of the image registry."""

from __future__ import annotations

from localcloud.api.cloudformation.types.resource_type import (
    DESCRIPTION,
    LIFECYCLE,
    TAGS_ONLY_ON_MAKING,
    Kind,
    Made,
    Place,
    Properties,
    keep,
    unless_gone,
)


def _create_repository(place: Place, properties: Properties) -> Made:
    ecr = place.aws.client("ecr")
    name = properties.get("RepositoryName") or place.name().lower()
    made = ecr.create_repository(
        repositoryName=name,
        imageTagMutability=properties.get("ImageTagMutability", "MUTABLE"),
        tags=place.tags(properties.get("Tags")),
    )["repository"]
    return Made(physical_id=name, attributes={"Arn": made["repositoryArn"], "RepositoryUri": made["repositoryUri"]})


def _delete_repository(place: Place, made: Made, properties: Properties) -> None:
    del properties
    ecr = place.aws.client("ecr")
    unless_gone(("RepositoryNotFoundException",), ecr.delete_repository, repositoryName=made.physical_id)


def _put_parameter(place: Place, properties: Properties) -> Made:
    return _write_parameter(place, properties.get("Name") or f"CFN-{place.name(200)}", properties, overwrite=False)


def _write_parameter(place: Place, name: str, properties: Properties, *, overwrite: bool) -> Made:
    described = {"Description": properties["Description"]} if "Description" in properties else {}
    value = str(properties["Value"])
    place.aws.client("ssm").put_parameter(
        Name=name, Type=properties["Type"], Value=value, Overwrite=overwrite, **described
    )
    return Made(physical_id=name, attributes={"Type": properties["Type"], "Value": value})


def _update_parameter(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    return _write_parameter(place, made.physical_id, new, overwrite=True)


def _delete_parameter(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(("ParameterNotFound",), place.aws.client("ssm").delete_parameter, Name=made.physical_id)


KINDS = (
    Kind(
        type="AWS::ECR::Repository",
        carried_out=frozenset({"RepositoryName", "ImageTagMutability"}),
        inert={
            "ImageScanningConfiguration": "images are kept, never run or scanned",
            "LifecyclePolicy": LIFECYCLE,
            "RepositoryPolicyText": "access policies are not enforced",
            "Tags": TAGS_ONLY_ON_MAKING,
        },
        replaced_by=frozenset({"RepositoryName", "ImageTagMutability"}),
        attributes=frozenset({"Arn", "RepositoryUri"}),
        create=_create_repository,
        update=keep,
        delete=_delete_repository,
    ),
    Kind(
        type="AWS::SSM::Parameter",
        carried_out=frozenset({"Name", "Type", "Value"}),
        inert={
            "Description": DESCRIPTION,
            "Tier": "all parameters cost nothing",
            "Tags": "parameters are found by name",
        },
        replaced_by=frozenset({"Name"}),
        attributes=frozenset({"Type", "Value"}),
        create=_put_parameter,
        update=_update_parameter,
        delete=_delete_parameter,
    ),
)
