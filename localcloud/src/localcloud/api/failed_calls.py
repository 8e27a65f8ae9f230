"""Removal of everything that a failed call created, because on AWS a failed call creates nothing.

moto creates objects before it has checked the whole request. A rejected launch leaves an instance in the subnet, a NAT
gateway its interface, and a mount target its entry in the file system. These cannot be deleted later. If one of several
security group rules is rejected, the earlier ones stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

SERVICES: Final = ("ec2", "autoscaling", "elasticfilesystem", "fsx")
"""Signing names of the services whose calls create instances, interfaces or mount targets."""
_REGISTRIES: Final = ("reservations", "enis", "volumes", "nat_gateways", "tags")


def mark(ec2: Any, efs: Any) -> Callable[[], None]:
    """Remember the state before a call; return a function that removes everything created since then.

    It removes instances, volumes, interfaces, NAT gateways, mount targets, tags and security group rules, and frees
    the subnets' addresses. Hold the API's lock until the function has returned. Otherwise other calls are undone, too.
    Copying takes some microseconds for a hundred instances.
    """
    kept = [(registry, dict(registry)) for registry in _registries(ec2, efs)]
    kept_rules = [(rules, list(rules)) for rules in _rules(ec2)]

    def undo() -> None:
        for registry, content in kept:
            registry.clear()
            registry.update(content)
        for rules, before in kept_rules:
            rules[:] = before

    return undo


def _rules(ec2: Any) -> Iterator[list[Any]]:
    """Yield the rule lists of each security group."""
    for groups in ec2.groups.values():
        for group in groups.values():
            yield from (group.ingress_rules, group.egress_rules)


def _registries(ec2: Any, efs: Any) -> Iterator[dict[Any, Any]]:
    """Yield moto's dictionaries of instances, interfaces and mount targets, and of subnets' used addresses."""
    for name in _REGISTRIES:
        yield getattr(ec2, name)
    for zone in ec2.subnets.values():
        for subnet in zone.values():
            yield subnet._subnet_ips
    for system in efs.file_systems_by_id.values():
        yield system._mount_targets
