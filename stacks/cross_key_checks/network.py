"""Rules for the network: space for the workers, overlapping addresses, and keys that depend on each other."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from stacks.config import RESERVED_ADDRESSES, ClusterConfig
from stacks.config_keys.network import ONE_NAT_GATEWAY, S3_ENDPOINT, SESSION_MANAGER
from stacks.cross_key_checks.problem import Problem


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with the network."""
    yield from (_existing(config) if config.vpc_id else _own(config))
    yield from _sources(config)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield a caution if the configuration gives no access to the master."""
    if not config.is_reachable:
        yield Problem(
            key="ssh_cidr",
            value=config.ssh_cidr,
            rule="empty, like ssh_prefix_lists, so no network and no task can reach the master's SSH port",
            remedy="set ssh_cidr to the network from which you connect, such as your own address as a /32, "
            f"or ssh_access = {SESSION_MANAGER}",
        )


def _own(config: ClusterConfig) -> Iterator[Problem]:
    """Check the keys of a VPC that the stack creates.

    There must be no subnet IDs, as many zones as `availability_zones`, all in one region, and addresses for
    `max_workers`.
    """
    for key in ("public_subnet_ids", "private_subnet_ids"):
        ids = getattr(config, key)
        if ids:
            yield Problem(
                key=key,
                value=ids,
                rule="lists subnets of an existing VPC, but vpc_id is empty",
                remedy=f"set vpc_id too, or remove {key}",
            )
    if config.zones and len(config.zones) != config.availability_zones:
        yield Problem(
            key="zones",
            value=config.zones,
            rule=f"must list as many zones as availability_zones ({config.availability_zones}), but lists "
            f"{len(config.zones)}",
            remedy=f"list {config.availability_zones}, or set availability_zones to {len(config.zones)}",
        )
    if len({name[:-1] for name in config.zones}) > 1:
        rule = "lists zones of several regions"
        yield Problem(key="zones", value=config.zones, rule=rule, remedy="list zones of one region")
    room = config.availability_zones * (2 ** (32 - config.private_prefix) - RESERVED_ADDRESSES)
    if config.max_workers > room:
        yield Problem(
            key="max_workers",
            value=config.max_workers,
            rule=f"the private subnets of vpc_cidr {config.vpc_cidr} have addresses for {room} workers",
            remedy=f"set max_workers to {room} or less, or a larger vpc_cidr (at most a /16)",
        )


def _existing(config: ClusterConfig) -> Iterator[Problem]:
    """Check the keys of an existing VPC. `fab doctor` checks what needs access to AWS.

    There must be a private subnet per zone, public subnets if and only if the SSH port is open, no subnet of both
    kinds, and no keys that are only for a new VPC.
    """
    public, private = config.public_subnet_ids, config.private_subnet_ids
    if len(private) != config.availability_zones:
        yield Problem(
            key="private_subnet_ids",
            value=private,
            rule=f"must list as many subnets as availability_zones ({config.availability_zones}), but lists "
            f"{len(private)}: each zone needs one for workers and the file system's mount target",
            remedy="list one private subnet of vpc_id for each zone, or set availability_zones to their number",
        )
    if config.opens_ssh_port and not public:
        yield Problem(
            key="public_subnet_ids",
            value=public,
            rule=f"empty, but a master with an open SSH port needs a public subnet of {config.vpc_id}",
            remedy=f"list a public subnet, or set ssh_access = {SESSION_MANAGER}, which needs none",
        )
    if public and not config.opens_ssh_port:
        yield Problem(
            key="public_subnet_ids",
            value=public,
            rule=f"has no effect: with ssh_access = {SESSION_MANAGER}, the master is in a private subnet",
            remedy="remove public_subnet_ids",
        )
    both = sorted(set(public) & set(private))
    if both:
        yield Problem(
            key="private_subnet_ids",
            value=private,
            rule=f"{', '.join(both)} is in public_subnet_ids too: a subnet is either public or private",
            remedy="list each subnet in only one of the two keys",
        )
    if config.vpc_endpoints not in ((), (S3_ENDPOINT,)):  # the default is permitted too, as for nat_gateways
        yield Problem(
            key="vpc_endpoints",
            value=config.vpc_endpoints,
            rule=f"has no effect in the existing {config.vpc_id}: a second endpoint of a service would conflict",
            remedy="remove vpc_endpoints, and add missing endpoints to the VPC yourself",
        )
    if config.zones:
        yield Problem(
            key="zones",
            value=config.zones,
            rule=f"has no effect in the existing {config.vpc_id}, whose subnets determine the zones",
            remedy="remove zones, and list subnets in the zones that you want",
        )
    if config.nat_gateways != ONE_NAT_GATEWAY:
        yield Problem(
            key="nat_gateways",
            value=config.nat_gateways,
            rule=f"has no effect in the existing {config.vpc_id}, which has its own routes and NAT gateways",
            remedy="remove nat_gateways",
        )


def _sources(config: ClusterConfig) -> Iterator[Problem]:
    """Check the networks that SSH is allowed from.

    Without an SSH port there must be none, because they would have no effect. With one, no `ssh_cidr` except 0.0.0.0/0
    may overlap the VPC.
    """
    if not config.opens_ssh_port:
        for key in ("ssh_cidr", "ssh_prefix_lists"):
            value = getattr(config, key)
            if value:
                yield Problem(
                    key=key,
                    value=value,
                    rule=f"has no effect: with ssh_access = {SESSION_MANAGER}, no port is open to any network",
                    remedy=f"remove {key}; on a command line: --set {key}=",
                )
        return
    vpc = ipaddress.IPv4Network(config.vpc_cidr)
    for text in config.ssh_cidr:
        source = ipaddress.IPv4Network(text)
        if source.prefixlen and source.overlaps(vpc):
            yield Problem(
                key="vpc_cidr",
                value=config.vpc_cidr,
                rule=f"overlaps ssh_cidr {text}, so the master's answers to you would stay inside the VPC",
                remedy=("" if config.vpc_id else "set another vpc_cidr, such as 10.64.0.0/16, or ")
                + "set ssh_cidr to the public address from which you connect",
            )
