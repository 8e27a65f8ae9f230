"""FSx for Lustre: file systems with an address in a subnet, behind security groups.

moto accepts any value of a file system and assigns no address. The other types of FSx are rejected, because the
embedded cloud has no servers for them.
"""

from __future__ import annotations

import time
from typing import Any, Final

from moto.core.exceptions import JsonRESTError
from moto.ec2.exceptions import InvalidSubnetIdError
from moto.ec2.models import ec2_backends
from moto.fsx import models

from localcloud.api.monkeypatch import around

_PORT: Final = 988
_THROUGHPUTS: Final = {"SCRATCH_2": (None,), "PERSISTENT_1": (50, 100, 200), "PERSISTENT_2": (125, 250, 500, 1000)}
"""MB/s per TiB by deployment type. SCRATCH_1 is not supported, because its links to S3 differ."""


_VERSIONS_OF_PERSISTENT_2: Final = ("2.12", "2.15")
_LINKS: Final = frozenset({"AutoImportPolicy", "ExportPath", "ImportPath", "ImportedFileChunkSize"})


class BadRequest(JsonRESTError):
    """A file system that FSx rejects, or that is not supported."""

    def __init__(self, message: str) -> None:
        super().__init__("BadRequest", message)


@around(models.FSxBackend, "create_file_system")
def _create_file_system(original: Any, self: Any, **values: Any) -> Any:
    ec2 = ec2_backends[self.account_id][self.region_name]
    configuration = check(values)
    subnet = _subnet(ec2, values.get("subnet_ids") or [])
    groups = list(values.get("security_group_ids") or [])
    _check_groups(ec2, subnet.vpc_id, groups)
    system: Any = original(self, **{**values, "security_group_ids": groups})
    system.lustre_configuration = {**configuration, "MountName": system.file_system_id[3:].replace("-", "")}
    system.interface = ec2.create_network_interface(subnet, "", group_ids=groups or None)
    system.created = time.time()
    system.version = values.get("file_system_type_version") or "2.12"
    return system


@around(models.FSxBackend, "delete_file_system")
def _delete_file_system(original: Any, self: Any, file_system_id: str, *args: Any, **kwargs: Any) -> Any:
    system = self.file_systems.get(file_system_id)
    answer = original(self, file_system_id, *args, **kwargs)
    if system is not None:
        system.interface.subnet.del_subnet_ip(system.interface.private_ip_address)
        ec2_backends[self.account_id][self.region_name].delete_network_interface(system.interface.id)
    return answer


@around(models.FileSystem, "to_dict")
def _to_dict(original: Any, self: Any) -> dict[str, Any]:
    return {
        **original(self),
        "CreationTime": self.created,
        "FileSystemTypeVersion": self.version,
        "Lifecycle": "AVAILABLE",
        "NetworkInterfaceIds": [self.interface.id],
        "OwnerId": self.backend.account_id,
        "VpcId": self.interface.subnet.vpc_id,
    }


def check(values: dict[str, Any]) -> dict[str, Any]:
    """Check the parameters of CreateFileSystem (`values`, with moto's names); return their Lustre configuration.

    Raises BadRequest for parameters that are invalid on AWS or not supported here. Subnet and groups are not checked.
    """
    if values.get("file_system_type") != "LUSTRE":
        raise BadRequest(
            f"The embedded cloud does not support file systems of the type {values.get('file_system_type')}, only "
            "LUSTRE."
        )
    given = dict(values.get("lustre_configuration") or {})
    deployment = given.get("DeploymentType", "SCRATCH_1")
    if deployment not in _THROUGHPUTS:
        raise BadRequest(
            f"The embedded cloud does not support Lustre file systems of the deployment type {deployment}, only "
            f"{', '.join(_THROUGHPUTS)}."
        )
    possible = _THROUGHPUTS[deployment]
    if given.get("PerUnitStorageThroughput") not in possible:
        rule = "not be set" if possible == (None,) else f"be one of {', '.join(map(str, possible))} (MB/s per TiB)"
        raise BadRequest(f"PerUnitStorageThroughput must {rule} for {deployment}.")
    capacity = values.get("storage_capacity") or 0
    if capacity != 1200 and (capacity <= 0 or capacity % 2400):
        raise BadRequest(f"StorageCapacity {capacity}: must be 1200 or a multiple of 2400 (GiB).")
    _check_persistence(deployment, given, values.get("file_system_type_version"))
    return given


def _check_persistence(deployment: str, given: dict[str, Any], version: str | None) -> None:
    """Raise BadRequest for options that conflict with the deployment type according to the API reference.

    AWS's error texts are not known.
    """
    if deployment == "PERSISTENT_2":
        if version is not None and version not in _VERSIONS_OF_PERSISTENT_2:
            raise BadRequest(
                f"FileSystemTypeVersion {version} with PERSISTENT_2: must be {' or '.join(_VERSIONS_OF_PERSISTENT_2)}."
            )
        if linked := sorted(_LINKS & given.keys()):
            raise BadRequest(
                f"{linked[0]} is not supported with PERSISTENT_2. AWS offers data repository associations instead."
            )
    if deployment.startswith("SCRATCH") and given.get("AutomaticBackupRetentionDays"):
        raise BadRequest(f"AutomaticBackupRetentionDays is not supported with {deployment}, which has no backups.")


def _subnet(ec2: Any, ids: list[str]) -> Any:
    if len(ids) != 1:
        raise BadRequest(f"A Lustre file system needs exactly one subnet, but SubnetIds has {len(ids)}.")
    try:
        return ec2.get_subnet(ids[0])
    except InvalidSubnetIdError:
        raise JsonRESTError("InvalidNetworkSettings", f"The subnet {ids[0]} does not exist.") from None


def _check_groups(ec2: Any, vpc_id: str, ids: list[str]) -> None:
    """Raise FSx's error for unknown security groups, and for groups that block traffic between the file servers."""
    groups = [ec2.get_security_group_from_id(id) for id in ids]
    for id, group in zip(ids, groups, strict=True):
        if group is None or group.vpc_id != vpc_id:
            raise JsonRESTError("InvalidNetworkSettings", f"The security group {id} does not exist in {vpc_id}.")
    for side in ("ingress_rules", "egress_rules"):
        rules = [rule for group in groups for rule in getattr(group, side)]
        if groups and not any(_permits(rule, set(ids)) for rule in rules):
            raise JsonRESTError(
                "InvalidNetworkSettings",
                "The file system cannot be created because the provided security groups do not permit Lustre LNET "
                f"network traffic on port {_PORT} ({side.replace('_', ' ')}).",
            )


def _permits(rule: Any, ids: set[str]) -> bool:
    """Return whether a rule allows Lustre's port from one of the groups or from a network."""
    every = rule.ip_protocol in ("-1", None)
    fits = every or (rule.ip_protocol == "tcp" and int(rule.from_port) <= _PORT <= int(rule.to_port))
    among = bool(rule.source_group) and rule.source_group["GroupId"] in ids
    return fits and (among or bool(rule.ip_range.get("CidrIp")))
