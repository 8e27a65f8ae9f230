"""Private addresses in order from their subnet, public addresses in order from a range of the embedded internet.

AWS reserves the first four addresses and the last of each subnet and never assigns an address twice. moto assigns
random addresses to NAT gateways and standalone network interfaces, possibly outside the subnet or already in use. It
takes public addresses from all of IPv4, and keeps the addresses of terminated instances.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from moto.ec2 import models as ec2_models
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import elastic_ip_addresses, elastic_network_interfaces, instances, nat_gateways, subnets

from localcloud.api.monkeypatch import around, instead

# 198.18.0.0/24 is for the API, 198.18.255.0/24 for hosts outside the cloud.
_FIRST_PUBLIC = ipaddress.IPv4Address("198.18.1.1")
_LAST_PUBLIC = ipaddress.IPv4Address("198.18.254.254")
# .0 is the network, .1 the router, .2 the name server; AWS reserves .3.
_RESERVED_AT_START = 4


class PublicAddresses:
    """Allocator of public addresses in order. A released address is only reused after all others."""

    def __init__(self) -> None:
        self._next = _FIRST_PUBLIC

    def take(self, held: set[str]) -> str:
        """Return the next address that is not in `held`, the addresses in use. It is not reserved for the caller.

        Raises EC2's error if all addresses are in `held`.
        """
        for _ in range(int(_LAST_PUBLIC) - int(_FIRST_PUBLIC) + 1):
            address = self._next
            self._next = _FIRST_PUBLIC if address >= _LAST_PUBLIC else address + 1
            if int(address) % 256 not in (0, 255) and str(address) not in held:
                return str(address)
        raise EC2ClientError("AddressLimitExceeded", "The maximum number of addresses has been reached.")


def lowest_free(network: ipaddress.IPv4Network, used: set[str]) -> str | None:
    """Return the lowest address of a subnet that is not in `used`, or None if the subnet is full.

    The first four addresses and the last are reserved.
    """
    for number in range(_RESERVED_AT_START, network.num_addresses - 1):
        address = str(network.network_address + number)
        if address not in used:
            return address
    return None


def _held_public() -> set[str]:
    """Return all public addresses in use."""
    held = set()
    for regions in ec2_models.ec2_backends.values():
        for backend in regions.values():
            held |= {address.public_ip for address in backend.addresses}
            held |= {interface.public_ip for interface in backend.enis.values() if interface.public_ip}
    return held


POOL: Final = PublicAddresses()
"""The pool of public addresses."""


@instead(elastic_network_interfaces, "random_public_ip")
@instead(elastic_ip_addresses, "random_ip")
def _next_public() -> str:
    return POOL.take(_held_public())


@instead(subnets.Subnet, "get_available_subnet_ip")
def _get_available_subnet_ip(self: subnets.Subnet, instance: Any) -> str:
    address = lowest_free(ipaddress.IPv4Network(self.cidr_block), set(self._subnet_ips))
    if address is None:
        raise EC2ClientError(
            "InsufficientFreeAddressesInSubnet",
            f"There are not enough free addresses in subnet '{self.id}' to satisfy the requested number of instances.",
        )
    self._subnet_ips[address] = instance
    return address


@around(elastic_network_interfaces.NetworkInterfaceBackend, "create_network_interface")
def _create_network_interface(
    original: Any, self: Any, subnet: Any, private_ip_address: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Create a network interface. If the request has no address, use the lowest free one in the subnet."""
    of = self.get_subnet(subnet) if isinstance(subnet, str) else subnet
    if not private_ip_address and not (args and args[0]) and not kwargs.get("private_ip_addresses"):
        private_ip_address = of.get_available_subnet_ip(None)
    return original(self, of, private_ip_address, *args, **kwargs)


@instead(nat_gateways, "random_private_ip")
def _no_address(*_: Any) -> str:
    return ""


@around(nat_gateways.NatGatewayBackend, "create_nat_gateway")
def _create_nat_gateway(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Create a NAT gateway with the private address of its network interface."""
    gateway = original(self, *args, **kwargs)
    gateway.private_ip = gateway._eni.private_ip_address
    return gateway


@instead(nat_gateways.NatGatewayBackend, "delete_nat_gateway")
def _delete_nat_gateway(self: Any, nat_gateway_id: str) -> Any:
    """Delete a NAT gateway and release both of its addresses. Nothing happens if it is already deleted."""
    gateway = self.nat_gateways.get(nat_gateway_id)
    if gateway is None:
        raise EC2ClientError("NatGatewayNotFound", f"NAT gateway {nat_gateway_id} was not found")
    if gateway.state != "deleted":
        _release(self, gateway._eni)
        gateway.state = "deleted"
    return gateway


@around(instances.Instance, "terminate")
def _terminate(original: Any, self: Any) -> Any:
    """Terminate an instance, release its addresses, and delete its network interfaces, as AWS does."""
    was_terminated = self._state.name == "terminated"
    previous = original(self)
    if not was_terminated:
        for interface in self.nics.values():
            _release(self.ec2_backend, interface)
        self._private_ips.clear()
    return previous


def _release(ec2: Any, interface: Any) -> None:
    """Disassociate the elastic IP addresses of a network interface, and delete the interface."""
    for address in ec2.addresses:
        if address.eni is interface:
            ec2.disassociate_address(address=address.public_ip)
    if interface.id in ec2.enis:
        interface.delete()
