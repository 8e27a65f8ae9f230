"""The addresses of the cloud and of its VPCs, and the `ip` commands that set them, without the word `ip`.

All functions are pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from localcloud.snapshot import Instance, NatGateway, Snapshot, Subnet

API_ADDRESS: Final = "198.18.0.1"
OUTSIDE_ADDRESS: Final = "198.18.255.10"
LAPTOP_ADDRESS: Final = "100.64.0.2"
LAPTOP_GATEWAY: Final = "100.64.0.1"
METADATA_ADDRESS: Final = "169.254.169.254"
RESOLVER_ADDRESS: Final = "169.254.169.253"
UPLINK: Final = "igw"
# Part of the range for hosts outside the cloud.
_PASSAGES: Final = ipaddress.IPv4Network("198.18.255.128/25")


def passage_addresses(hosts: Iterable[str]) -> dict[str, str]:
    """Return an address in the cloud's internet for each reachable host of the real internet, by name.

    Only the first 126 hosts, sorted by name, get an address.
    """
    return {host: str(address) for host, address in zip(sorted(set(hosts)), _PASSAGES.hosts(), strict=False)}


def interface(instance_id: str) -> str:
    """Return the name of the router's end of an instance's link: at most 15 characters, the kernel's limit."""
    return "v" + instance_id[-13:]


def mac(private_ip: str) -> str:
    """Return the MAC address of an instance's network card. Like Docker, it is derived from the IP address."""
    return "02:42:" + ":".join(f"{int(part):02x}" for part in private_ip.split("."))


def uplink_addresses(index: int) -> tuple[str, str]:
    """Return the two addresses of the link to VPC number `index` (from 0): the internet's, and the VPC's router's."""
    first = ipaddress.IPv4Address("100.64.1.0") + 4 * index
    return str(first + 1), str(first + 2)


def gateway(cidr: str) -> str:
    """Return a subnet's first address, which is its router's."""
    return str(ipaddress.IPv4Network(cidr)[1])


def public_source(snapshot: Snapshot, instance: Instance) -> str:
    """Return the public source address of an instance's connections, or "" if it cannot reach the internet.

    Behind an internet gateway, it is the instance's public address. Behind a NAT gateway, it is the gateway's address,
    if the gateway's subnet has an internet gateway.
    """
    subnets = {subnet.id: subnet for subnet in snapshot.subnets}
    gateways = {nat.id: nat for nat in snapshot.nat_gateways}
    subnet = subnets.get(instance.subnet_id)
    if subnet is None:
        return ""
    if _is_public(subnet):
        return instance.public_ip
    nat: NatGateway | None = gateways.get(subnet.default_route)
    if nat is None or nat.subnet_id not in subnets or not _is_public(subnets[nat.subnet_id]):
        return ""
    return nat.public_ip


def reachable_from_internet(snapshot: Snapshot, vpc_id: str) -> dict[str, str]:
    """Map the public to the private addresses of the VPC's instances that its internet gateway makes reachable."""
    public = {subnet.id for subnet in snapshot.subnets if _is_public(subnet)}
    found = (i for i in snapshot.instances if i.vpc_id == vpc_id and i.subnet_id in public and i.public_ip)
    return {instance.public_ip: instance.private_ip for instance in found}


def public_addresses(snapshot: Snapshot, vpc_id: str) -> tuple[str, ...]:
    """Return every public address that the internet must route to the VPC."""
    nats = {nat.public_ip for nat in snapshot.nat_gateways if nat.vpc_id == vpc_id and nat.public_ip}
    return tuple(sorted(nats | set(reachable_from_internet(snapshot, vpc_id))))


def router_addresses(snapshot: Snapshot, vpc_id: str) -> tuple[str, ...]:
    """Return the addresses that the VPC's router answers itself: gateways, mount targets, metadata and resolver."""
    gateways = {gateway(subnet.cidr) for subnet in snapshot.subnets if subnet.vpc_id == vpc_id}
    targets = {target.ip for target in snapshot.mount_targets if target.vpc_id == vpc_id}
    return tuple(sorted(gateways | targets | {METADATA_ADDRESS, RESOLVER_ADDRESS}))


def link_commands(instance: Instance, namespace_path: str) -> tuple[str, ...]:
    """Return the `ip` commands that link an instance to its router; run them in the router."""
    name = interface(instance.id)
    return (
        f"link add name {name} type veth peer name eth0 address {mac(instance.private_ip)} netns {namespace_path}",
        f"link set {name} up",
        f"route replace {instance.private_ip}/32 dev {name}",
    )


def guest_commands(instance: Instance, subnet: Subnet) -> tuple[str, ...]:
    """Return the `ip` commands that a host runs at boot to set its address and default route."""
    length = ipaddress.IPv4Network(subnet.cidr).prefixlen
    return (
        f"addr add {instance.private_ip}/{length} broadcast + dev eth0",
        "link set eth0 up",
        # As on the laptop: without quickack, SSH waits 40 ms for a delayed acknowledgement.
        f"route add default via {gateway(subnet.cidr)} quickack 1",
    )


def _is_public(subnet: Subnet) -> bool:
    """Return whether a subnet's default route is an internet gateway."""
    return subnet.default_route.startswith("igw-")
