"""What a VPC's router must do, as text: one nftables ruleset and the batches of `ip` commands. Pure functions.

Every packet of a host passes the router, so the rules are enforced outside of the guests. An instance's packet goes
through its egress chain; a rule that allows it continues in the receiver's ingress chain, so both sides must allow it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

from localcloud.snapshot import Instance, NatGateway, Rule, Snapshot, Subnet

API_ADDRESS: Final = "198.18.0.1"
OUTSIDE_ADDRESS: Final = "198.18.255.10"
LAPTOP_ADDRESS: Final = "100.64.0.2"
LAPTOP_GATEWAY: Final = "100.64.0.1"
METADATA_ADDRESS: Final = "169.254.169.254"
RESOLVER_ADDRESS: Final = "169.254.169.253"
UPLINK: Final = "igw"


def interface(instance_id: str) -> str:
    """Name the router's end of an instance's link: at most 15 characters, which is the kernel's limit."""
    return "v" + instance_id[-13:]


def mac(private_ip: str) -> str:
    """Return the address of an instance's network card, made of its IP address as Docker does."""
    return "02:42:" + ":".join(f"{int(part):02x}" for part in private_ip.split("."))


def uplink_addresses(index: int) -> tuple[str, str]:
    """Return the internet's and the router's address on the link of the VPC that has number `index` (from 0)."""
    first = ipaddress.IPv4Address("100.64.1.0") + 4 * index
    return str(first + 1), str(first + 2)


def gateway(cidr: str) -> str:
    """Return a subnet's first address, which is its router."""
    return str(ipaddress.IPv4Network(cidr)[1])


def public_source(snapshot: Snapshot, instance: Instance) -> str:
    """Return the address under which an instance reaches the internet; empty where it has no way out.

    Behind an internet gateway that is its own public address; behind a NAT gateway the gateway's, when the gateway
    itself lies in a subnet with an internet gateway.
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
    """Map public to private addresses of the VPC's instances that the internet gateway lets in."""
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
    """Return the `ip` commands that hang an instance on its router; run them in the router."""
    name = interface(instance.id)
    return (
        f"link add name {name} type veth peer name eth0 address {mac(instance.private_ip)} netns {namespace_path}",
        f"link set {name} up",
        f"route replace {instance.private_ip}/32 dev {name}",
    )


def guest_commands(instance: Instance, subnet: Subnet) -> tuple[str, ...]:
    """Return the `ip` commands that a guest runs inside at boot."""
    length = ipaddress.IPv4Network(subnet.cidr).prefixlen
    return (
        f"addr add {instance.private_ip}/{length} broadcast + dev eth0",
        "link set eth0 up",
        # As on the laptop: without quickack, SSH waits 40 ms for a delayed acknowledgement.
        f"route add default via {gateway(subnet.cidr)} quickack 1",
    )


def ruleset(snapshot: Snapshot, vpc_id: str, cut: Iterable[str] = ()) -> str:
    """Return the whole ruleset of a VPC's router; loading it replaces the former one in one step.

    `cut` names private addresses whose packets vanish, in both directions.
    """
    instances = sorted((i for i in snapshot.instances if i.vpc_id == vpc_id), key=lambda i: i.id)
    targets = sorted((t for t in snapshot.mount_targets if t.vpc_id == vpc_id), key=lambda t: t.ip)
    groups = sorted((g for g in snapshot.security_groups if g.vpc_id == vpc_id), key=lambda g: g.id)
    known = {group.id for group in groups}
    members = {i.private_ip: i.group_ids for i in instances} | {t.ip: t.group_ids for t in targets}
    sources = {i.private_ip: public_source(snapshot, i) for i in instances}
    networks = [vpc.cidr for vpc in snapshot.vpcs if vpc.id == vpc_id]

    lines = ["table ip vpc", "delete table ip vpc", "table ip vpc {"]
    for group in groups:
        addresses = [address for address, ids in members.items() if group.id in ids]
        lines += _set(f"m_{_name(group.id)}", "type ipv4_addr", addresses)
    lines += _set("cut", "type ipv4_addr", sorted(cut))
    lines += _set("sources", "type ifname . ipv4_addr", [f'"{interface(i.id)}" . {i.private_ip}' for i in instances])
    lines += _set("outbound", "type ipv4_addr", [private for private, public in sources.items() if public])
    public = reachable_from_internet(snapshot, vpc_id)
    lines += _map("public", "type ipv4_addr : ipv4_addr", [f"{outer} : {inner}" for outer, inner in public.items()])
    translated = [f"{inner} : {outer}" for inner, outer in sources.items() if outer]
    lines += _map("translated", "type ipv4_addr : ipv4_addr", translated)
    for group in groups:
        lines += _chain(f"i_{_name(group.id)}", _group_rules(group.ingress, "saddr", known, "accept"))
    receivers = {address: f"to_{_name(address)}" for address in members}
    for address, ids in members.items():
        jumps = [f"jump i_{_name(group_id)}" for group_id in ids if group_id in known]
        lines += _chain(receivers[address], [*jumps, "counter drop"])
    lines += _map("receivers", "type ipv4_addr : verdict", [f"{a} : goto {chain}" for a, chain in receivers.items()])
    inside = [f"ip daddr {network} counter drop" for network in networks]
    lines += _chain("arrive", ["ip daddr vmap @receivers", *inside, "ip saddr @outbound accept", "counter drop"])
    for group in groups:
        lines += _chain(f"e_{_name(group.id)}", _group_rules(group.egress, "daddr", known, "goto arrive"))
    for instance in instances:
        jumps = [f"jump e_{_name(group_id)}" for group_id in instance.group_ids if group_id in known]
        lines += _chain(f"from_{_name(instance.private_ip)}", [*jumps, "counter drop"])
    leaving = [f"{i.private_ip} : goto from_{_name(i.private_ip)}" for i in instances]
    lines += _map("senders", "type ipv4_addr : verdict", leaving)
    lines += _base_chains()
    return "\n".join([*lines, "}", ""])


