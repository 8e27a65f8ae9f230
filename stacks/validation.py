"""Rules that bind several values, or a value to the table of instance types: checked at synth, before any spend.

A value that is wrong by itself fails where ClusterConfig is built. Here every problem is listed, so that one run tells
them all. No AWS is asked.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator

from stacks import images
from stacks.config import RESERVED_ADDRESSES, ClusterConfig, ConfigError
from stacks.instance_types import InstanceType, find, nearest, origin


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One rule that the configuration breaks."""

    key: str
    value: object
    rule: str
    remedy: str

    def __str__(self) -> str:
        """Return two lines: what is wrong, and what to do."""
        return f"cluster.{self.key} = {self.value!r}: {self.rule}\n    do: {self.remedy}"


class InvalidClusterError(ConfigError):
    """Report every problem of a configuration. Carries `problems`; key, value and rule are those of the first."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].key, problems[0].value, problems[0].rule)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """Return a count and all problems."""
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        listed = "\n".join(f"  {problem}" for problem in self.problems)
        return f"{count} in the configuration; nothing was deployed\n{listed}"


def validate(config: ClusterConfig) -> None:
    """Raise InvalidClusterError with all problems of a configuration, if it has any."""
    problems = list(check(config))
    if problems:
        raise InvalidClusterError(problems)


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule that the configuration breaks."""
    for role in ("master", "worker"):
        yield from _instance_type(config, role)
        yield from _image(config, role)
    yield from _placement(config)
    yield from _efa(config)
    yield from _room(config)
    yield from _networks(config)


def _instance_type(config: ClusterConfig, role: str) -> Iterator[Problem]:
    key = f"{role}_instance_type"
    name = getattr(config, key)
    if find(name) is None and not config.allow_unknown_instance_types:
        near = nearest(name)
        yield Problem(
            key=key,
            value=name,
            rule=f"not in the table of instance types ({origin()}); the nearest is {near}",
            remedy=f"set {near}; for a type that is newer than the table, run `python -m tools.instance_types`; "
            "to deploy it without the checks that need the table, set allow_unknown_instance_types = true",
        )


def _image(config: ClusterConfig, role: str) -> Iterator[Problem]:
    """Compare an image's processor, as its parameter's name tells it, with that of the instance type."""
    key = f"{role}_image_parameter"
    parameter = getattr(config, key)
    kind = find(getattr(config, f"{role}_instance_type"))
    if kind is None:
        return
    built_for = images.architecture(parameter)
    if built_for and built_for not in kind.architectures:
        yield Problem(
            key=key,
            value=parameter,
            rule=f"an image for {built_for}, but {kind.name} has {_processor(kind)} processors",
            remedy=f"name an image for {_processor(kind)}, or an instance type with {built_for} processors",
        )


def _placement(config: ClusterConfig) -> Iterator[Problem]:
    """Check what a cluster placement group asks of the instance type and the zones."""
    if not config.clustered:
        return
    key = "efa" if config.efa else "placement_group"
    kind = find(config.worker_instance_type)
    if kind is not None and "cluster" not in kind.placements and (not config.efa or kind.efa_interfaces):
        yield Problem(
            key=key,
            value=True,
            rule=f"{kind.name} does not support cluster placement groups",
            remedy=f"set {key} = false, or another worker_instance_type; burstable types (t3, t4g) have none",
        )
    if config.availability_zones > 1:
        yield Problem(
            key="availability_zones",
            value=config.availability_zones,
            rule="a cluster placement group, which efa implies, lies in one zone"
            if config.efa
            else "a cluster placement group lies in one zone",
            remedy=f"set availability_zones = 1, or {key} = false",
        )


def _efa(config: ClusterConfig) -> Iterator[Problem]:
    """Check that the workers' type has EFA devices, and that their number is known."""
    kind = find(config.worker_instance_type)
    if not config.efa or (kind is not None and kind.efa_interfaces):
        return
    yield Problem(
        key="efa",
        value=True,
        rule=f"{config.worker_instance_type} has no EFA"
        if kind
        else f"how many EFA devices {config.worker_instance_type} has is not in the table of instance types",
        remedy="set efa = false, or a type with EFA such as p4d.24xlarge, p5.48xlarge or c5n.18xlarge"
        if kind
        else "run `python -m tools.instance_types` where AWS offers the type, or set efa = false",
    )


def _processor(kind: InstanceType) -> str:
    return " or ".join(kind.architectures)


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
