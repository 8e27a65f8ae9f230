"""Facts about the rules for nodes: they take what Linux and EC2 give, and nothing that a shell or SSH would read."""

from __future__ import annotations

import ipaddress
import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.spec.node_rules import MOST_SLOTS, RULES, SHOWN, broken, escaped
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
}  # fmt: skip


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(field, text) for field, texts in table.items() for text in texts]


@pytest.mark.parametrize(("field", "text"), cases(ACCEPTED))
def test_what_linux_and_ec2_give_is_taken(field: str, text: str) -> None:
    assert RULES[field].fits(text)


@pytest.mark.parametrize(("field", "text"), cases(REFUSED))
def test_what_is_close_to_it_is_not(field: str, text: str) -> None:
    assert not RULES[field].fits(text)


@pytest.mark.parametrize(("field", "text"), cases(ACCEPTED))
@pytest.mark.parametrize("added", ["\n", " ", "\0", ";", "'", "$", "\u0660"])
def test_nothing_may_stand_before_or_after_it(field: str, text: str, added: str) -> None:
    assert not RULES[field].fits(text + added)
    assert not RULES[field].fits(added + text)


@given(field=st.sampled_from(sorted(RULES)), data=st.data())
def test_what_a_rule_takes_is_one_short_plain_word_to_a_shell_and_no_flag(field: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(re.compile(RULES[field].pattern, re.ASCII), fullmatch=True))
    assert shlex.quote(text) == text
    assert not text.startswith("-")
    assert len(text) < 100


@given(st.ip_addresses(v=4).map(str) | st.text("0123456789.", max_size=16))
def test_an_address_is_what_python_writes_for_one(text: str) -> None:
    try:
        canonical = str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        canonical = False
    assert RULES["address"].fits(text) == canonical


@given(st.integers(-2000, 3000))
def test_slots_are_the_numbers_up_to_the_most(slots: int) -> None:
    assert (broken("slots", slots) == "") == (1 <= slots <= MOST_SLOTS)


@given(field=st.sampled_from(sorted(RULES)), value=WORDS | st.just(LONG) | st.integers() | st.booleans() | st.none())
def test_a_refusal_names_field_value_and_rule_in_short_plain_ascii(field: str, value: object) -> None:
    said = broken(field, value)
    assert said == "" or said == f"{field} = {escaped(value)}: must be {RULES[field].words}"
    assert said.isascii()
    assert said == "" or said.isprintable()
    assert len(escaped(value)) <= SHOWN + 3
