"""EFS's UpdateFileSystem, which moto lacks, and what EFS refuses: two changes of the throughput in a day, groups of
another VPC.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from moto.core.exceptions import JsonRESTError
from moto.efs.exceptions import FileSystemNotFound, SecurityGroupNotFound
from moto.efs.models import EFSBackend
from moto.efs.responses import EFSResponse

from localcloud.api.error_replies import WrongMotoError
from localcloud.api.monkeypatch import check_first

_DAY_S: Final = 24 * 3600.0
_CHANGED: Final = "_throughput_changed"


def apply() -> None:
    """Correct moto."""
    name = update_file_system.__name__
    if hasattr(EFSResponse, name):
        raise WrongMotoError(f"with EFSResponse.{name}", "without it")
    setattr(EFSResponse, name, update_file_system)
    check_first(EFSBackend, "create_mount_target", _check_groups)


def _check_groups(
    efs: Any, file_system_id: str, subnet_id: str, ip_address: str | None = None, security_groups: Any = None
) -> None:
    """Refuse security groups of another VPC than the subnet's."""
    ec2 = efs.ec2_backend
    subnet = next((found[subnet_id] for found in ec2.subnets.values() if subnet_id in found), None)
    if subnet is None:
        return  # moto refuses it itself
    for group in security_groups or ():
        if group not in ec2.groups.get(subnet.vpc_id, {}):
            raise SecurityGroupNotFound(group)


def update_file_system(self: Any) -> tuple[str, dict[str, Any]]:
    """Answer UpdateFileSystem: change the throughput mode, and how much is provisioned."""
    id = self._get_param("FileSystemId")
    system = self.efs_backend.file_systems_by_id.get(id)
    if system is None:
        raise FileSystemNotFound(id)
    mode = self._get_param("ThroughputMode") or system.throughput_mode
    amount = self._get_param("ProvisionedThroughputInMibps")
    _check(system, mode, amount)
    if (mode == "provisioned") != (amount is not None) and mode != system.throughput_mode:
        raise JsonRESTError(
            "BadRequest", "ProvisionedThroughputInMibps goes with the throughput mode provisioned, and with it alone."
        )
    system.throughput_mode = mode
    system.provisioned_throughput_in_mibps = amount if mode == "provisioned" else None
    return json.dumps(system.info_json()), {"status": 202, "Content-Type": "application/json"}


def _check(system: Any, mode: str, amount: float | None) -> None:
    """Refuse another mode, and less provisioned throughput, within a day of such a change."""
    before = system.provisioned_throughput_in_mibps
    less = amount is not None and before is not None and float(amount) < float(before)
    if mode == system.throughput_mode and not less:
        return
    if time.time() - getattr(system, _CHANGED, 0.0) < _DAY_S:
        # The API reference has the rule and the code; no text of the error was found.
        raise JsonRESTError(
            "TooManyRequests",
            "You can change the throughput mode, or decrease the provisioned throughput, 24 hours after the last such "
            "change.",
        )
    setattr(system, _CHANGED, time.time())
