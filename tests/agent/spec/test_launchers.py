"""The places of ranks: each rank has one, counted by hosts and slots."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.spec.launchers import (
    MASTER_PORT,
    PLACE_VARIABLES,
    expand,
    has_placeholder,
    node_variables,
    place_values,
    places,
    tf_config,
)
from tests.factories import make_node


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8))
def test_ranks_are_numbered_consecutively_and_meet_on_first_host(slots: list[int]) -> None:
    hosts = [make_node(number, slots=count) for number, count in enumerate(slots, start=1)]
    found = [place for index in range(len(hosts)) for place in places(hosts, index)]
    assert [place["RANK"] for place in found] == [str(rank) for rank in range(sum(slots))]
    assert {place["WORLD_SIZE"] for place in found} == {str(sum(slots))}
    assert {place["MASTER_ADDR"] for place in found} == {hosts[0].address}
    for number, host in enumerate(hosts):
        here = [place for place in found if place["NODE_RANK"] == str(number)]
        assert [place["LOCAL_RANK"] for place in here] == [str(slot) for slot in range(host.slots)]
        assert {place["LOCAL_WORLD_SIZE"] for place in here} == {str(host.slots)}


def test_variables_that_the_launcher_sets_cannot_be_given_by_the_user() -> None:
    (place,) = places([make_node()], 0)
    assert set(place) <= set(PLACE_VARIABLES)


def test_rendezvous_port_is_outside_of_ephemeral_ports() -> None:
    assert 1024 <= MASTER_PORT < 32768


def test_tf_config_gives_each_rank_its_own_address() -> None:
    hosts = [make_node(1, slots=2), make_node(2)]
    document = json.loads(tf_config(hosts, 2))
    assert document["task"] == {"type": "worker", "index": 2}
    addresses = document["cluster"]["worker"]
    first, second = (host.address for host in hosts)
    assert addresses == [f"{first}:29501", f"{first}:29502", f"{second}:29501"]
    assert f"{first}:{MASTER_PORT}" not in addresses


def test_node_names_are_in_rank_order_with_the_own_one() -> None:
    hosts = [make_node(2), make_node(1)]
    found = node_variables(hosts, hosts[1])
    assert found["DEEPCDK_NODES"] == ",".join(host.name for host in hosts)
    assert found["DEEPCDK_NODE_ADDRESSES"] == ",".join(host.address for host in hosts)
    assert (found["DEEPCDK_NODE"], found["DEEPCDK_NODE_RANK"]) == (hosts[1].name, "1")
    assert "DEEPCDK_NODE" not in node_variables(hosts, None)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--rank={rank}", "--rank=3"),
        ("{master_addr}:{master_port}", "10.0.0.1:29500"),
        ("PROCESS_ID={rank} exec python train.py", "PROCESS_ID=3 exec python train.py"),
        ("{{rank}}", "{rank}"),
        *(
            (word, word)
            for word in (
                '{"rank": 1}',
                "${rank}",
                "$RANK",
                "${RANK}",
                "{RANK}",
                "{step:04d}",
                "{rank:02d}",
                "{{step}}",
                "{{ rank }}",
                "{}",
                "{rank",
                "rank}",
                "{a: {b: 1}}",
                "{local_size}",
                "\\{rank}",
            )
        ),
    ],
)
def test_only_placeholders_are_expanded(word: str, expected: str) -> None:
    values = {"rank": "3", "master_addr": "10.0.0.1", "master_port": "29500"}
    assert expand(word, values) == expected


def test_unknown_placeholder_is_kept() -> None:
    assert expand("{rank} {node_rank}", {"node_rank": "0"}) == "{rank} 0"
    assert has_placeholder("--r={rank}")
    assert not has_placeholder('${rank} {{rank}} {"rank": 1}')


@pytest.mark.parametrize(
    "environ",
    [
        {"HOROVOD_RANK": "3", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"},
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    ],
)
def test_placeholders_have_values_under_every_launcher(environ: dict[str, str]) -> None:
    hosts = [make_node(1, slots=2), make_node(2, slots=2)]
    values = place_values(hosts, environ | node_variables(hosts, hosts[1]))
    words = ("{rank} {world_size} {local_rank} {local_world_size}", "{node_rank} {num_nodes} {node_name}")
    assert [expand(word, values) for word in words] == ["3 4 1 2", f"1 2 {hosts[1].name}"]
    assert set(values) == {
        *("rank", "world_size", "local_rank", "local_world_size", "node_rank", "num_nodes"),
        *("node_name", "node_names", "node_addresses", "master_addr", "master_port"),
    }
