"""Addresses: private ones in order out of their subnet, public ones in order out of a range of the embedded internet.

AWS reserves the first four addresses and the last of each subnet and never gives out one that is in use. moto draws the
addresses of NAT gateways and of bare network interfaces at random, outside the subnet or on top of others; takes public
ones from the whole of IPv4; and keeps the addresses of terminated instances.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from moto.ec2 import models as ec2_models
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import elastic_ip_addresses, elastic_network_interfaces, instances, nat_gateways, subnets

from localcloud.api.monkeypatch import replace

# 198.18.0.0/24 holds the API; 198.18.255.0/24 is left to hosts outside the cloud.
_FIRST_PUBLIC = ipaddress.IPv4Address("198.18.1.1")
_LAST_PUBLIC = ipaddress.IPv4Address("198.18.254.254")
# .0 is the network, .1 the router, .2 the name server, .3 is kept by AWS for later.
_RESERVED_AT_START = 4


class NoFreeAddressError(EC2ClientError):
    """Report a subnet without a free address, as AWS does."""

    def __init__(self, subnet_id: str) -> None:
        super().__init__(
            "InsufficientFreeAddressesInSubnet",
            f"There are not enough free addresses in subnet '{subnet_id}' to satisfy "
            "the requested number of instances.",
        )


class PublicAddresses:
    """Allocate public addresses in order; a released one is used again only after all others."""

    def __init__(self) -> None:
        self._next = _FIRST_PUBLIC

    def take(self, held: set[str]) -> str:
        """Return the next address that is not in `held`."""
        for _ in range(int(_LAST_PUBLIC) - int(_FIRST_PUBLIC) + 1):
            address = self._next
            self._next = _FIRST_PUBLIC if address >= _LAST_PUBLIC else address + 1
            if int(address) % 256 not in (0, 255) and str(address) not in held:
                return str(address)
        raise EC2ClientError("AddressLimitExceeded", "The maximum number of addresses has been reached.")


def lowest_free(network: ipaddress.IPv4Network, used: set[str]) -> str | None:
    """Return the lowest address of a subnet that AWS could give out, or None."""
    for number in range(_RESERVED_AT_START, network.num_addresses - 1):
        address = str(network.network_address + number)
        if address not in used:
            return address
    return None


def _held_public() -> set[str]:
    held = set()
    for regions in ec2_models.ec2_backends.values():
        for backend in regions.values():
            held |= {address.public_ip for address in backend.addresses}
            held |= {interface.public_ip for interface in backend.enis.values() if interface.public_ip}
    return held


def apply() -> PublicAddresses:
    """Correct moto; return the pool of public addresses that is now in use."""
    pool = PublicAddresses()

    def next_public() -> str:
        return pool.take(_held_public())

    replace(elastic_network_interfaces, "random_public_ip", next_public)
    replace(elastic_ip_addresses, "random_ip", next_public)

    def get_available_subnet_ip(self: subnets.Subnet, instance: Any) -> str:
        address = lowest_free(ipaddress.IPv4Network(self.cidr_block), set(self._subnet_ips))
        if address is None:
            raise NoFreeAddressError(self.id)
        self._subnet_ips[address] = instance
        return address

    replace(subnets.Subnet, "get_available_subnet_ip", get_available_subnet_ip)

    # A network interface without a given address takes one of its subnet.
    interfaces = elastic_network_interfaces.NetworkInterfaceBackend
    original_create = interfaces.create_network_interface

    def create_network_interface(
        self: Any, subnet: Any, private_ip_address: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        of = self.get_subnet(subnet) if isinstance(subnet, str) else subnet
        if not private_ip_address and not (args and args[0]) and not kwargs.get("private_ip_addresses"):
            private_ip_address = of.get_available_subnet_ip(None)
        return original_create(self, of, private_ip_address, *args, **kwargs)

    replace(interfaces, "create_network_interface", create_network_interface)

    _correct_nat_gateways()
    _correct_termination()
    return pool


def _correct_nat_gateways() -> None:
    """Make a NAT gateway take an address of its subnet, and give both of its addresses back when it is deleted."""
    replace(nat_gateways, "random_private_ip", lambda *_: "")
    original_create = nat_gateways.NatGatewayBackend.create_nat_gateway

    def create_nat_gateway(self: Any, *args: Any, **kwargs: Any) -> Any:
        gateway = original_create(self, *args, **kwargs)
        gateway.private_ip = gateway._eni.private_ip_address
        return gateway

    replace(nat_gateways.NatGatewayBackend, "create_nat_gateway", create_nat_gateway)

    def delete_nat_gateway(self: Any, nat_gateway_id: str) -> Any:
        gateway = self.nat_gateways.get(nat_gateway_id)
        if gateway is None:
            raise EC2ClientError("NatGatewayNotFound", f"NAT gateway {nat_gateway_id} was not found")
        if gateway.state != "deleted":
            for address in self.addresses:
                if address.eni is gateway._eni:
                    self.disassociate_address(address=address.public_ip)
            gateway._eni.delete()
            gateway.state = "deleted"
        return gateway

    replace(nat_gateways.NatGatewayBackend, "delete_nat_gateway", delete_nat_gateway)


def _correct_termination() -> None:
    """Release an instance's addresses when it is terminated: AWS deletes its primary network interface with it."""
    original = instances.Instance.terminate

    def terminate(self: Any) -> Any:
        was_terminated = self._state.name == "terminated"
        previous = original(self)
        if not was_terminated:
            for interface in self.nics.values():
                for address in self.ec2_backend.addresses:
                    if address.eni is interface:
                        self.ec2_backend.disassociate_address(address=address.public_ip)
                if interface.id in self.ec2_backend.enis:
                    interface.delete()
            self._private_ips.clear()
        return previous

    replace(instances.Instance, "terminate", terminate)
