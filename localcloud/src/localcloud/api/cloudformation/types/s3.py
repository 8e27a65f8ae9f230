"""Resource types of S3: buckets and their policies."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from localcloud.api.cloudformation.errors import ResourceError, ServiceRefusalError
from localcloud.api.cloudformation.types.handlers import delete_with, shaped, unless_gone
from localcloud.api.cloudformation.types.resource_type import (
    LIFECYCLE,
    Context,
    Physical,
    Properties,
    ResourceType,
)


def _create_bucket(context: Context, properties: Properties) -> Physical:
    s3 = context.aws.client("s3")
    name = properties.get("BucketName") or context.name(63).lower()
    _check_acl(properties)
    _check_lifecycle(properties)
    try:
        s3.head_bucket(Bucket=name)
    except ClientError:
        s3.create_bucket(Bucket=name)
    else:
        raise ResourceError(f"{name} already exists")
    domain = f"{name}.s3.amazonaws.com"
    physical = Physical(
        id=name,
        attributes={
            "Arn": f"arn:aws:s3:::{name}",
            "DomainName": domain,
            "RegionalDomainName": f"{name}.s3.{context.region}.amazonaws.com",
        },
    )
    context.report(physical)
    _set_up_bucket(s3, name, context, properties)
    return physical


def _check_lifecycle(properties: Properties) -> None:
    """Refuse days that are not positive; the API reference has the rule, no text of the error was found."""
    for rule in (properties.get("LifecycleConfiguration") or {}).get("Rules") or ():
        expiration = rule.get("NoncurrentVersionExpiration") or {}
        for days in (rule.get("NoncurrentVersionExpirationInDays"), expiration.get("NoncurrentDays")):
            if days is not None and int(days) <= 0:
                raise ServiceRefusalError("InvalidArgument", f"NoncurrentDays {days} must be a positive integer")


def _check_acl(properties: Properties) -> None:
    """Refuse an access control list where the objects' owner is enforced, as it is by default."""
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
    """Return what encrypts new objects. Nothing is encrypted here, but who writes one needs the rights to the key."""
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


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::S3::Bucket",
        rules={
            "BucketName": "unique",
            "AccessControl": "none with BucketOwnerEnforced",
            "LifecycleConfiguration": "NoncurrentDays are positive",
        },
        named_by="BucketName",
        honoured=frozenset(
            {"BucketEncryption", "BucketName", "VersioningConfiguration", "PublicAccessBlockConfiguration", "Tags"}
        ),
        inert={
            "LifecycleConfiguration": LIFECYCLE,
            "OwnershipControls": "there is one account, which owns all objects",
            "AccessControl": "there is one account, which owns all objects",
            "LoggingConfiguration": "requests are in the log of the embedded cloud",
        },
        replaced_by=frozenset({"BucketName"}),
        attributes=frozenset({"Arn", "DomainName", "RegionalDomainName"}),
        create=_create_bucket,
        update=_update_bucket,
        delete=_delete_bucket,
    ),
    ResourceType(
        name="AWS::S3::BucketPolicy",
        rules={
            "Bucket": "exists",
            "PolicyDocument": "principals by ARN exist",
        },
        honoured=frozenset({"Bucket", "PolicyDocument"}),
        replaced_by=frozenset({"Bucket"}),
        create=_put_bucket_policy,
        update=lambda context, resource, old, new: _put_bucket_policy(context, new),
        delete=delete_with("s3", "delete_bucket_policy", None, "Bucket", gone=("NoSuchBucket", "NoSuchBucketPolicy")),
    ),
)
