"""Rules for the network: space for the workers, overlapping addresses, and keys that depend on each other."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from stacks.config import RESERVED_ADDRESSES, ClusterConfig
from stacks.config_keys.network import ONE_NAT_GATEWAY, S3_ENDPOINT, SESSION_MANAGER
from stacks.validation.problem import Problem


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with the network."""
    yield from (_existing(config) if config.vpc_id else _own(config))
    yield from _sources(config)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield a caution if the master cannot be reached."""
    if not config.is_reachable:
        yield Problem(
            key="ssh_cidr",
            value=config.ssh_cidr,
            rule="empty, as ssh_prefix_lists is: the SSH port is open to no network, and no task reaches the master",
            remedy="set ssh_cidr to the network from which you connect, such as your own address as a /32, "
            f"or ssh_access = {SESSION_MANAGER}",
        )


def _own(config: ClusterConfig) -> Iterator[Problem]:
    """Check the keys of a VPC that the stack creates."""
    for key in ("public_subnet_ids", "private_subnet_ids"):
        ids = getattr(config, key)
        if ids:
            yield Problem(
                key=key,
                value=ids,
                rule="are subnets of an existing VPC, and vpc_id names none",
                remedy=f"set vpc_id too, or leave {key} out",
            )
    if config.zones and len(config.zones) != config.availability_zones:
        yield Problem(
            key="zones",
            value=config.zones,
            rule=f"must be as many as availability_zones ({config.availability_zones})",
            remedy=f"name {config.availability_zones}, or set availability_zones to {len(config.zones)}",
        )
    if len({name[:-1] for name in config.zones}) > 1:
        yield Problem(key="zones", value=config.zones, rule="lie in several regions", remedy="name zones of one region")
    room = config.availability_zones * (2 ** (32 - config.private_prefix) - RESERVED_ADDRESSES)
    if config.max_workers > room:
        yield Problem(
            key="max_workers",
            value=config.max_workers,
            rule=f"the private subnets of vpc_cidr {config.vpc_cidr} hold {room} workers at most",
            remedy=f"set max_workers to {room} or less, or a wider vpc_cidr (a /16 at most)",
        )


def _existing(config: ClusterConfig) -> Iterator[Problem]:
    """Check the keys of an existing VPC, as far as possible without access to AWS."""
    public, private = config.public_subnet_ids, config.private_subnet_ids
    if len(private) != config.availability_zones:
        yield Problem(
            key="private_subnet_ids",
            value=private,
            rule=f"must be one for each of availability_zones ({config.availability_zones}), "
            "where the workers and the file system's mount targets are",
            remedy="list one private subnet of vpc_id for each zone, or set availability_zones to their number",
        )
    if config.opens_ssh_port and not public:
        yield Problem(
            key="public_subnet_ids",
            value=public,
            rule=f"missing: the master, which is reached at its SSH port, needs a public subnet of {config.vpc_id}",
            remedy=f"list one, or set ssh_access = {SESSION_MANAGER}, which needs none",
        )
    if public and not config.opens_ssh_port:
        yield Problem(
            key="public_subnet_ids",
            value=public,
            rule=f"nothing would be in them: with ssh_access = {SESSION_MANAGER} the master is in a private subnet",
            remedy="leave them out",
        )
    both = sorted(set(public) & set(private))
    if both:
        yield Problem(
            key="private_subnet_ids",
            value=private,
            rule=f"{', '.join(both)} is in public_subnet_ids too: a subnet is either public or private",
            remedy="list it once",
        )
    if config.vpc_endpoints not in ((), (S3_ENDPOINT,)):  # the default is permitted too, as for nat_gateways
        yield Problem(
            key="vpc_endpoints",
            value=config.vpc_endpoints,
            rule=f"{config.vpc_id} has its own endpoints: a second one of a service would clash with the first",
            remedy="leave vpc_endpoints out, and add to the VPC what it lacks",
        )
    if config.zones:
        yield Problem(
            key="zones",
            value=config.zones,
            rule=f"are for a VPC that is created; those of {config.vpc_id} are its subnets'",
            remedy="leave zones out, and name subnets of the zones that you want",
        )
    if config.nat_gateways != ONE_NAT_GATEWAY:
        yield Problem(
            key="nat_gateways",
            value=config.nat_gateways,
            rule=f"{config.vpc_id} has its own routes: no NAT gateway is made in an existing VPC",
            remedy="leave nat_gateways out",
        )


def _sources(config: ClusterConfig) -> Iterator[Problem]:
    """Check the networks that SSH is allowed from."""
    if not config.opens_ssh_port:
        for key in ("ssh_cidr", "ssh_prefix_lists"):
            value = getattr(config, key)
            if value:
                yield Problem(
                    key=key,
                    value=value,
                    rule=f"with ssh_access = {SESSION_MANAGER} no port is open to any network",
                    remedy=f"leave {key} out; on a command line: --set {key}=",
                )
        return
    vpc = ipaddress.IPv4Network(config.vpc_cidr)
    for text in config.ssh_cidr:
        source = ipaddress.IPv4Network(text)
        if source.prefixlen and source.overlaps(vpc):
            yield Problem(
                key="vpc_cidr",
                value=config.vpc_cidr,
                rule=f"overlaps ssh_cidr {text}: the master would look for you inside the VPC",
                remedy="set another private network, such as 10.64.0.0/16, "
                "or the public address from which you connect",
            )
