"""Resource types of S3: buckets and their policies."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    LIFECYCLE,
    NOTHING_TO_ENCRYPT,
    Kind,
    Made,
    Place,
    Properties,
    shaped,
    unless_gone,
)


def _create_bucket(place: Place, properties: Properties) -> Made:
    s3 = place.aws.client("s3")
    name = properties.get("BucketName") or place.name(63).lower()
    try:
        s3.head_bucket(Bucket=name)
    except ClientError:
        s3.create_bucket(Bucket=name)
    else:
        raise ResourceError(f"{name} already exists")
    _set_up_bucket(s3, name, place, properties)
    domain = f"{name}.s3.amazonaws.com"
    return Made(
        physical_id=name,
        attributes={
            "Arn": f"arn:aws:s3:::{name}",
            "DomainName": domain,
            "RegionalDomainName": f"{name}.s3.{place.region}.amazonaws.com",
        },
    )


def _set_up_bucket(s3: Any, name: str, place: Place, properties: Properties) -> None:
    if "VersioningConfiguration" in properties:
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=properties["VersioningConfiguration"])
    if "PublicAccessBlockConfiguration" in properties:
        block = {"PublicAccessBlockConfiguration": properties["PublicAccessBlockConfiguration"]}
        s3.put_public_access_block(Bucket=name, **shaped(s3, "PutPublicAccessBlock", block))
    # Only CloudFormation itself may set tags that begin with `aws:`, and moto takes its calls for anybody's.
    tags = [tag for tag in place.tags(properties.get("Tags")) if not tag["Key"].startswith("aws:")]
    if tags:
        s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": tags})
    else:
        s3.delete_bucket_tagging(Bucket=name)


def _update_bucket(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    s3 = place.aws.client("s3")
    if "VersioningConfiguration" in old and "VersioningConfiguration" not in new:
        s3.put_bucket_versioning(Bucket=made.physical_id, VersioningConfiguration={"Status": "Suspended"})
    if "PublicAccessBlockConfiguration" in old and "PublicAccessBlockConfiguration" not in new:
        s3.delete_public_access_block(Bucket=made.physical_id)
    _set_up_bucket(s3, made.physical_id, place, new)
    return made


def _delete_bucket(place: Place, made: Made, properties: Properties) -> None:
    del properties
    s3 = place.aws.client("s3")
    versions = s3.list_object_versions(Bucket=made.physical_id, MaxKeys=1) if _has_bucket(s3, made.physical_id) else {}
    if versions.get("Versions") or versions.get("DeleteMarkers"):
        raise ResourceError("The bucket you tried to delete is not empty. You must delete all versions in the bucket.")
    unless_gone(("NoSuchBucket",), s3.delete_bucket, Bucket=made.physical_id)


def _has_bucket(s3: Any, name: str) -> bool:
    try:
        s3.head_bucket(Bucket=name)
    except ClientError:
        return False
    return True


def _put_bucket_policy(place: Place, properties: Properties) -> Made:
    bucket = properties["Bucket"]
    place.aws.client("s3").put_bucket_policy(Bucket=bucket, Policy=json.dumps(properties["PolicyDocument"]))
    return Made(physical_id=bucket)


def _update_bucket_policy(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del made, old
    return _put_bucket_policy(place, new)


def _delete_bucket_policy(place: Place, made: Made, properties: Properties) -> None:
    del made
    s3 = place.aws.client("s3")
    unless_gone(("NoSuchBucket", "NoSuchBucketPolicy"), s3.delete_bucket_policy, Bucket=properties["Bucket"])


KINDS = (
    Kind(
        type="AWS::S3::Bucket",
        carried_out=frozenset({"BucketName", "VersioningConfiguration", "PublicAccessBlockConfiguration", "Tags"}),
        inert={
            "BucketEncryption": NOTHING_TO_ENCRYPT,
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
    Kind(
        type="AWS::S3::BucketPolicy",
        carried_out=frozenset({"Bucket", "PolicyDocument"}),
        replaced_by=frozenset({"Bucket"}),
        create=_put_bucket_policy,
        update=_update_bucket_policy,
        delete=_delete_bucket_policy,
    ),
)
