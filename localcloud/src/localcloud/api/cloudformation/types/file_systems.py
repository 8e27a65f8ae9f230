"""Resource types of EFS and FSx: file systems and their mount targets."""

from __future__ import annotations

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.access import require_enabled_key
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
    delete_with,
    given,
    names,
    shaped,
    truth,
)

_ONE_DISK = "a file system is a directory of this machine: no classes of storage, no rates to choose from, no backups"


_MOUNT_TARGET = names("FileSystemId SubnetId SecurityGroups IpAddress")
_THROUGHPUT = ("ThroughputMode", "ProvisionedThroughputInMibps")


def _create_file_system(context: Context, properties: Properties) -> Physical:
    efs = context.aws.client("efs")
    if "KmsKeyId" in properties:
        require_enabled_key(context, properties["KmsKeyId"])
    created = efs.create_file_system(
        CreationToken=context.name(64),
        Encrypted=truth(properties.get("Encrypted", False)),
        PerformanceMode=properties.get("PerformanceMode", "generalPurpose"),
        ThroughputMode=properties.get("ThroughputMode", "bursting"),
        Tags=context.tags(properties.get("FileSystemTags")),
        Backup=(properties.get("BackupPolicy") or {}).get("Status") == "ENABLED",
        **shaped(efs, "CreateFileSystem", given(properties, ("KmsKeyId", "ProvisionedThroughputInMibps"))),
    )
    attributes = {"FileSystemId": created["FileSystemId"], "Arn": created["FileSystemArn"]}
    return Physical(id=created["FileSystemId"], attributes=attributes)


def _update_file_system(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Update the throughput. Changes of other properties have no effect, unless they replace the file system."""
    if any(old.get(key) != new.get(key) for key in _THROUGHPUT):
        efs = context.aws.client("efs")
        values = {"ThroughputMode": "bursting", **given(new, _THROUGHPUT)}
        efs.update_file_system(FileSystemId=resource.id, **shaped(efs, "UpdateFileSystem", values))
    return resource


def _create_mount_target(context: Context, properties: Properties) -> Physical:
    created = context.aws.client("efs").create_mount_target(**given(properties, _MOUNT_TARGET))
    attributes = {"Id": created["MountTargetId"], "IpAddress": created["IpAddress"]}
    return Physical(id=created["MountTargetId"], attributes=attributes)


def _update_mount_target(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    context.aws.client("efs").modify_mount_target_security_groups(
        MountTargetId=resource.id, SecurityGroups=new["SecurityGroups"]
    )
    return resource


_LUSTRE_DISK = "a file system is a directory of this machine, as large and as fast as its disk"
_CONFIGURATION = "LustreConfiguration"


def _create_lustre(context: Context, properties: Properties) -> Physical:
    fsx = context.aws.client("fsx")
    if "KmsKeyId" in properties:
        require_enabled_key(context, properties["KmsKeyId"])
    values = {key: value for key, value in properties.items() if key != "Tags"}
    tags = context.user_tags(properties.get("Tags"))
    tagging = {"Tags": tags} if tags else {}
    created = fsx.create_file_system(**shaped(fsx, "CreateFileSystem", values), **tagging)["FileSystem"]
    return Physical(
        id=created["FileSystemId"],
        attributes={
            "Id": created["FileSystemId"],
            "DNSName": created["DNSName"],
            "LustreMountName": created[_CONFIGURATION]["MountName"],
            "ResourceARN": created["ResourceARN"],
        },
    )


def _update_lustre(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Accept changes of properties without effect. Raises ResourceError for a change of the deployment type."""
    before, after = ((each.get(_CONFIGURATION) or {}).get("DeploymentType") for each in (old, new))
    if before != after:
        raise ResourceError(
            f"The deployment type of a file system cannot change from {before} to {after}: "
            "remove the file system in one deployment and create the new one in the next"
        )
    return resource


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EFS::FileSystem",
        honoured=names("FileSystemTags"),
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
        replaced_by=names("Encrypted KmsKeyId PerformanceMode"),
        attributes=names("FileSystemId Arn"),
        create=_create_file_system,
        update=_update_file_system,
        delete=delete_with("efs", "delete_file_system", "FileSystemId", gone=("FileSystemNotFound",)),
    ),
    ResourceType(
        name="AWS::EFS::MountTarget",
        honoured=_MOUNT_TARGET,
        replaced_by=names("FileSystemId SubnetId IpAddress"),
        attributes=names("Id IpAddress"),
        create=_create_mount_target,
        update=_update_mount_target,
        delete=delete_with("efs", "delete_mount_target", "MountTargetId", gone=("MountTargetNotFound",)),
    ),
    ResourceType(
        name="AWS::FSx::FileSystem",
        honoured=names("FileSystemType SubnetIds SecurityGroupIds Tags"),
        inert={
            "FileSystemTypeVersion": "a directory has no version of Lustre",
            "KmsKeyId": f"the key must exist, but {NOTHING_TO_ENCRYPT}",
            "StorageCapacity": _LUSTRE_DISK,
            f"{_CONFIGURATION}.DeploymentType": _LUSTRE_DISK,
            f"{_CONFIGURATION}.PerUnitStorageThroughput": _LUSTRE_DISK,
            f"{_CONFIGURATION}.DataCompressionType": _LUSTRE_DISK,
        },
        refused={
            f"{_CONFIGURATION}.ImportPath": "its file systems are not linked with buckets",
            f"{_CONFIGURATION}.ExportPath": "its file systems are not linked with buckets",
            f"{_CONFIGURATION}.EfaEnabled": "its hosts have no EFA devices",
            "BackupId": "it keeps no backups",
        },
        replaced_by=names("FileSystemType KmsKeyId SecurityGroupIds SubnetIds"),
        attributes=names("Id DNSName LustreMountName ResourceARN"),
        create=_create_lustre,
        update=_update_lustre,
        delete=delete_with("fsx", "delete_file_system", "FileSystemId", gone=("FileSystemNotFound",)),
    ),
)
