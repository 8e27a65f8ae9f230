"""Resource types of EFS: file systems and their mount targets."""

from __future__ import annotations

from localcloud.api.cloudformation.types.kms import require
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Kind,
    Made,
    Place,
    Properties,
    keep,
    shaped,
    truth,
    unless_gone,
)

_ONE_DISK = "a file system is a directory of this machine: no classes of storage, no rates to choose from, no backups"


_GIVEN = ("KmsKeyId", "ProvisionedThroughputInMibps")


def _create_file_system(place: Place, properties: Properties) -> Made:
    efs = place.aws.client("efs")
    if "KmsKeyId" in properties:
        require(place, properties["KmsKeyId"])
    made = efs.create_file_system(
        CreationToken=place.name(64),
        Encrypted=truth(properties.get("Encrypted", False)),
        PerformanceMode=properties.get("PerformanceMode", "generalPurpose"),
        ThroughputMode=properties.get("ThroughputMode", "bursting"),
        Tags=place.tags(properties.get("FileSystemTags")),
        Backup=(properties.get("BackupPolicy") or {}).get("Status") == "ENABLED",
        **shaped(efs, "CreateFileSystem", {key: properties[key] for key in _GIVEN if key in properties}),
    )
    attributes = {"FileSystemId": made["FileSystemId"], "Arn": made["FileSystemArn"]}
    return Made(physical_id=made["FileSystemId"], attributes=attributes)


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


KINDS = (
    Kind(
        type="AWS::EFS::FileSystem",
        carried_out=frozenset({"FileSystemTags"}),
        inert={
            "Encrypted": NOTHING_TO_ENCRYPT,
            "KmsKeyId": f"the key must exist, but {NOTHING_TO_ENCRYPT}",
            "BackupPolicy": _ONE_DISK,
            "LifecyclePolicies": _ONE_DISK,
            "PerformanceMode": _ONE_DISK,
            "ProvisionedThroughputInMibps": _ONE_DISK,
            "ThroughputMode": _ONE_DISK,
            "FileSystemPolicy": "who may mount is decided by the security groups of the mount targets",
        },
        replaced_by=frozenset({"Encrypted", "KmsKeyId", "PerformanceMode"}),
        attributes=frozenset({"FileSystemId", "Arn"}),
        create=_create_file_system,
        update=keep,
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
)
