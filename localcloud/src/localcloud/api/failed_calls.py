"""A call that fails has made nothing, as on AWS.

moto registers what it makes before it has looked at all of a request: a launch that it refuses leaves an instance in
the subnet, a NAT gateway its interface, a mount target its place in the file system, and none of them can be deleted.
Of several rules of a security group it keeps those before the one that it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

SERVICES: Final = ("ec2", "autoscaling", "elasticfilesystem", "fsx")
"""Signing names of the services whose calls make instances, interfaces or mount targets."""
_REGISTRIES: Final = ("reservations", "enis", "volumes", "nat_gateways", "tags")


def mark(ec2: Any, efs: Any) -> Callable[[], None]:
    """Return a function that removes the instances, interfaces, mount targets and rules that came after this call.

    Both are to happen under the lock of the API. Copying costs some microseconds for a hundred instances.
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
    """Yield the rules of each security group."""
    for groups in ec2.groups.values():
        for group in groups.values():
            yield from (group.ingress_rules, group.egress_rules)


def _registries(ec2: Any, efs: Any) -> Iterator[dict[Any, Any]]:
    """Yield what moto keeps them in, and the addresses that each subnet has given out."""
    for name in _REGISTRIES:
        yield getattr(ec2, name)
    for zone in ec2.subnets.values():
        for subnet in zone.values():
            yield subnet._subnet_ips
    for system in efs.file_systems_by_id.values():
        yield system._mount_targets
