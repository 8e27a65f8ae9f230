"""A call that fails has made nothing, as on AWS.

moto registers what it makes before it has looked at all of a request: a launch that it refuses leaves an instance in
the subnet, a NAT gateway its interface, a mount target its place in the file system, and none of them can be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

SERVICES: Final = ("ec2", "autoscaling", "elasticfilesystem", "fsx")
"""Signing names of the services whose calls make instances, interfaces or mount targets."""
_REGISTRIES: Final = ("reservations", "enis", "volumes", "nat_gateways", "tags")


def mark(ec2: Any, efs: Any) -> Callable[[], None]:
    """Return a function that removes the instances, interfaces and mount targets that were registered after this call.

    Both are to happen under the lock of the API. Copying costs some microseconds for a hundred instances.
    """
    kept = [(registry, dict(registry)) for registry in _registries(ec2, efs)]

    def undo() -> None:
        for registry, content in kept:
            registry.clear()
            registry.update(content)

    return undo


def _registries(ec2: Any, efs: Any) -> Iterator[dict[Any, Any]]:
    """Yield what moto keeps them in, and the addresses that each subnet has given out."""
    for name in _REGISTRIES:
        yield getattr(ec2, name)
    for zone in ec2.subnets.values():
        for subnet in zone.values():
            yield subnet._subnet_ips
    for system in efs.file_systems_by_id.values():
        yield system._mount_targets
