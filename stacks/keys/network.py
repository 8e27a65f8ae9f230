"""Keys of the network: its addresses, its zones, and who may reach the master."""

from __future__ import annotations

import dataclasses
from typing import Final

from stacks.keys.rules import ConfigError, network, within

# A wider ssh_cidr is a typing error or must be said twice: no organisation has more than a /8.
WIDEST_SSH_PREFIX: Final = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkKeys:
    """Describe the VPC and the way into it."""

    ssh_cidr: str
    """IPv4 network from which SSH to the master is allowed; no default, because every guess is too wide."""
    ssh_from_anywhere: bool = False
    """Say yes a second time to an `ssh_cidr` of 0.0.0.0/0, or of any other network wider than a /8."""
    vpc_cidr: str = "10.0.0.0/16"
    """Network of the VPC, /16 to /24 (deepcfn's default)."""
    availability_zones: int = 1
    """Zones that the subnets span: one, because gradients that cross zones cost time and money."""

    def check_network(self) -> None:
        """Raise ConfigError for the first value that is wrong by itself."""
        within(self, "availability_zones", 1, 2)
        vpc = network("vpc_cidr", self.vpc_cidr)
        if not 16 <= vpc.prefixlen <= 24:
            raise ConfigError(
                "vpc_cidr", self.vpc_cidr, "must be a /16 to /24: a VPC's own limit, and room for the subnets"
            )
        if not vpc.is_private:
            raise ConfigError("vpc_cidr", self.vpc_cidr, "must be a private network, such as 10.0.0.0/16")
        source = network("ssh_cidr", self.ssh_cidr)
        if source.prefixlen < WIDEST_SSH_PREFIX and not self.ssh_from_anywhere:
            share = "the whole internet" if source.prefixlen == 0 else f"{source.num_addresses:,} addresses"
            raise ConfigError(
                "ssh_cidr",
                self.ssh_cidr,
                f"opens the master to {share}; give your own address as a /32, "
                "or say it twice with ssh_from_anywhere = true",
            )

    @property
    def public_prefix(self) -> int:
        """Return the prefix length of a public subnet, for master and NAT gateway (/24 in a /16, as in deepcfn)."""
        return min(28, network("vpc_cidr", self.vpc_cidr).prefixlen + 8)

    @property
    def private_prefix(self) -> int:
        """Return the prefix length of a private subnet: a quarter of the VPC, so that two zones fit."""
        return network("vpc_cidr", self.vpc_cidr).prefixlen + 2
