"""The router's ruleset, as text."""

from __future__ import annotations

import dataclasses
import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.network import addressing, nftables
from localcloud.snapshot import Rule, SecurityGroup, Snapshot
from testbed import (
    ALL,
    HIDDEN,
    MASTER,
    MASTER_IP,
    MASTER_PUBLIC,
    NAT_PUBLIC,
    VPC,
    WORKER,
    WORKER_IP,
    snapshot,
)


def chain(ruleset: str, name: str) -> list[str]:
    """Return the rules of a chain."""
    body = ruleset.split(f"chain {name} {{\n")[1].split("  }")[0]
    return [line.strip() for line in body.splitlines()]


def elements(ruleset: str, kind: str, name: str) -> list[str]:
    """Return the elements of a set or map."""
    body = ruleset.split(f"{kind} {name} {{\n")[1].split("\n  }")[0]
    if "elements" not in body:
        return []
    return body.split("elements = { ")[1].removesuffix(" }").split(", ")


def with_rules(*rules: Rule) -> Snapshot:
    group = SecurityGroup(id="sg-worker", vpc_id=VPC, ingress=rules, egress=rules)
    return dataclasses.replace(snapshot(WORKER), security_groups=(group,))


def test_ruleset_replaces_the_former_one_in_one_step() -> None:
    lines = nftables.ruleset(snapshot(), VPC).splitlines()
    assert lines[:3] == ["table ip vpc", "delete table ip vpc", "table ip vpc {"]


def test_allowed_packet_continues_in_rules_of_receiver() -> None:
    ruleset = nftables.ruleset(snapshot(MASTER, WORKER), VPC)
    assert chain(ruleset, "from_10_0_1_10") == ["jump e_sg_worker", "counter drop"]
    assert chain(ruleset, "e_sg_worker") == ["ip daddr 0.0.0.0/0 goto arrive"]
    assert chain(ruleset, "arrive")[0] == "ip daddr vmap @receivers"
    assert chain(ruleset, "to_10_0_0_10") == ["jump i_sg_master", "counter drop"]
    assert chain(ruleset, "i_sg_master")[0] == "tcp dport 22-22 ip saddr 100.64.0.2/32 accept"


def test_group_in_a_rule_stands_for_its_members_private_addresses() -> None:
    ruleset = nftables.ruleset(snapshot(MASTER, WORKER), VPC)
    assert "ip saddr @m_sg_worker accept" in chain(ruleset, "i_sg_worker")
    assert elements(ruleset, "set", "m_sg_worker") == [WORKER_IP]
    assert elements(ruleset, "set", "m_sg_nfs") == ["10.0.1.200"]


def test_group_of_another_network_allows_nobody() -> None:
    ruleset = nftables.ruleset(with_rules(Rule(protocol="-1", from_port=0, to_port=65535, group_ids=("sg-far",))), VPC)
    assert chain(ruleset, "i_sg_worker") == []


@pytest.mark.parametrize(
    ("protocol", "first", "last", "match"),
    [
        ("tcp", 22, 22, "tcp dport 22-22"),
        ("tcp", 0, 65535, "meta l4proto tcp"),
        ("udp", -1, -1, "meta l4proto udp"),
        ("17", 0, 65535, "meta l4proto udp"),
        ("1", 8, 0, "icmp type 8 icmp code 0"),
        ("tcp", 0, 1, "tcp dport 0-1"),
        ("6", 80, 80, "tcp dport 80-80"),
        ("icmp", -1, -1, "meta l4proto icmp"),
        ("icmp", 8, -1, "icmp type 8"),
        ("50", 0, 65535, "meta l4proto 50"),
    ],
)
def test_protocol_and_ports_are_matched(protocol: str, first: int, last: int, match: str) -> None:
    rule = Rule(protocol=protocol, from_port=first, to_port=last, cidrs=("10.9.0.0/16",))
    ruleset = nftables.ruleset(with_rules(rule), VPC)
    assert chain(ruleset, "i_sg_worker") == [f"{match} ip saddr 10.9.0.0/16 accept"]
    assert chain(ruleset, "e_sg_worker") == [f"{match} ip daddr 10.9.0.0/16 goto arrive"]


def test_ipv6_networks_match_nothing() -> None:
    ruleset = nftables.ruleset(with_rules(dataclasses.replace(ALL, cidrs=("::/0",))), VPC)
    assert chain(ruleset, "i_sg_worker") == []


def test_public_addresses_are_mapped_one_to_one_and_private_subnets_use_the_nat() -> None:
    ruleset = nftables.ruleset(snapshot(MASTER, WORKER, HIDDEN), VPC)
    assert elements(ruleset, "map", "public") == [f"{MASTER_PUBLIC} : {MASTER_IP}"]
    translated = elements(ruleset, "map", "translated")
    assert translated == [f"{MASTER_IP} : {MASTER_PUBLIC}", f"{WORKER_IP} : {NAT_PUBLIC}"]
    assert elements(ruleset, "set", "outbound") == [MASTER_IP, WORKER_IP]


def test_without_a_public_address_a_public_subnet_has_no_way_out() -> None:
    hidden_master = dataclasses.replace(MASTER, public_ip="")
    assert addressing.public_source(snapshot(hidden_master), hidden_master) == ""


