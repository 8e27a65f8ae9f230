"""The nftables ruleset of a VPC's router, as text. Pure functions.

Every packet of a host passes the router, so the rules are enforced outside of the hosts. An instance's packet first
passes its egress chain. A rule that allows it continues in the receiver's ingress chain, so both sides must allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localcloud.network.addressing import (
    METADATA_ADDRESS,
    RESOLVER_ADDRESS,
    UPLINK,
    interface,
    public_source,
    reachable_from_internet,
)
from localcloud.snapshot import Rule, Snapshot


def ruleset(snapshot: Snapshot, vpc_id: str, cut: Iterable[str] = ()) -> str:
    """Return the complete ruleset of a VPC's router. Loading it replaces the previous one atomically.

    `cut` contains private addresses. All packets from and to them are dropped.
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
    """Return the chains at the kernel's hooks, which every packet passes."""
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
    """Return nftables' lines for rules of a security group. IPv6 networks and unknown groups are left out.

    `side` is the address to match (`saddr`, `daddr`), `known` the ids of existing groups, and `verdict` the action.
    """
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
    """Return nftables' match for a rule's protocol and ports, or "" for all traffic."""
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


def _name(identifier: str) -> str:
    """Convert an id or address to a name in nftables."""
    return identifier.replace("-", "_").replace(".", "_")


def _set(name: str, kind: str, elements: Sequence[str]) -> list[str]:
    return [f"  set {name} {{", f"    {kind}", *_elements(elements), "  }"]


def _map(name: str, kind: str, elements: Sequence[str]) -> list[str]:
    return [f"  map {name} {{", f"    {kind}", *_elements(elements), "  }"]


def _elements(elements: Sequence[str]) -> list[str]:
    return [f"    elements = {{ {', '.join(elements)} }}"] if elements else []


def _chain(name: str, rules: Sequence[str]) -> list[str]:
    return [f"  chain {name} {{", *(f"    {rule}" for rule in rules), "  }"]
