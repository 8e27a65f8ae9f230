"""Resource types of FSx: Lustre file systems."""

from __future__ import annotations

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.handlers import delete_with, shaped
from localcloud.api.cloudformation.types.kms import require
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
)

_ONE_DISK = "a file system is a directory of this machine, as large and as fast as its disk"
_CONFIGURATION = "LustreConfiguration"


def _create_file_system(context: Context, properties: Properties) -> Physical:
    fsx = context.aws.client("fsx")
    if "KmsKeyId" in properties:
        require(context, properties["KmsKeyId"])
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


def _update_file_system(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Change nothing but what is inert; a file system of another deployment type would be another one."""
    before, after = ((each.get(_CONFIGURATION) or {}).get("DeploymentType") for each in (old, new))
    if before != after:
        raise ResourceError(
            f"The deployment type of a file system cannot change from {before} to {after}: "
            "remove the file system in one deployment and make the other in the next"
        )
    return resource


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::FSx::FileSystem",
        rules={
            "FileSystemType": "LUSTRE",
            "FileSystemTypeVersion": "2.12 or 2.15 with PERSISTENT_2",
            "StorageCapacity": "1200 or a multiple of 2400",
            "SubnetIds": "one, which exists",
            "SecurityGroupIds": "exist in the VPC; let LNET through on port 988",
            "KmsKeyId": "exists and is enabled",
            "LustreConfiguration.DeploymentType": "SCRATCH_2, PERSISTENT_1 or PERSISTENT_2",
            "LustreConfiguration.PerUnitStorageThroughput": "one of the deployment type's",
        },
        honoured=frozenset({"FileSystemType", "SubnetIds", "SecurityGroupIds", "Tags"}),
        inert={
            "FileSystemTypeVersion": "a directory has no version of Lustre",
            "KmsKeyId": f"the key must exist, but {NOTHING_TO_ENCRYPT}",
            "StorageCapacity": _ONE_DISK,
            f"{_CONFIGURATION}.DeploymentType": _ONE_DISK,
            f"{_CONFIGURATION}.PerUnitStorageThroughput": _ONE_DISK,
            f"{_CONFIGURATION}.DataCompressionType": _ONE_DISK,
        },
        refused={
            f"{_CONFIGURATION}.ImportPath": "its file systems are not linked with buckets",
            f"{_CONFIGURATION}.ExportPath": "its file systems are not linked with buckets",
            f"{_CONFIGURATION}.EfaEnabled": "its hosts have no EFA devices",
            "BackupId": "it keeps no backups",
        },
        replaced_by=frozenset({"FileSystemType", "KmsKeyId", "SecurityGroupIds", "SubnetIds"}),
        attributes=frozenset({"Id", "DNSName", "LustreMountName", "ResourceARN"}),
        create=_create_file_system,
        update=_update_file_system,
        delete=delete_with("fsx", "delete_file_system", "FileSystemId", gone=("FileSystemNotFound",)),
    ),
)
