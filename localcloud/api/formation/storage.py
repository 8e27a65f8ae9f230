"""Resource types of storage: EFS, S3, ECR and the parameter store."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from localcloud.api.formation.errors import ResourceError
from localcloud.api.formation.kinds import (
    DESCRIPTION,
    NOTHING_TO_ENCRYPT,
    TAGS_ONLY_ON_MAKING,
    Kind,
    Made,
    Place,
    Properties,
    shaped,
    truth,
    unless_gone,
)

_ONE_DISK = "a file system is a directory of this machine: no classes of storage, no rates to choose from, no backups"


def _create_file_system(place: Place, properties: Properties) -> Made:
    efs = place.aws.client("efs")
    made = efs.create_file_system(
        CreationToken=place.name(64),
        Encrypted=truth(properties.get("Encrypted", False)),
        PerformanceMode=properties.get("PerformanceMode", "generalPurpose"),
        ThroughputMode=properties.get("ThroughputMode", "bursting"),
        Tags=place.tags(properties.get("FileSystemTags")),
    )
    attributes = {"FileSystemId": made["FileSystemId"], "Arn": made["FileSystemArn"]}
    return Made(physical_id=made["FileSystemId"], attributes=attributes)


def _keep(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    """Change nothing: what AWS can change in place here is inert."""
    del place, old, new
    return made


def _delete_file_system(place: Place, made: Made, properties: Properties) -> None:
    del properties
    efs = place.aws.client("efs")
    unless_gone(("FileSystemNotFound",), efs.delete_file_system, FileSystemId=made.physical_id)


def _create_mount_target(place: Place, properties: Properties) -> Made:
    address = {"IpAddress": properties["IpAddress"]} if "IpAddress" in properties else {}
    made = place.aws.client("efs").create_mount_target(
        FileSystemId=properties["FileSystemId"],
        SubnetId=properties["SubnetId"],
        SecurityGroups=properties["SecurityGroups"],
        **address,
    )
    attributes = {"Id": made["MountTargetId"], "IpAddress": made["IpAddress"]}
    return Made(physical_id=made["MountTargetId"], attributes=attributes)


def _update_mount_target(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    place.aws.client("efs").modify_mount_target_security_groups(
        MountTargetId=made.physical_id, SecurityGroups=new["SecurityGroups"]
    )
    return made


def _delete_mount_target(place: Place, made: Made, properties: Properties) -> None:
    del properties
    efs = place.aws.client("efs")
    unless_gone(("MountTargetNotFound",), efs.delete_mount_target, MountTargetId=made.physical_id)


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


def _create_repository(place: Place, properties: Properties) -> Made:
    ecr = place.aws.client("ecr")
    name = properties.get("RepositoryName") or place.name().lower()
    made = ecr.create_repository(
        repositoryName=name,
        imageTagMutability=properties.get("ImageTagMutability", "MUTABLE"),
        tags=place.tags(properties.get("Tags")),
    )["repository"]
    return Made(
        physical_id=name, attributes={"Arn": made["repositoryArn"], "RepositoryUri": made["repositoryUri"]}
    )


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


_LIFECYCLE = "nothing here lives long enough to be moved or removed by age"

KINDS = (
    Kind(
        type="AWS::EFS::FileSystem",
        carried_out=frozenset({"FileSystemTags"}),
        inert={
            "Encrypted": NOTHING_TO_ENCRYPT,
            "BackupPolicy": _ONE_DISK,
            "LifecyclePolicies": _ONE_DISK,
            "PerformanceMode": _ONE_DISK,
            "ThroughputMode": _ONE_DISK,
            "FileSystemPolicy": "who may mount is decided by the security groups of the mount targets",
        },
        replaced_by=frozenset({"Encrypted", "PerformanceMode"}),
        attributes=frozenset({"FileSystemId", "Arn"}),
        create=_create_file_system,
        update=_keep,
        delete=_delete_file_system,
    ),
    Kind(
        type="AWS::EFS::MountTarget",
        carried_out=frozenset({"FileSystemId", "SubnetId", "SecurityGroups", "IpAddress"}),
        replaced_by=frozenset({"FileSystemId", "SubnetId", "IpAddress"}),
        attributes=frozenset({"Id", "IpAddress"}),
        create=_create_mount_target,
        update=_update_mount_target,
        delete=_delete_mount_target,
    ),
    Kind(
        type="AWS::S3::Bucket",
        carried_out=frozenset({"BucketName", "VersioningConfiguration", "PublicAccessBlockConfiguration", "Tags"}),
        inert={
            "BucketEncryption": NOTHING_TO_ENCRYPT,
            "LifecycleConfiguration": _LIFECYCLE,
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
    Kind(
        type="AWS::ECR::Repository",
        carried_out=frozenset({"RepositoryName", "ImageTagMutability"}),
        inert={
            "ImageScanningConfiguration": "images are kept, never run or scanned",
            "LifecyclePolicy": _LIFECYCLE,
            "RepositoryPolicyText": "access policies are not enforced",
            "Tags": TAGS_ONLY_ON_MAKING,
        },
        replaced_by=frozenset({"RepositoryName", "ImageTagMutability"}),
        attributes=frozenset({"Arn", "RepositoryUri"}),
        create=_create_repository,
        update=_keep,
        delete=_delete_repository,
    ),
    Kind(
        type="AWS::SSM::Parameter",
        carried_out=frozenset({"Name", "Type", "Value"}),
        inert={"Description": DESCRIPTION, "Tier": "all parameters cost nothing", "Tags": "parameters are found by name"},
        replaced_by=frozenset({"Name"}),
        attributes=frozenset({"Type", "Value"}),
        create=_put_parameter,
        update=_update_parameter,
        delete=_delete_parameter,
    ),
)
