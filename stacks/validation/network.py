"""Rules of the network: room for the workers, and addresses that do not clash."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from stacks.config import RESERVED_ADDRESSES, ClusterConfig
from stacks.validation.problem import Problem


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule of the network that the configuration breaks."""
    yield from _room(config)
    yield from _networks(config)


def _room(config: ClusterConfig) -> Iterator[Problem]:
    room = config.availability_zones * (2 ** (32 - config.private_prefix) - RESERVED_ADDRESSES)
    if config.max_workers > room:
        yield Problem(
            key="max_workers",
            value=config.max_workers,
            rule=f"the private subnets of vpc_cidr {config.vpc_cidr} hold {room} workers at most",
            remedy=f"set max_workers to {room} or less, or a wider vpc_cidr (a /16 at most)",
        )


def _networks(config: ClusterConfig) -> Iterator[Problem]:
    source, vpc = ipaddress.IPv4Network(config.ssh_cidr), ipaddress.IPv4Network(config.vpc_cidr)
    if source.prefixlen and source.overlaps(vpc):
        yield Problem(
            key="vpc_cidr",
            value=config.vpc_cidr,
            rule=f"overlaps ssh_cidr {config.ssh_cidr}: the master would look for you inside the VPC",
            remedy="set another private network, such as 10.64.0.0/16, or the public address from which you connect",
        )
