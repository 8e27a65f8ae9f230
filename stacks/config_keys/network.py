"""Keys of the network: addresses, zones, outbound routes, and access to the master."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Final

from stacks.config_keys.value_checks import (
    BUCKET,
    ConfigError,
    parse_network,
    require_choice,
    require_match,
    require_range,
)

# A wider ssh_cidr is a typing error, or needs ssh_from_anywhere: no organisation has more than a /8.
WIDEST_SSH_PREFIX: Final = 8
# Number of zones that are visible to a stack without a set account, and the maximum in any region.
ZONES_OF_A_NEW_VPC: Final = 2
ZONES_AT_MOST: Final = 6
# The maximum number of values in a filter of EC2's Describe calls.
MAX_PREFIX_LISTS: Final = 200
# Networks that EC2 rejects for a VPC because hosts use them internally. Python counts them as private.
RESERVED_NETWORKS: Final = ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16")

SSH_PORT_OPEN: Final = "port"
SESSION_MANAGER: Final = "session-manager"
ONE_NAT_GATEWAY: Final = "one"
ONE_NAT_GATEWAY_PER_ZONE: Final = "one-per-zone"

S3_ENDPOINT: Final = "s3"
# Names of interface endpoints in vpc_endpoints, with the services of each: AWS splits some into several.
INTERFACE_ENDPOINTS: Final = {
    "ssm": ("ssm", "ssmmessages", "ec2messages"),
    "ecr": ("ecr.api", "ecr.dkr"),
    "logs": ("logs",),
}
ENDPOINTS: Final = (S3_ENDPOINT, *INTERFACE_ENDPOINTS)
NO_FLOW_LOGS: Final = "off"
FLOW_LOGS_TO_GROUP: Final = "log-group"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkKeys:
    """Keys of the VPC, the routes out of it, and the access to the master."""

    ssh_access: str = SSH_PORT_OPEN
    """Access to the master: `port` for SSH to its public address, or `session-manager`, without any open port."""
    ssh_cidr: tuple[str, ...] = ()
    """IPv4 networks that may connect to the master over SSH. Empty by default, because any default would be too wide:
    the port is then closed to all networks, and `fab up` asks for one."""
    ssh_prefix_lists: tuple[str, ...] = ()
    """Managed prefix lists (pl-...) that may connect to the master over SSH, with or without `ssh_cidr`."""
    ssh_from_anywhere: bool = False
    """Confirm an `ssh_cidr` of 0.0.0.0/0, or of any other network wider than a /8."""
    vpc_cidr: str = "10.0.0.0/16"
    """Network of the VPC, /16 to /24 (deepcfn's default). With `vpc_id`, the network of that VPC."""
    availability_zones: int = 1
    """Number of zones with subnets. One by default, because traffic between zones costs time and money."""
    zones: tuple[str, ...] = ()
    """Names of these zones, as many as `availability_zones`, for a new VPC. Empty by default: the first `fab up`
    chooses zones that offer the instance types, and CloudFormation alone takes the first zones of the region."""
    nat_gateways: str = ONE_NAT_GATEWAY
    """`one` for all zones, because each costs as much as a small instance; or `one-per-zone`, in case a zone fails."""
    vpc_endpoints: tuple[str, ...] = (S3_ENDPOINT,)
    """Routes to AWS services that bypass the NAT gateway: `s3`, which is free; `ssm`, `ecr`, `logs`, which are billed
    by zone and hour. With `vpc_id` none are created, because that VPC has its own."""
    flow_logs: str = NO_FLOW_LOGS
    """`off`; `log-group`, kept for `log_retention_days`; or the ARN of a bucket. AWS bills each gigabyte."""
    vpc_id: str = ""
    """An existing VPC for the cluster; empty: create one."""
    public_subnet_ids: tuple[str, ...] = ()
    """Subnets of `vpc_id` for the master, with a route to an internet gateway; none with `session-manager`."""
    private_subnet_ids: tuple[str, ...] = ()
    """Subnets of `vpc_id` for the workers, one per zone, with their own route to the internet."""

    def check_network(self) -> None:
        """Raise ConfigError for the first invalid value of these keys. A wide `ssh_cidr` needs `ssh_from_anywhere`."""
        require_choice(self, "ssh_access", SSH_PORT_OPEN, SESSION_MANAGER)
        require_choice(self, "nat_gateways", ONE_NAT_GATEWAY, ONE_NAT_GATEWAY_PER_ZONE)
        for name in self.vpc_endpoints:
            if name not in ENDPOINTS:
                raise ConfigError("vpc_endpoints", name, f"must be one of {', '.join(ENDPOINTS)}")
        require_match(
            self,
            "flow_logs",
            rf"{NO_FLOW_LOGS}|{FLOW_LOGS_TO_GROUP}|arn:aws[a-z-]*:s3:::{BUCKET}(?:/(?!AWSLogs(?:/|$))[\w.=-]+)*/?",
            f"{NO_FLOW_LOGS}, {FLOW_LOGS_TO_GROUP}, or the ARN of a bucket such as arn:aws:s3:::my-flow-logs, without "
            "the folder AWSLogs, which EC2 adds",
        )
        require_match(self, "ssh_prefix_lists", r"pl-[0-9a-f]{8,17}", "a prefix list such as pl-0123456789abcdef0")
        require_match(self, "zones", r"[a-z]{2,4}(?:-[a-z]+)+-\d[a-z]", "an availability zone such as us-east-1a")
        require_match(self, "vpc_id", r"(?:vpc-[0-9a-f]{8,17})?", "a VPC such as vpc-0123456789abcdef0, or empty")
        for key in ("public_subnet_ids", "private_subnet_ids"):
            require_match(self, key, r"subnet-[0-9a-f]{8,17}", "a subnet such as subnet-0123456789abcdef0")
        if self.vpc_id:
            require_range(self, "availability_zones", 1, ZONES_AT_MOST)
        else:
            require_range(self, "availability_zones", 1, ZONES_OF_A_NEW_VPC, why=f"{ZONES_AT_MOST} with vpc_id")
        self._check_vpc_cidr()
        for source in self.ssh_cidr:
            self._check_source(parse_network("ssh_cidr", source))
        for key in (
            "ssh_cidr",
            "ssh_prefix_lists",
            "zones",
            "vpc_endpoints",
            "public_subnet_ids",
            "private_subnet_ids",
        ):
            _check_once(key, getattr(self, key))
        if len(self.ssh_prefix_lists) > MAX_PREFIX_LISTS:
            rule = f"must list at most {MAX_PREFIX_LISTS}, the limit of one call of EC2's DescribeManagedPrefixLists"
            raise ConfigError("ssh_prefix_lists", f"{len(self.ssh_prefix_lists)} lists", rule)
        for key in ("public_subnet_ids", "private_subnet_ids"):
            if len(getattr(self, key)) > ZONES_AT_MOST:
                raise ConfigError(
                    key, getattr(self, key), f"must list at most {ZONES_AT_MOST} subnets, one for each zone"
                )

    def _check_vpc_cidr(self) -> None:
        vpc = parse_network("vpc_cidr", self.vpc_cidr)
        if self.vpc_id:
            if not 16 <= vpc.prefixlen <= 28:
                raise ConfigError("vpc_cidr", self.vpc_cidr, f"must be a /16 to /28, the network of {self.vpc_id}")
            return
        if not 16 <= vpc.prefixlen <= 24:
            raise ConfigError(
                "vpc_cidr",
                self.vpc_cidr,
                "must be a /16 to /24: AWS has no larger VPCs, and a smaller one has no space for the subnets",
            )
        reserved = [each for each in map(ipaddress.IPv4Network, RESERVED_NETWORKS) if vpc.subnet_of(each)]
        if reserved:
            rule = f"is within {reserved[0]}, which EC2 does not allow for a VPC; use another, such as 10.0.0.0/16"
            raise ConfigError("vpc_cidr", self.vpc_cidr, rule)
        if not vpc.is_private:
            raise ConfigError("vpc_cidr", self.vpc_cidr, "must be a private network, such as 10.0.0.0/16")

    def _check_source(self, source: ipaddress.IPv4Network) -> None:
        if source.prefixlen < WIDEST_SSH_PREFIX and not self.ssh_from_anywhere:
            share = "the whole internet" if source.prefixlen == 0 else f"{source.num_addresses:,} addresses"
            raise ConfigError(
                "ssh_cidr",
                str(source),
                f"opens the master's SSH port to {share}; set your own address as a /32, "
                "or confirm with ssh_from_anywhere = true",
            )

    @property
    def interface_endpoints(self) -> tuple[str, ...]:
        """Return the services, such as `ecr.api`, that get an interface endpoint; () in an existing VPC."""
        chosen = () if self.vpc_id else self.vpc_endpoints
        return tuple(service for name, each in INTERFACE_ENDPOINTS.items() if name in chosen for service in each)

    @property
    def opens_ssh_port(self) -> bool:
        """Return whether the master is reachable at its SSH port, rather than only through Session Manager."""
        return self.ssh_access == SSH_PORT_OPEN

    @property
    def is_reachable(self) -> bool:
        """Return whether these keys give access to the master: Session Manager, or SSH from at least one network."""
        return not self.opens_ssh_port or bool(self.ssh_cidr or self.ssh_prefix_lists)

    @property
    def public_prefix(self) -> int:
        """Return the prefix length of a public subnet, for master and NAT gateway (/24 in a /16, as in deepcfn)."""
        return min(28, parse_network("vpc_cidr", self.vpc_cidr).prefixlen + 8)

    @property
    def private_prefix(self) -> int:
        """Return the prefix length of a private subnet: a quarter of the VPC, so that there is space for two zones."""
        return parse_network("vpc_cidr", self.vpc_cidr).prefixlen + 2


def _check_once(key: str, values: tuple[str, ...]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(key, value, "is listed twice; list it once")
