"""Plain values for the exchange between the API and the hosts: what should exist, and what was measured."""

from __future__ import annotations

import base64
import dataclasses
import hmac
from typing import Final

REGION: Final = "us-east-1"
"""The only region."""
ACCOUNT: Final = "123456789012"
"""The account of every request."""
_IDENTITY_KEY: Final = b"EC2"


def identity_signature(document: bytes) -> str:
    """Return the cloud's own signature of an instance's identity document, as lines of base64 like AWS's."""
    return base64.encodebytes(hmac.digest(_IDENTITY_KEY, document, "sha512")).decode()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One permission of a security group, for networks, other groups, or both."""

    protocol: str
    """`tcp`, `udp`, `icmp`, or `-1` for all."""
    from_port: int
    """First port, or 0 for all protocols; ICMP type for `icmp` (-1: all)."""
    to_port: int
    """Last port, or 65535 for all protocols; ICMP code for `icmp` (-1: all)."""
    cidrs: tuple[str, ...] = ()
    group_ids: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecurityGroup:
    """The rules of one group. Replies to an allowed connection are always allowed."""

    id: str
    vpc_id: str
    ingress: tuple[Rule, ...]
    egress: tuple[Rule, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vpc:
    id: str
    cidr: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subnet:
    id: str
    vpc_id: str
    cidr: str
    zone: str
    default_route: str
    """Target of the route to 0.0.0.0/0: the id of an internet gateway or NAT gateway, or empty."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NatGateway:
    id: str
    vpc_id: str
    subnet_id: str
    private_ip: str
    public_ip: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class MountTarget:
    """A file system's address in one subnet: of EFS (NFS, port 2049) or FSx (Lustre, port 988)."""

    id: str
    file_system_id: str
    vpc_id: str
    subnet_id: str
    ip: str
    group_ids: tuple[str, ...]
    service: str = "efs"
    """`efs` or `fsx`, which is also part of its DNS name."""

    @property
    def port(self) -> int:
        """Return the TCP port for mounts."""
        return {"efs": 2049, "fsx": 988}[self.service]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance that should be running."""

    id: str
    vpc_id: str
    subnet_id: str
    zone: str
    private_ip: str
    public_ip: str
    """Empty if it has none."""
    group_ids: tuple[str, ...]
    image_id: str
    instance_type: str
    user_data: bytes
    """User data from the launch, decoded."""
    public_key: str
    """Public key of its key pair in OpenSSH format. Empty without a key pair."""
    key_name: str
    profile_arn: str
    """ARN of its instance profile. Empty without one."""
    role_name: str
    """Name of the profile's role. Empty without one."""
    metadata_tokens_required: bool
    """Whether its metadata service requires a session token (IMDSv2)."""
    tags: tuple[tuple[str, str], ...]
    volume_gib: int = 8
    """Size of its root volume."""
    reboots: int = 0
    """Number of reboots through the API since its launch."""
    spot: bool = False
    ends_at: str = ""
    """Termination time of an interrupted spot instance, ISO 8601, UTC. Empty without a notice."""
    rebalance_at: str = ""
    """Time of a spot instance's rebalance recommendation, ISO 8601, UTC. Empty without one."""
    target_state: str = ""
    """Target lifecycle state in its Auto Scaling group: `InService` or `Terminated`. Empty outside of groups."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All networks, security groups, mount targets and running instances of the account and region, at one moment."""

    vpcs: tuple[Vpc, ...] = ()
    subnets: tuple[Subnet, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()
    nat_gateways: tuple[NatGateway, ...] = ()
    mount_targets: tuple[MountTarget, ...] = ()
    instances: tuple[Instance, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostLoad:
    """One host's load since its previous measurement, for CloudWatch's metrics."""

    instance_id: str
    group: str
    """Name of its Auto Scaling group. Empty without one."""
    cpu_percent: float
    """Percentage of the host's share of the processor time."""
    received_bytes: float
    sent_bytes: float
