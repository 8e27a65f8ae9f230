"""Facts about the launch of a run: nodes, hosts, commands, environment, and the spec's way through JSON."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.launch.horovodrun_command import horovodrun, launcher_environment
from agent.spec.horovod import CONTROLLERS, Knobs
from agent.spec.run import (
    Node,
    RunSpec,
    SpecError,
    choose_hosts,
    common_network,
    make_run_id,
    meeting_interface,
    parse_nodes,
    workers,
)
from tests.words import FILE_NAMES, LONG, NASTIEST, WORDS

NODES = """\
deeplearning-master 10.0.0.12 i-000000aa 1 ens5 us-east-1a
deeplearning-worker10 10.0.1.20 i-000000bb 1 ens5 us-east-1a
deeplearning-worker2 10.0.1.12 i-000000cc 4 ens5 us-east-1a
deeplearning-worker1 10.0.1.11 i-000000dd 4 ens5 us-east-1a
"""


def make_launch(**changes: object) -> RunSpec:
    values: dict[str, object] = {
        "run_id": "20261120-121314-digits-ab12",
        "efs_mount": "/mnt/efs",
        "agent": "a" * 16,
        "payload": "0123456789abcdef",
        "command": ("-m", "payload.train", "--recipe", "digits"),
        "hosts": choose_hosts(parse_nodes(NODES, pytest.fail), 2),
        "interface": "ens5",
    }
    return RunSpec(**{**values, **changes})  # type: ignore[arg-type]  # the tests give what fits


def test_nodes_are_parsed_and_workers_are_ordered_by_index() -> None:
    nodes = parse_nodes(NODES, pytest.fail)
    assert nodes[0] == Node(
        name="deeplearning-master",
        address="10.0.0.12",
        instance_id="i-000000aa",
        slots=1,
        interface="ens5",
        zone="us-east-1a",
    )
    assert [node.name for node in workers(nodes)] == [
        "deeplearning-worker1",
        "deeplearning-worker2",
        "deeplearning-worker10",
    ]


MASTER, *OTHERS = parse_nodes(NODES, pytest.fail)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("deeplearning-worker1 10.0.1.11 i-000000dd 4 ens5", "'deeplearning-worker1 10.0.1.11 .*: must be NAME IP "),
        ("deeplearning-worker1 10.0.1.11 i-000000dd four ens5 us-east-1a", "slots = 'four': must be a whole number"),
        ("deeplearning-worker1 10.0.1.11 i-000000dd 0 ens5 us-east-1a", "slots = '0': must be a whole number from 1"),
        ("deeplearning-worker1 10.0.1.11 i-000000dd 99999999999 ens5 us-east-1a", "slots = '9*': must be "),
        ("deeplearning-worker1 10.0.1.11 i-000000dd \u0664 ens5 us-east-1a", r"slots = '\\u0664': must be "),
        ("deeplearning-worker01 10.0.1.11 i-000000dd 4 ens5 us-east-1a", "name = 'deeplearning-worker01': must be "),
        ("-oProxyCommand=x 10.0.1.11 i-000000dd 4 ens5 us-east-1a", "name = '-oProxyCommand=x': must be "),
        (
            "deeplearning-worker1 10.0.64.5'$(id)' i-000000dd 4 ens5 us-east-1a",
            r"address = .*\$\(id\).*: must be an IPv4 ",
        ),
        ("deeplearning-worker1 10.0.64.005 i-000000dd 4 ens5 us-east-1a", "address = '10.0.64.005': must be "),
        ("deeplearning-worker1 10.0.64.5 ../../x 4 ens5 us-east-1a", "instance_id = '../../x': must be i- and 8 or 17"),
        ("deeplearning-worker1 10.0.64.5 i-000000dd 4 -i us-east-1a", "interface = '-i': must be a network interface"),
        ("deeplearning-worker1 10.0.64.5 i-000000dd 4 ens5 a;b", "zone = 'a;b': must be a zone such as us-east-1a"),
        ("deeplearning-worker1\x1b[2J 10.0.64.5 i-000000dd 4 ens5 us-east-1a", r"name = '.*\\x1b\[2J': must be "),
        ("# deeplearning-worker1\x1b[2J is left out", r"says 'deeplearning-worker1\\x1b\[2J is left out'; "),
    ],
)
def test_a_line_against_a_rule_leaves_out_its_node_alone_and_is_told_without_control_characters(
    line: str, rule: str
) -> None:
    told: list[str] = []
    first, second, *rest = NODES.splitlines()
    assert parse_nodes("\n".join([first, second, line, *rest[:1]]), told.append) == (MASTER, *OTHERS[:2])
    (sentence,) = told
    assert sentence.isascii()
    assert sentence.isprintable()
    assert re.match(f"line 3 of /opt/deeplearning/nodes on the master .*{rule}.*`fab replace INSTANCE_ID`", sentence)


CLAIMS = (
    ("name", "deeplearning-worker2 10.0.1.99 i-00000099 1 ens5 us-east-1a"),
    ("address", "deeplearning-worker9 10.0.1.12 i-00000099 1 ens5 us-east-1a"),
    ("instance_id", "deeplearning-worker9 10.0.1.99 i-000000cc 1 ens5 us-east-1a"),
)


@pytest.mark.parametrize(("field", "line"), CLAIMS)
def test_of_nodes_that_claim_the_same_none_is_taken_for_nothing_tells_which_is_right(field: str, line: str) -> None:
    told: list[str] = []
    assert [node.name for node in parse_nodes(f"{line}\n{NODES}", told.append)] == [
        "deeplearning-master",
        "deeplearning-worker10",
        "deeplearning-worker1",
    ]
    assert [sentence.split(" ")[1] for sentence in told] == ["1", "4"]
    assert all(f"another line has the same {field} = " in sentence for sentence in told)


@pytest.mark.parametrize("claim", ["10.0.0.12 i-00000099", "10.0.1.99 i-000000aa"])
def test_a_worker_that_claims_to_be_the_masters_machine_takes_nothing_from_the_master(claim: str) -> None:
    told: list[str] = []
    assert parse_nodes(f"deeplearning-worker9 {claim} 1 ens5 us-east-1a\n{NODES}", told.append) == (MASTER, *OTHERS)
    assert [sentence.split(" ")[1] for sentence in told] == ["1"]


def test_two_masters_are_none() -> None:
    told: list[str] = []
    second = "deeplearning-master 10.0.0.13 i-000000ab 1 ens5 us-east-1a"
    assert parse_nodes(f"{NODES}{second}\n", told.append) == tuple(OTHERS)
    assert len(told) == 2


@given(text=st.lists(WORDS | st.just(NODES), max_size=6).map("\n".join))
def test_any_text_yields_valid_nodes_and_a_printable_sentence_for_each_other_line(text: str) -> None:
    told: list[str] = []
    nodes = parse_nodes(text, told.append)
    assert [dataclasses.replace(node) for node in nodes] == list(nodes)
    assert all(sentence.isascii() and sentence.isprintable() and len(sentence) < 600 for sentence in told)
    assert len(nodes) + len(told) == sum(line != "" for line in text.split("\n"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "deeplearning-worker0"),
        ("address", "10.0.64.5'$(touch x)'"),
        ("instance_id", "../../etc/passwd"),
        ("slots", 1025),
        ("slots", True),
        ("slots", "1"),
        ("slots", 1.0),
        ("interface", "ens5;id"),
        ("zone", None),
        ("zone", "us-east-1a\n"),
    ],
)
def test_no_node_is_made_against_a_rule_neither_here_nor_from_a_spec(field: str, value: object) -> None:
    with pytest.raises(SpecError, match=f"^{field} = .*: must be "):
        Node(**{**dataclasses.asdict(MASTER), field: value})
    document = json.loads(make_launch().to_json())
    document["hosts"][0][field] = value
    with pytest.raises(SpecError, match=f"^hosts: {field} = .*: must be "):
        RunSpec.from_json(json.dumps(document))


def test_too_few_workers_are_refused_with_both_numbers() -> None:
    with pytest.raises(SpecError, match=r"4 nodes wanted, 3 ready .*deeplearning-worker10"):
        choose_hosts(parse_nodes(NODES, pytest.fail), 4)
    with pytest.raises(SpecError, match="0 nodes wanted"):
        choose_hosts(parse_nodes(NODES, pytest.fail), 0)


def test_the_ranks_meet_on_the_masters_interface_whatever_the_workers_call_theirs() -> None:
    nodes = parse_nodes(NODES.replace("i-000000aa 1 ens5", "i-000000aa 1 eth0"), pytest.fail)
    assert meeting_interface(nodes) == "eth0"
    assert meeting_interface(nodes[1:]) == ""


def test_a_program_works_in_its_own_copy_and_the_payload_in_the_pushed_tree() -> None:
    launch = make_launch()
    assert launch.working_directory == launch.payload_directory == "/mnt/efs/payloads/0123456789abcdef"
    assert launch.agent_directory == "/mnt/efs/payloads/aaaaaaaaaaaaaaaa"
    own = make_launch(program="fedcba9876543210", command=("train.py",))
    assert own.working_directory == f"{own.run_directory}/work"
    assert own.program_directory == "/mnt/efs/payloads/fedcba9876543210/program"


def test_where_its_ranks_run_is_said_in_words() -> None:
    nodes = parse_nodes(NODES, pytest.fail)
    assert make_launch().placed == "8 ranks on deeplearning-worker1, deeplearning-worker2"
    alone = dataclasses.replace(choose_hosts(nodes, 1)[0], slots=1)
    assert make_launch(hosts=(alone,)).placed == "1 rank on deeplearning-worker1"


ADDRESS = st.ip_addresses(v=4).map(str)


@given(addresses=st.lists(ADDRESS, min_size=1, max_size=4))
def test_the_network_of_nodes_is_the_smallest_that_holds_them_all(addresses: list[str]) -> None:
    like = parse_nodes(NODES, pytest.fail)[0]
    found = ipaddress.IPv4Network(common_network([dataclasses.replace(like, address=each) for each in addresses]))
    assert all(ipaddress.IPv4Address(each) in found for each in addresses)
    if found.prefixlen < 32:
        halves = list(found.subnets())
        assert all(any(ipaddress.IPv4Address(each) in half for each in addresses) for half in halves)


def test_no_nodes_have_no_network() -> None:
    assert common_network([]) == ""


def test_a_run_id_sorts_by_time_and_names_the_recipe() -> None:
    now = datetime.datetime(2026, 11, 20, 12, 13, 14)
    assert make_run_id(now, "Fashion MNIST", "ab12") == "20261120-121314-fashion-mnist-ab12"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", "../escape"),
        ("run_id", ""),
        ("agent", "../../etc"),
        ("payload", "0123"),
        ("payload", ""),
        ("program", "../../etc"),
        ("knobs", Knobs(hierarchical_allreduce=True)),
        ("knobs", Knobs(hierarchical_allgather=True)),
        ("interface", "ens5;id"),
        ("network", "10.0.0.0/20;id"),
        ("controller", "smoke"),
        ("efs_mount", "/mnt/with space"),
        ("efs_mount", "/mnt/$(reboot)"),
        ("hosts", ()),
        ("environment", (("A=B", "x"),)),
    ],
)
def test_a_launch_that_cannot_be_is_refused_where_it_is_built(field: str, value: object) -> None:
    with pytest.raises(SpecError):
        make_launch(**{field: value})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"run_id": 1}', '{"hosts": 3}', '{"unknown": 1}', '{"knobs": {"cycle_time_ms": -1}}']
)
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        RunSpec.from_json(text)


def test_a_spec_of_an_older_version_is_read_and_one_of_a_newer_version_is_refused_by_its_fields() -> None:
    document = json.loads(make_launch().to_json())
    del document["agent"]
    older = RunSpec.from_json(json.dumps(document))
    with pytest.raises(SpecError, match="names no agent: an older version launched the run; `fab resume 2026"):
        _ = older.agent_directory
    with pytest.raises(SpecError, match="unknown fields: colour; a newer version wrote it"):
        RunSpec.from_json(json.dumps({**document, "colour": "blue"}))


@given(
    command=st.lists(st.text(st.characters(codec="utf-8"))).map(tuple),
    value=st.text(st.characters(codec="utf-8", exclude_characters="\0")),
)
def test_a_spec_comes_back_from_json_unchanged(command: tuple[str, ...], value: str) -> None:
    knobs = Knobs(cycle_time_ms=2.5, autotune=True)
    launch = make_launch(command=command, environment=(("ANY", value),), knobs=knobs)
    assert RunSpec.from_json(launch.to_json()) == launch


@given(words=st.lists(WORDS | st.just(LONG), max_size=4), path=FILE_NAMES)
def test_words_that_are_not_utf_8_and_long_ones_come_back_too_and_every_secrets_name(
    words: list[str], path: str
) -> None:
    launch = make_launch(command=("x", *words), program="0" * 16, requirements=path, secrets=("A", "B_2"))
    assert RunSpec.from_json(launch.to_json()) == launch
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
