"""The rules for nodes accept every name of Linux and EC2, and nothing that a shell or SSH would interpret."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import SpecError
from agent.spec.nodes import (
    RULES,
    SHOWN,
    Node,
    choose_hosts,
    common_network,
    escaped,
    meeting_interface,
    parse_nodes,
    violation,
    workers,
)
from agent.spec.run import RunSpec
from tests.factories import make_master, make_node, make_nodes, make_spec
from tests.words import LONG, WORDS

ACCEPTED = {
    "name": ["deeplearning-master", "deeplearning-worker1", "deeplearning-worker10", "deeplearning-worker9999"],
    "address": ["0.0.0.0", "10.0.64.5", "127.0.0.1", "255.255.255.255"],
    "instance_id": ["i-0123abcd", "i-0123456789abcdef0"],
    "slots": ["1", "8", "999", "1000", "1019", "1024"],
    "interface": ["lo", "eth0", "ens5", "enp0s31f6", "eth0.100", "_a", "a" * 15],
    "zone": [
        "us-east-1a", "ap-northeast-3c", "us-gov-west-1b", "us-isob-east-1a", "eusc-de-east-1a", "cn-northwest-1a",
        "us-west-2-lax-1a", "us-east-1-bos-1a", "us-east-1-wl1-bos-wlz-1", "eu-west-2-wl2-man-wlz1",
    ],
    "kind": ["x86_64", "aarch64", "x86_64-sm75", "x86_64-sm120", "x86_64-gpu"],
}  # fmt: skip
REFUSED = {
    "name": [
        "deeplearning-worker0", "deeplearning-worker08", "deeplearning-worker1.bak", "deeplearning-worker10000",
        "deeplearning-workera[$(id)]", "deeplearning-worker", "worker1", "deeplearning-master1", "Deeplearning-master",
    ],
    "address": [
        "10.0.64", "10.0.64.5.6", "10.0.64.256", "10.0.64.05", "10.0.64.5'$(id)'", "::1", "0x0a.0.0.1", "167772165",
        "10.0.64.5 ", "10x0y64z5",
    ],
    "instance_id": ["i-", "i-0123", "i-0123ABCD", "i-0123456789abcdef", "j-0123abcd", "../0123abcd"],
    "slots": ["0", "00", "01", "1025", "1100", "-1", "+1", "1.0", "1e3", "\u0664", " 1"],
    "interface": ["", ".", "..", "-i", "a" * 16, "eth0:1", "eth0/1", "a b", "\u00e9th0"],
    "zone": ["", "us", "a", "us-east-1A", "us-east-1a;id", "-us-east-1a", "us-east-1a-", "us-east-1" + "a" * 64],
    "kind": ["", "i686", "x86_64-", "x86_64-sm", "x86_64-sm9", "x86_64-sm075", "x86_64-sm9.0", "x86_64-sm90-sm80"],
}  # fmt: skip


@pytest.mark.parametrize("field", ACCEPTED)
def test_rules_accept_exactly_values_of_linux_and_ec2(field: str) -> None:
    fits = RULES[field].fits
    assert [text for text in ACCEPTED[field] if not fits(text)] == []
    assert [text for text in REFUSED[field] if fits(text)] == []
    for text in ACCEPTED[field]:
        for added in ("\n", " ", "\0", ";", "'", "$", "\u0660"):
            assert not fits(text + added) and not fits(added + text)


@given(field=st.sampled_from(sorted(RULES)), data=st.data())
def test_accepted_values_are_safe_shell_words(field: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(re.compile(RULES[field].pattern, re.ASCII), fullmatch=True))
    assert shlex.quote(text) == text
    assert not text.startswith("-")
    assert len(text) < 100


@given(field=st.sampled_from(sorted(RULES)), value=WORDS | st.just(LONG) | st.integers() | st.booleans() | st.none())
def test_rejection_has_field_value_and_rule_in_short_ascii(field: str, value: object) -> None:
    said = violation(field, value)
    assert said == "" or said == f"{field} = {escaped(value)}: must be {RULES[field].words}"
    assert said.isascii()
    assert said == "" or said.isprintable()
    assert len(escaped(value)) <= SHOWN + 3


NODES = """\
deeplearning-master 10.0.0.12 i-000000aa 1 ens5 us-east-1a x86_64
deeplearning-worker10 10.0.1.20 i-000000bb 1 ens5 us-east-1a x86_64
deeplearning-worker2 10.0.1.12 i-000000cc 4 ens5 us-east-1a x86_64
deeplearning-worker1 10.0.1.11 i-000000dd 4 ens5 us-east-1a x86_64
"""


def test_nodes_are_parsed_and_workers_are_ordered_by_index() -> None:
    nodes = parse_nodes(NODES, pytest.fail)
    assert nodes[0] == Node(
        name="deeplearning-master",
        address="10.0.0.12",
        instance_id="i-000000aa",
        slots=1,
        interface="ens5",
        zone="us-east-1a",
        kind="x86_64",
    )
    assert [node.name for node in workers(nodes)] == [
        "deeplearning-worker1",
        "deeplearning-worker2",
        "deeplearning-worker10",
    ]


MASTER, *OTHERS = parse_nodes(NODES, pytest.fail)
LINE = "deeplearning-worker1 10.0.1.11 i-000000dd {slots} ens5 us-east-1a x86_64"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("deeplearning-worker1 10.0.1.11 i-000000dd 4 ens5", "'deeplearning-worker1 10.0.1.11 .*: must be NAME IP "),
        (LINE.format(slots="four"), "slots = 'four': must be a whole number"),
        (LINE.format(slots="\u0664"), r"slots = '\\u0664': must be "),
        (LINE.format(slots=4).replace("10.0.1.11", "10.0.64.5'$(id)'"), r"address = .*\$\(id\).*: must be an IPv4 "),
        (LINE.format(slots=4).replace("i-000000dd", "../../x"), "instance_id = '../../x': must be i- and 8 or 17"),
        (LINE.format(slots=4).replace("worker1", "worker1\x1b[2J"), r"name = '.*\\x1b\[2J': must be "),
        ("# deeplearning-worker1\x1b[2J is left out", r"reports 'deeplearning-worker1\\x1b\[2J is left out'; "),
    ],
)
def test_invalid_line_is_skipped_and_reported_without_control_characters(line: str, rule: str) -> None:
    told: list[str] = []
    first, second, *rest = NODES.splitlines()
    assert parse_nodes("\n".join([first, second, line, *rest[:1]]), told.append) == (MASTER, *OTHERS[:2])
    (sentence,) = told
    assert sentence.isascii()
    assert sentence.isprintable()
    assert re.match(f"line 3 of /opt/deeplearning/nodes on the master .*{rule}.*`fab replace INSTANCE_ID`", sentence)


CLAIMS = (
    ("name", "deeplearning-worker2 10.0.1.99 i-00000099 1 ens5 us-east-1a x86_64"),
    ("address", "deeplearning-worker9 10.0.1.12 i-00000099 1 ens5 us-east-1a x86_64"),
    ("instance_id", "deeplearning-worker9 10.0.1.99 i-000000cc 1 ens5 us-east-1a x86_64"),
)


@pytest.mark.parametrize(("field", "line"), CLAIMS)
def test_nodes_with_duplicate_values_are_all_skipped(field: str, line: str) -> None:
    told: list[str] = []
    assert [node.name for node in parse_nodes(f"{line}\n{NODES}", told.append)] == [
        "deeplearning-master",
        "deeplearning-worker10",
        "deeplearning-worker1",
    ]
    assert [sentence.split(" ")[1] for sentence in told] == ["1", "4"]
    assert all(f"another line has the same {field} = " in sentence for sentence in told)


@pytest.mark.parametrize("claim", ["10.0.0.12 i-00000099", "10.0.1.99 i-000000aa"])
def test_worker_cannot_claim_to_be_the_master(claim: str) -> None:
    told: list[str] = []
    assert parse_nodes(f"deeplearning-worker9 {claim} 1 ens5 us-east-1a x86_64\n{NODES}", told.append) == (
        MASTER,
        *OTHERS,
    )
    assert [sentence.split(" ")[1] for sentence in told] == ["1"]


@settings(max_examples=50)
@given(text=st.lists(WORDS | st.just(NODES), max_size=6).map("\n".join))
def test_any_text_gives_valid_nodes_and_printable_errors(text: str) -> None:
    told: list[str] = []
    nodes = parse_nodes(text, told.append)
    assert [dataclasses.replace(node) for node in nodes] == list(nodes)
    assert all(sentence.isascii() and sentence.isprintable() and len(sentence) < 600 for sentence in told)
    assert len(nodes) + len(told) == sum(line != "" for line in text.split("\n"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("address", "10.0.64.5'$(touch x)'"),
        ("instance_id", "../../etc/passwd"),
        ("slots", 1025),
        ("slots", True),
        ("slots", "1"),
        ("zone", "us-east-1a\n"),
    ],
)
def test_invalid_node_cannot_be_created_or_read_from_spec(field: str, value: object) -> None:
    with pytest.raises(SpecError, match=f"^{field} = .*: must be "):
        make_node(**{field: value})
    document = json.loads(make_spec().to_json())
    document["hosts"][0][field] = value
    with pytest.raises(SpecError, match=f"^the run's spec is invalid: hosts: {field} = .*: must be "):
        RunSpec.from_json(json.dumps(document))


def test_too_few_workers_are_rejected_with_both_numbers() -> None:
    with pytest.raises(SpecError, match=r"4 nodes requested, but 3 ready .*deeplearning-worker10"):
        choose_hosts(parse_nodes(NODES, pytest.fail), 4)
    with pytest.raises(SpecError, match="0 nodes requested"):
        choose_hosts(parse_nodes(NODES, pytest.fail), 0)


def test_ranks_connect_over_the_masters_interface_name() -> None:
    nodes = (make_master(interface="eth0"), *make_nodes(2))
    assert meeting_interface(nodes) == "eth0"
    assert meeting_interface(nodes[1:]) == ""


ADDRESS = st.ip_addresses(v=4).map(str)


@settings(max_examples=40)
@given(addresses=st.lists(ADDRESS, min_size=1, max_size=4))
def test_network_of_nodes_is_smallest_that_contains_all(addresses: list[str]) -> None:
    found = ipaddress.IPv4Network(common_network([make_node(address=each) for each in addresses]))
    assert all(ipaddress.IPv4Address(each) in found for each in addresses)
    if found.prefixlen < 32:
        halves = list(found.subnets())
        assert all(any(ipaddress.IPv4Address(each) in half for each in addresses) for half in halves)
