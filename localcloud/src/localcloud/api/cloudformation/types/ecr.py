"""Resource type of ECR: repositories."""

from __future__ import annotations

from localcloud.api.cloudformation.types.handlers import delete_with, keep
from localcloud.api.cloudformation.types.resource_type import (
    LIFECYCLE,
    TAGS_SET_AT_CREATION,
    Context,
    Physical,
    Properties,
    ResourceType,
)


def _create_repository(context: Context, properties: Properties) -> Physical:
    ecr = context.aws.client("ecr")
    name = properties.get("RepositoryName") or context.name().lower()
    created = ecr.create_repository(
        repositoryName=name,
        imageTagMutability=properties.get("ImageTagMutability", "MUTABLE"),
        tags=context.tags(properties.get("Tags")),
    )["repository"]
    return Physical(id=name, attributes={"Arn": created["repositoryArn"], "RepositoryUri": created["repositoryUri"]})


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::ECR::Repository",
        named_by="RepositoryName",
        honoured=frozenset({"RepositoryName", "ImageTagMutability"}),
        inert={
            "ImageScanningConfiguration": "images are kept, never run or scanned",
            "LifecyclePolicy": LIFECYCLE,
            "RepositoryPolicyText": "no image is pushed or pulled here",
            "Tags": TAGS_SET_AT_CREATION,
        },
        replaced_by=frozenset({"RepositoryName", "ImageTagMutability"}),
        attributes=frozenset({"Arn", "RepositoryUri"}),
        create=_create_repository,
        update=keep,
        delete=delete_with("ecr", "delete_repository", "repositoryName", gone=("RepositoryNotFoundException",)),
    ),
)