def _base_chains() -> list[str]:
    blackhole = ["ip saddr @cut counter drop", "ip daddr @cut counter drop"]
    known = ["ct state established,related accept", "ct state invalid counter drop"]
    own = ["iifname . ip saddr != @sources counter drop", "ip saddr vmap @senders"]
    services = [f"ip daddr {METADATA_ADDRESS} tcp dport 80 accept"]
    services += [f"ip daddr {RESOLVER_ADDRESS} {protocol} dport 53 accept" for protocol in ("udp", "tcp")]
    outside = [f'iifname "{UPLINK}" ct status dnat goto arrive', f'iifname "{UPLINK}" counter drop']
    return [
        *_chain("forward", ["type filter hook forward priority 0; policy drop;", *blackhole, *known, *outside, *own]),
        *_chain(
            "input",
            [
                "type filter hook input priority 0; policy drop;",
                'iifname "lo" accept',
                *blackhole,
                *known,
                own[0],
                *services,
                own[1],
            ],
        ),
        *_chain("output", ["type filter hook output priority 0; policy accept;", blackhole[1]]),
        *_chain(
            "prerouting",
            [
                "type nat hook prerouting priority dstnat; policy accept;",
                f'iifname "{UPLINK}" dnat to ip daddr map @public',
            ],
        ),
        *_chain(
            "postrouting",
            [
                "type nat hook postrouting priority srcnat; policy accept;",
                f'oifname "{UPLINK}" snat to ip saddr map @translated',
            ],
        ),
    ]


def _group_rules(rules: Sequence[Rule], side: str, known: set[str], verdict: str) -> list[str]:
    lines = []
    for rule in rules:
        match = _traffic(rule)
        for cidr in rule.cidrs:
            if ":" not in cidr:  # there is no IPv6 here
                lines.append(f"{match} ip {side} {cidr} {verdict}".strip())
        groups = [f"@m_{_name(group_id)}" for group_id in rule.group_ids if group_id in known]
        lines += [f"{match} ip {side} {group} {verdict}".strip() for group in groups]
    return lines


def _traffic(rule: Rule) -> str:
    if rule.protocol == "-1":
        return ""
    if rule.protocol in ("tcp", "udp", "6", "17"):
        protocol = {"6": "tcp", "17": "udp"}.get(rule.protocol, rule.protocol)
        if rule.from_port <= 0 and rule.to_port in (-1, 65535):
            return f"meta l4proto {protocol}"
        return f"{protocol} dport {rule.from_port}-{rule.to_port}"
    if rule.protocol in ("icmp", "1"):
        if rule.from_port == -1:
            return "meta l4proto icmp"
        code = "" if rule.to_port == -1 else f" icmp code {rule.to_port}"
        return f"icmp type {rule.from_port}{code}"
    return f"meta l4proto {rule.protocol}"


def _is_public(subnet: Subnet) -> bool:
    return subnet.default_route.startswith("igw-")


def _name(identifier: str) -> str:
    return identifier.replace("-", "_").replace(".", "_")


def _set(name: str, kind: str, elements: Sequence[str]) -> list[str]:
    return [f"  set {name} {{", f"    {kind}", *_elements(elements), "  }"]


def _map(name: str, kind: str, elements: Sequence[str]) -> list[str]:
    return [f"  map {name} {{", f"    {kind}", *_elements(elements), "  }"]


def _elements(elements: Sequence[str]) -> list[str]:
    return [f"    elements = {{ {', '.join(elements)} }}"] if elements else []


def _chain(name: str, rules: Sequence[str]) -> list[str]:
    return [f"  chain {name} {{", *(f"    {rule}" for rule in rules), "  }"]
