"""Resource types of EFS: file systems and their mount targets."""

from __future__ import annotations

from localcloud.api.cloudformation.types.handlers import delete_with, shaped, truth
from localcloud.api.cloudformation.types.kms import require
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
)

_ONE_DISK = "a file system is a directory of this machine: no classes of storage, no rates to choose from, no backups"


_THROUGHPUT = ("ThroughputMode", "ProvisionedThroughputInMibps")
_GIVEN = ("KmsKeyId", "ProvisionedThroughputInMibps")


def _create_file_system(context: Context, properties: Properties) -> Physical:
    efs = context.aws.client("efs")
    if "KmsKeyId" in properties:
        require(context, properties["KmsKeyId"])
    created = efs.create_file_system(
        CreationToken=context.name(64),
        Encrypted=truth(properties.get("Encrypted", False)),
        PerformanceMode=properties.get("PerformanceMode", "generalPurpose"),
        ThroughputMode=properties.get("ThroughputMode", "bursting"),
        Tags=context.tags(properties.get("FileSystemTags")),
        Backup=(properties.get("BackupPolicy") or {}).get("Status") == "ENABLED",
        **shaped(efs, "CreateFileSystem", {key: properties[key] for key in _GIVEN if key in properties}),
    )
    attributes = {"FileSystemId": created["FileSystemId"], "Arn": created["FileSystemArn"]}
    return Physical(id=created["FileSystemId"], attributes=attributes)


def _update_file_system(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Change the throughput, which is all that can change in place and that EFS has rules for."""
    if any(old.get(key) != new.get(key) for key in _THROUGHPUT):
        efs = context.aws.client("efs")
        given = {"ThroughputMode": "bursting"} | {key: new[key] for key in _THROUGHPUT if key in new}
        efs.update_file_system(FileSystemId=resource.id, **shaped(efs, "UpdateFileSystem", given))
    return resource


def _create_mount_target(context: Context, properties: Properties) -> Physical:
    address = {"IpAddress": properties["IpAddress"]} if "IpAddress" in properties else {}
    created = context.aws.client("efs").create_mount_target(
        FileSystemId=properties["FileSystemId"],
        SubnetId=properties["SubnetId"],
        SecurityGroups=properties["SecurityGroups"],
        **address,
    )
    attributes = {"Id": created["MountTargetId"], "IpAddress": created["IpAddress"]}
    return Physical(id=created["MountTargetId"], attributes=attributes)


def _update_mount_target(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    context.aws.client("efs").modify_mount_target_security_groups(
        MountTargetId=resource.id, SecurityGroups=new["SecurityGroups"]
    )
    return resource


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EFS::FileSystem",
        rules={
            "KmsKeyId": "exists and is enabled",
            "ThroughputMode": "changed once in a day",
            "ProvisionedThroughputInMibps": "decreased once in a day",
        },
        honoured=frozenset({"FileSystemTags"}),
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
        update=_update_file_system,
        delete=delete_with("efs", "delete_file_system", "FileSystemId", gone=("FileSystemNotFound",)),
    ),
    ResourceType(
        name="AWS::EFS::MountTarget",
        rules={
            "FileSystemId": "exists",
            "SubnetId": "exists; one for each zone, all in one VPC",
            "SecurityGroups": "exist; five at most",
            "IpAddress": "within the subnet",
        },
        honoured=frozenset({"FileSystemId", "SubnetId", "SecurityGroups", "IpAddress"}),
        replaced_by=frozenset({"FileSystemId", "SubnetId", "IpAddress"}),
        attributes=frozenset({"Id", "IpAddress"}),
        create=_create_mount_target,
        update=_update_mount_target,
        delete=delete_with("efs", "delete_mount_target", "MountTargetId", gone=("MountTargetNotFound",)),
    ),
)
