"""Reachability according to a template: its security groups, routes and public addresses.

This module is independent of the embedded cloud and of its enforcement. It reads the rules as AWS describes them.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from tests.stacks.clusters.template import Template

# Ports in addition to the ends of the template's own ranges.
_WELL_KNOWN: Final = (22, 80, 443, 988, 2049, 8080)
UDP_PORTS: Final = (2049, 9999)
INTERNET: Final = "internet"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A source or target with an address: a node, a mount target, or a host on the internet."""

    name: str
    address: str
    """In the VPC, or on the internet."""
    groups: frozenset[str] = frozenset()
    """Logical ids of its security groups."""
    subnet: str = ""
    """Logical id; empty on the internet."""
    public: str = ""
    """Public address of a node, if it has one."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Packet:
    """One attempt to reach a port."""

    source: str
    target: str
    address: str
    protocol: str
    port: int


def ports(template: Template) -> list[int]:
    """Return TCP ports to try: both ends of every range in the template, their neighbors, and well-known ports."""
    found = set(_WELL_KNOWN)
    for _, rule in template.security_rules("in"):
        if rule.get("FromPort") is not None and int(rule["FromPort"]) > 0:
            for end in (int(rule["FromPort"]), int(rule["ToPort"])):
                found |= {end - 1, end, end + 1}
    return sorted(port for port in found if 0 < port < 65536)


def packets(template: Template, places: list[Place], targets: list[Place]) -> Iterator[Packet]:
    """Yield every packet of a scan, from each place to each target under each of its addresses."""
    for source in places:
        for target in targets:
            addresses = [target.address]
            if target.public and not source.subnet:
                addresses.append(target.public)
            if source == target or not (source.subnet or target.subnet):
                continue
            for address in addresses:
                for protocol, tried in (("tcp", ports(template)), ("udp", UDP_PORTS)):
                    for port in tried:
                        yield Packet(
                            source=source.name, target=target.name, address=address, protocol=protocol, port=port
                        )


def passes(template: Template, packet: Packet, source: Place, target: Place) -> bool:
    """Return whether a packet arrives at its target."""
    if source.subnet and not _permits(template, "out", source, target, packet):
        return False
    if source.subnet and target.subnet:
        return _permits(template, "in", target, source, packet)
    if source.subnet:
        return _way_out(template, source)
    comes_in = packet.address == target.public and leads_to(template, target.subnet) == "AWS::EC2::InternetGateway"
    return comes_in and _permits(template, "in", target, source, packet)


def _way_out(template: Template, place: Place) -> bool:
    """Return whether a place reaches the internet through a working NAT gateway or with its own public address."""
    kind = leads_to(template, place.subnet)
    if kind == "AWS::EC2::InternetGateway":
        return bool(place.public)
    if kind != "AWS::EC2::NatGateway":
        return False
    gateway = template.resources[template.default_route(place.subnet)]["Properties"]
    return leads_to(template, gateway["SubnetId"]["Ref"]) == "AWS::EC2::InternetGateway"


def leads_to(template: Template, subnet: str) -> str:
    """Return the type of the target of a subnet's default route; an internet gateway counts only if it is attached."""
    target = template.default_route(subnet)
    kind = str(template.resources[target]["Type"])
    attached = [each["InternetGatewayId"]["Ref"] for each in template.of("AWS::EC2::VPCGatewayAttachment").values()]
    return "" if kind == "AWS::EC2::InternetGateway" and target not in attached else kind


def _permits(template: Template, direction: str, own: Place, peer: Place, packet: Packet) -> bool:
    rules = [(group, rule) for group, rule in template.security_rules(direction) if group in own.groups]
    for rule in (rule for _, rule in rules):
        if _matches(rule, peer, packet):
            return True
    # As in AWS, a group without an outbound rule allows all outbound traffic.
    return direction == "out" and bool(own.groups - {group for group, _ in rules})


def _matches(rule: dict[str, Any], peer: Place, packet: Packet) -> bool:
    protocol = str(rule["IpProtocol"])
    if protocol not in ("-1", packet.protocol):
        return False
    if protocol != "-1" and not int(rule["FromPort"]) <= packet.port <= int(rule["ToPort"]):
        return False
    group = rule.get("SourceSecurityGroupId") or rule.get("DestinationSecurityGroupId")
    if group:
        return group["Fn::GetAtt"][0] in peer.groups
    if "CidrIp" in rule:
        return ipaddress.ip_address(peer.address) in ipaddress.ip_network(rule["CidrIp"])
    return False


def groups_of_nodes(template: Template, nodes: str) -> frozenset[str]:
    """Return the security groups of an Auto Scaling group's instances."""
    interface = template.template_of(nodes)["NetworkInterfaces"][0]
    return frozenset(group["Fn::GetAtt"][0] for group in interface["Groups"])


def groups_of_targets(template: Template, kind: str, key: str) -> frozenset[str]:
    """Return the security groups of mount targets: all of one type have the same."""
    found = {frozenset(group["Fn::GetAtt"][0] for group in item[key]) for item in template.of(kind).values()}
    (groups,) = found
    return groups