def test_nat_gateway_in_private_subnet_has_no_internet() -> None:
    whole = snapshot(WORKER)
    nat = dataclasses.replace(whole.nat_gateways[0], subnet_id="subnet-private")
    assert addressing.public_source(dataclasses.replace(whole, nat_gateways=(nat,)), WORKER) == ""


def test_public_address_in_private_subnet_is_unreachable() -> None:
    odd = dataclasses.replace(WORKER, public_ip="198.18.1.50")
    assert addressing.reachable_from_internet(snapshot(odd), VPC) == {}
    assert addressing.public_addresses(snapshot(odd), VPC) == (NAT_PUBLIC,)


def test_packets_of_cut_host_are_dropped_before_connection_tracking() -> None:
    ruleset = nftables.ruleset(snapshot(WORKER), VPC, [WORKER_IP])
    assert elements(ruleset, "set", "cut") == [WORKER_IP]
    rules = chain(ruleset, "forward")
    assert rules.index("ip saddr @cut counter drop") < rules.index("ct state established,related accept")


def test_sender_is_bound_to_its_own_link() -> None:
    ruleset = nftables.ruleset(snapshot(WORKER), VPC)
    assert elements(ruleset, "set", "sources") == [f'"{addressing.interface(WORKER.id)}" . {WORKER_IP}']


@given(st.integers(min_value=0, max_value=2**68 - 1))
def test_interface_names_fit_the_kernel(number: int) -> None:
    assert len(addressing.interface(f"i-{number:017x}")) <= 15


@given(st.integers(min_value=0, max_value=4000))
def test_uplinks_have_unique_addresses(index: int) -> None:
    ours, theirs = (ipaddress.IPv4Address(address) for address in addressing.uplink_addresses(index))
    assert ipaddress.IPv4Network(f"{ours}/30", strict=False) == ipaddress.IPv4Network(f"{theirs}/30", strict=False)
    assert ours in ipaddress.IPv4Network("100.64.0.0/10")
    assert ours not in ipaddress.IPv4Network("100.64.0.0/30")


def test_set_without_members_has_no_line_of_elements() -> None:
    assert not re.search(r"elements = \{\s*\}", nftables.ruleset(snapshot(), VPC)), "nft does not parse one"


def test_ruleset_does_not_depend_on_order_of_parts() -> None:
    whole = snapshot(MASTER, WORKER, HIDDEN)
    (target,) = whole.mount_targets
    whole = dataclasses.replace(whole, mount_targets=(target, dataclasses.replace(target, id="fsmt-2", ip="10.0.1.9")))
    turned = dataclasses.replace(
        whole,
        instances=whole.instances[::-1],
        mount_targets=whole.mount_targets[::-1],
        security_groups=whole.security_groups[::-1],
    )
    cut = [WORKER_IP, MASTER_IP]
    assert nftables.ruleset(turned, VPC, cut[::-1]) == nftables.ruleset(whole, VPC, cut)


def test_router_itself_answers_only_metadata_and_dns() -> None:
    rules = chain(nftables.ruleset(snapshot(WORKER), VPC), "input")
    assert {rule for rule in rules if rule.startswith("ip daddr") and rule.endswith("accept")} == {
        "ip daddr 169.254.169.254 tcp dport 80 accept",
        "ip daddr 169.254.169.253 udp dport 53 accept",
        "ip daddr 169.254.169.253 tcp dport 53 accept",
    }


def test_base_chains_have_rules_in_this_order() -> None:
    ruleset = nftables.ruleset(snapshot(WORKER), VPC)
    cut = ["ip saddr @cut counter drop", "ip daddr @cut counter drop"]
    known = ["ct state established,related accept", "ct state invalid counter drop"]
    assert chain(ruleset, "forward") == [
        "type filter hook forward priority 0; policy drop;",
        *cut,
        *known,
        'iifname "igw" ct status dnat goto arrive',  # from the internet, only to the instance of a public address
        'iifname "igw" counter drop',
        "iifname . ip saddr != @sources counter drop",
        "ip saddr vmap @senders",
    ]
    rules = chain(ruleset, "input")
    assert rules[:7] == [
        "type filter hook input priority 0; policy drop;",
        'iifname "lo" accept',
        *cut,
        *known,
        "iifname . ip saddr != @sources counter drop",
    ]
    assert rules[-1] == "ip saddr vmap @senders"
    assert chain(ruleset, "output") == ["type filter hook output priority 0; policy accept;", cut[1]]
    assert chain(ruleset, "prerouting")[0] == "type nat hook prerouting priority dstnat; policy accept;"
    assert chain(ruleset, "postrouting")[0] == "type nat hook postrouting priority srcnat; policy accept;"
    assert chain(ruleset, "prerouting")[1:] == ['iifname "igw" dnat to ip daddr map @public']
    assert chain(ruleset, "postrouting")[1:] == ['oifname "igw" snat to ip saddr map @translated']


def test_packet_to_the_internet_leaves_only_subnets_with_a_route() -> None:
    assert chain(nftables.ruleset(snapshot(WORKER), VPC), "arrive") == [
        "ip daddr vmap @receivers",
        "ip daddr 10.0.0.0/16 counter drop",
        "ip saddr @outbound accept",
        "counter drop",
    ]
