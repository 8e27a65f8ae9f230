"""Resource types of FSx: Lustre file systems."""

from __future__ import annotations

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.kms import require
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Kind,
    Made,
    Place,
    Properties,
    shaped,
    unless_gone,
)

_ONE_DISK = "a file system is a directory of this machine, as large and as fast as its disk"
_CONFIGURATION = "LustreConfiguration"


def _create_file_system(place: Place, properties: Properties) -> Made:
    fsx = place.aws.client("fsx")
    if "KmsKeyId" in properties:
        require(place, properties["KmsKeyId"])
    values = {key: value for key, value in properties.items() if key != "Tags"}
    # Only CloudFormation itself may set tags that begin with `aws:`, and moto takes its calls for anybody's.
    tags = [tag for tag in place.tags(properties.get("Tags")) if not tag["Key"].startswith("aws:")]
    tagging = {"Tags": tags} if tags else {}
    made = fsx.create_file_system(**shaped(fsx, "CreateFileSystem", values), **tagging)["FileSystem"]
    return Made(
        physical_id=made["FileSystemId"],
        attributes={
            "Id": made["FileSystemId"],
            "DNSName": made["DNSName"],
            "LustreMountName": made[_CONFIGURATION]["MountName"],
            "ResourceARN": made["ResourceARN"],
        },
    )


def _update_file_system(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    """Change nothing but what is inert; a file system of another deployment type would be another one."""
    del place
    before, after = ((each.get(_CONFIGURATION) or {}).get("DeploymentType") for each in (old, new))
    if before != after:
        raise ResourceError(
            f"The deployment type of a file system cannot change from {before} to {after}: "
            "remove the file system in one deployment and make the other in the next"
        )
    return made


def _delete_file_system(place: Place, made: Made, properties: Properties) -> None:
    del properties
    fsx = place.aws.client("fsx")
    unless_gone(("FileSystemNotFound",), fsx.delete_file_system, FileSystemId=made.physical_id)


KINDS = (
    Kind(
        type="AWS::FSx::FileSystem",
        carried_out=frozenset({"FileSystemType", "SubnetIds", "SecurityGroupIds", "Tags"}),
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
        delete=_delete_file_system,
    ),
)
