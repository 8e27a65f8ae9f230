"""Resource types of storage: buckets, image repositories and parameters."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from localcloud.api.cloudformation.errors import ResourceError, ServiceRefusalError
from localcloud.api.cloudformation.types.resource_type import (
    DESCRIPTION,
    LIFECYCLE,
    TAGS_SET_AT_CREATION,
    Context,
    Physical,
    Properties,
    ResourceType,
    delete_with,
    keep,
    names,
    shaped,
    unless_gone,
)
from localcloud.snapshot import REGION


def _create_bucket(context: Context, properties: Properties) -> Physical:
    s3 = context.aws.client("s3")
    name = properties.get("BucketName") or context.name(63).lower()
    _check_acl(properties)
    _check_lifecycle(properties)
    if _has_bucket(s3, name):
        raise ResourceError(f"{name} already exists")
    s3.create_bucket(Bucket=name)
    domain = f"{name}.s3.amazonaws.com"
    physical = Physical(
        id=name,
        attributes={
            "Arn": f"arn:aws:s3:::{name}",
            "DomainName": domain,
            "RegionalDomainName": f"{name}.s3.{REGION}.amazonaws.com",
        },
    )
    context.report(physical)
    _set_up_bucket(s3, name, context, properties)
    return physical


def _check_lifecycle(properties: Properties) -> None:
    """Raise ServiceRefusalError if a lifecycle rule keeps noncurrent versions for less than one day.

    The rule is in the API reference; AWS's error text is not known.
    """
    for rule in (properties.get("LifecycleConfiguration") or {}).get("Rules") or ():
        expiration = rule.get("NoncurrentVersionExpiration") or {}
        for days in (rule.get("NoncurrentVersionExpirationInDays"), expiration.get("NoncurrentDays")):
            if days is not None and int(days) <= 0:
                raise ServiceRefusalError("InvalidArgument", f"NoncurrentDays {days} must be a positive integer")


def _check_acl(properties: Properties) -> None:
    """Raise ServiceRefusalError for an access control list if the bucket's owner owns all objects, as by default."""
    rules = (properties.get("OwnershipControls") or {}).get("Rules") or [{}]
    enforced = rules[0].get("ObjectOwnership", "BucketOwnerEnforced") == "BucketOwnerEnforced"
    if enforced and properties.get("AccessControl", "Private") not in ("Private", "BucketOwnerFullControl"):
        raise ServiceRefusalError(
            "InvalidBucketAclWithObjectOwnership",
            "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        )


def _set_up_bucket(s3: Any, name: str, context: Context, properties: Properties) -> None:
    if "VersioningConfiguration" in properties:
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=properties["VersioningConfiguration"])
    if "PublicAccessBlockConfiguration" in properties:
        block = {"PublicAccessBlockConfiguration": properties["PublicAccessBlockConfiguration"]}
        s3.put_public_access_block(Bucket=name, **shaped(s3, "PutPublicAccessBlock", block))
    if "BucketEncryption" in properties:
        s3.put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration=_encryption(s3, properties))
    tags = context.user_tags(properties.get("Tags"))
    if tags:
        s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": tags})
    else:
        s3.delete_bucket_tagging(Bucket=name)


