"""Facts about the launch of a run: nodes, hosts, commands, environment, and the spec's way through JSON."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.knobs import CONTROLLERS, Knobs
from payload.launch import (
    Launch,
    LaunchError,
    Node,
    choose_hosts,
    common_network,
    make_run_id,
    meeting_interface,
    parse_nodes,
    workers,
)
from payload.launcher import horovodrun, launcher_environment
from tests.words import FILE_NAMES, LONG, NASTIEST, WORDS

NODES = """\
deeplearning-master 10.0.0.12 i-0aa 1 ens5 us-east-1a
deeplearning-worker10 10.0.1.20 i-0bb 1 ens5 us-east-1a
deeplearning-worker2 10.0.1.12 i-0cc 4 ens5 us-east-1a
deeplearning-worker1 10.0.1.11 i-0dd 4 ens5 us-east-1a
"""


def make_launch(**changes: object) -> Launch:
    values: dict[str, object] = {
        "run_id": "20261120-121314-digits-ab12",
        "efs_mount": "/mnt/efs",
        "payload": "0123456789abcdef",
        "command": ("-m", "payload.train", "--recipe", "digits"),
        "hosts": choose_hosts(parse_nodes(NODES), 2),
        "interface": "ens5",
    }
    return Launch(**{**values, **changes})  # type: ignore[arg-type]  # the tests give what fits


def test_nodes_are_parsed_and_workers_are_ordered_by_index() -> None:
    nodes = parse_nodes(NODES)
    assert nodes[0] == Node(
        name="deeplearning-master",
        address="10.0.0.12",
        instance_id="i-0aa",
        slots=1,
        interface="ens5",
        zone="us-east-1a",
    )
    assert [node.name for node in workers(nodes)] == [
        "deeplearning-worker1",
        "deeplearning-worker2",
        "deeplearning-worker10",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "deeplearning-worker1 10.0.1.11 i-0dd 4 ens5",
        "deeplearning-worker1 10.0.1.11 i-0dd four ens5 us-east-1a",
        "deeplearning-worker1 10.0.1.11 i-0dd 0 ens5 us-east-1a",
        "deeplearning-worker1 10.0.1.11 i-0dd 99999999999 ens5 us-east-1a",
        f"deeplearning-worker1 10.0.1.11 i-0dd {'9' * 5000} ens5 us-east-1a",
        "deeplearning-worker1 -oProxyCommand=x i-0dd 4 ens5 us-east-1a",
        "deeplearning-worker1 %h i-0dd 4 ens5 us-east-1a",
        "* 10.0.1.11 i-0dd 4 ens5 us-east-1a",
        "a/../b 10.0.1.11 i-0dd 4 ens5 us-east-1a",
        "deeplearning-worker1\x1b[2J 10.0.1.11 i-0dd 4 ens5 us-east-1a",
    ],
)
def test_a_malformed_nodes_line_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(LaunchError, match="line 2 of") as caught:
        parse_nodes("deeplearning-master 10.0.0.12 i-0aa 1 ens5 us-east-1a\n" + line)
    assert "\x1b" not in str(caught.value)


def test_too_few_workers_are_refused_with_both_numbers() -> None:
    with pytest.raises(LaunchError, match=r"4 nodes wanted, 3 ready .*deeplearning-worker10"):
        choose_hosts(parse_nodes(NODES), 4)
    with pytest.raises(LaunchError, match="0 nodes wanted"):
        choose_hosts(parse_nodes(NODES), 0)


def test_the_ranks_meet_on_the_masters_interface_whatever_the_workers_call_theirs() -> None:
    nodes = parse_nodes(NODES.replace("i-0aa 1 ens5", "i-0aa 1 eth0"))
    assert meeting_interface(nodes) == "eth0"
    assert meeting_interface(nodes[1:]) == ""


def test_a_program_works_in_its_own_copy_and_the_payload_in_the_pushed_tree() -> None:
    launch = make_launch()
    assert launch.working_directory == launch.payload_directory == "/mnt/efs/payloads/0123456789abcdef"
    own = make_launch(program="fedcba9876543210", command=("train.py",))
    assert own.working_directory == f"{own.run_directory}/work"
    assert own.program_directory == "/mnt/efs/payloads/fedcba9876543210/program"


def test_where_its_ranks_run_is_said_in_words() -> None:
    nodes = parse_nodes(NODES)
    assert make_launch().placed == "8 ranks on deeplearning-worker1, deeplearning-worker2"
    alone = dataclasses.replace(choose_hosts(nodes, 1)[0], slots=1)
    assert make_launch(hosts=(alone,)).placed == "1 rank on deeplearning-worker1"


ADDRESS = st.ip_addresses(v=4).map(str)


@given(addresses=st.lists(ADDRESS, min_size=1, max_size=4))
def test_the_network_of_nodes_is_the_smallest_that_holds_them_all(addresses: list[str]) -> None:
    like = parse_nodes(NODES)[0]
    found = ipaddress.IPv4Network(common_network([dataclasses.replace(like, address=each) for each in addresses]))
    assert all(ipaddress.IPv4Address(each) in found for each in addresses)
    if found.prefixlen < 32:
        halves = list(found.subnets())
        assert all(any(ipaddress.IPv4Address(each) in half for each in addresses) for half in halves)


def test_nodes_without_addresses_have_no_network() -> None:
    assert common_network([]) == ""
    assert common_network([dataclasses.replace(parse_nodes(NODES)[0], address="")]) == ""


def test_a_run_id_sorts_by_time_and_names_the_recipe() -> None:
    now = datetime.datetime(2026, 11, 20, 12, 13, 14)
    assert make_run_id(now, "Fashion MNIST", "ab12") == "20261120-121314-fashion-mnist-ab12"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", "../escape"),
        ("run_id", ""),
        ("payload", "0123"),
        ("payload", ""),
        ("program", "../../etc"),
        ("knobs", Knobs(hierarchical_allreduce=True)),
        ("knobs", Knobs(hierarchical_allgather=True)),
        ("controller", "smoke"),
        ("efs_mount", "/mnt/with space"),
        ("efs_mount", "/mnt/$(reboot)"),
        ("hosts", ()),
        ("environment", (("A=B", "x"),)),
    ],
)
def test_a_launch_that_cannot_be_is_refused_where_it_is_built(field: str, value: object) -> None:
    with pytest.raises(LaunchError):
        make_launch(**{field: value})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"run_id": 1}', '{"hosts": 3}', '{"unknown": 1}', '{"knobs": {"cycle_time_ms": -1}}']
)
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(LaunchError):
        Launch.from_json(text)


@given(
    command=st.lists(st.text(st.characters(codec="utf-8"))).map(tuple),
    value=st.text(st.characters(codec="utf-8", exclude_characters="\0")),
)
def test_a_spec_comes_back_from_json_unchanged(command: tuple[str, ...], value: str) -> None:
    knobs = Knobs(cycle_time_ms=2.5, autotune=True)
    launch = make_launch(command=command, environment=(("ANY", value),), knobs=knobs)
    assert Launch.from_json(launch.to_json()) == launch


@given(words=st.lists(WORDS | st.just(LONG), max_size=4), path=FILE_NAMES)
def test_words_that_are_not_utf_8_and_long_ones_come_back_too_and_every_secrets_name(
    words: list[str], path: str
) -> None:
    launch = make_launch(command=("x", *words), program="0" * 16, requirements=path, secrets=("A", "B_2"))
    assert Launch.from_json(launch.to_json()) == launch
    launch.to_json().encode("ascii")


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_neither_launcher_is_told_a_word_a_value_or_a_secrets_name_that_a_shell_could_read(controller: str) -> None:
    fields: dict[str, object] = {"controller": controller, "network": "10.0.0.0/16", "program": "0" * 16}
    plain = make_launch(command=("train.py",), **fields)
    nasty = make_launch(
        command=("train.py", *NASTIEST),
        environment=(("NAME", LONG),),
        secrets=("TOKEN",),
        requirements="$(id)",
        **fields,
    )
    assert horovodrun(nasty, "/python") == horovodrun(plain, "/python")
    assert launcher_environment(nasty, {}) == launcher_environment(plain, {})