def _update_bucket(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    s3 = context.aws.client("s3")
    _check_acl(new)
    _check_lifecycle(new)
    if "VersioningConfiguration" in old and "VersioningConfiguration" not in new:
        s3.put_bucket_versioning(Bucket=resource.id, VersioningConfiguration={"Status": "Suspended"})
    if "PublicAccessBlockConfiguration" in old and "PublicAccessBlockConfiguration" not in new:
        s3.delete_public_access_block(Bucket=resource.id)
    if "BucketEncryption" in old and "BucketEncryption" not in new:
        s3.delete_bucket_encryption(Bucket=resource.id)
    _set_up_bucket(s3, resource.id, context, new)
    return resource


def _encryption(s3: Any, properties: Properties) -> dict[str, Any]:
    """Return a bucket's default encryption in the form of S3's API.

    Nothing is encrypted, but writing an object requires permissions on the key.
    """
    names = {"ServerSideEncryptionByDefault": "ApplyServerSideEncryptionByDefault"}
    given = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    rules = [{names.get(key, key): value for key, value in rule.items()} for rule in given]
    shape = {"ServerSideEncryptionConfiguration": {"Rules": rules}}
    found: dict[str, Any] = shaped(s3, "PutBucketEncryption", shape)["ServerSideEncryptionConfiguration"]
    return found


def _delete_bucket(context: Context, resource: Physical, properties: Properties) -> None:
    s3 = context.aws.client("s3")
    versions = s3.list_object_versions(Bucket=resource.id, MaxKeys=1) if _has_bucket(s3, resource.id) else {}
    if versions.get("Versions") or versions.get("DeleteMarkers"):
        raise ResourceError("The bucket you tried to delete is not empty. You must delete all versions in the bucket.")
    unless_gone(("NoSuchBucket",), s3.delete_bucket, Bucket=resource.id)


def _has_bucket(s3: Any, name: str) -> bool:
    try:
        s3.head_bucket(Bucket=name)
    except ClientError:
        return False
    return True


def _put_bucket_policy(context: Context, properties: Properties) -> Physical:
    bucket = properties["Bucket"]
    context.aws.client("s3").put_bucket_policy(Bucket=bucket, Policy=json.dumps(properties["PolicyDocument"]))
    return Physical(id=bucket)


def _create_repository(context: Context, properties: Properties) -> Physical:
    ecr = context.aws.client("ecr")
    name = properties.get("RepositoryName") or context.name().lower()
    created = ecr.create_repository(
        repositoryName=name,
        imageTagMutability=properties.get("ImageTagMutability", "MUTABLE"),
        tags=context.tags(properties.get("Tags")),
    )["repository"]
    return Physical(id=name, attributes={"Arn": created["repositoryArn"], "RepositoryUri": created["repositoryUri"]})


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
        name="AWS::S3::Bucket",
        named_by="BucketName",
        honoured=names("BucketEncryption BucketName VersioningConfiguration PublicAccessBlockConfiguration Tags"),
        inert={
            "LifecycleConfiguration": LIFECYCLE,
            "OwnershipControls": "there is one account, which owns all objects",
            "AccessControl": "there is one account, which owns all objects",
            "LoggingConfiguration": "requests are in the log of the embedded cloud",
        },
        replaced_by=names("BucketName"),
        attributes=names("Arn DomainName RegionalDomainName"),
        create=_create_bucket,
        update=_update_bucket,
        delete=_delete_bucket,
    ),
    ResourceType(
        name="AWS::S3::BucketPolicy",
        honoured=names("Bucket PolicyDocument"),
        replaced_by=names("Bucket"),
        create=_put_bucket_policy,
        update=lambda context, resource, old, new: _put_bucket_policy(context, new),
        delete=delete_with("s3", "delete_bucket_policy", None, "Bucket", gone=("NoSuchBucket", "NoSuchBucketPolicy")),
    ),
    ResourceType(
        name="AWS::ECR::Repository",
        named_by="RepositoryName",
        honoured=names("RepositoryName ImageTagMutability"),
        inert={
            "ImageScanningConfiguration": "images are kept, never run or scanned",
            "LifecyclePolicy": LIFECYCLE,
            "RepositoryPolicyText": "no image is pushed or pulled here",
            "Tags": TAGS_SET_AT_CREATION,
        },
        replaced_by=names("RepositoryName ImageTagMutability"),
        attributes=names("Arn RepositoryUri"),
        create=_create_repository,
        update=keep,
        delete=delete_with("ecr", "delete_repository", "repositoryName", gone=("RepositoryNotFoundException",)),
    ),
    ResourceType(
        name="AWS::SSM::Parameter",
        named_by="Name",
        honoured=names("Name Type Value"),
        inert={
            "Description": DESCRIPTION,
            "Tier": "all parameters cost nothing",
            "Tags": "parameters are found by name",
        },
        replaced_by=names("Name"),
        attributes=names("Type Value"),
        create=_put_parameter,
        update=_update_parameter,
        delete=delete_with("ssm", "delete_parameter", "Name", gone=("ParameterNotFound",)),
    ),
)
