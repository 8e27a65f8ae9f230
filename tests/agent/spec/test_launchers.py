"""Facts about the places of ranks: each has one of its own, counted by hosts and slots."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.spec.launchers import MASTER_PORT, PLACE_VARIABLES, places
from stacks.config import RENDEZVOUS_PORTS
from tests.factories import make_node


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8))
def test_ranks_are_counted_through_and_meet_at_the_first_host(slots: list[int]) -> None:
    hosts = [make_node(number, slots=count) for number, count in enumerate(slots, start=1)]
    found = [place for index in range(len(hosts)) for place in places(hosts, index)]
    assert [place["RANK"] for place in found] == [str(rank) for rank in range(sum(slots))]
    assert {place["WORLD_SIZE"] for place in found} == {str(sum(slots))}
    assert {place["MASTER_ADDR"] for place in found} == {hosts[0].address}
    for number, host in enumerate(hosts):
        here = [place for place in found if place["NODE_RANK"] == str(number)]
        assert [place["LOCAL_RANK"] for place in here] == [str(slot) for slot in range(host.slots)]
        assert {place["LOCAL_WORLD_SIZE"] for place in here} == {str(host.slots)}


def test_what_a_rank_is_told_cannot_be_given_by_the_user() -> None:
    (place,) = places([make_node()], 0)
    assert set(place) <= set(PLACE_VARIABLES)


def test_the_ranks_meet_at_a_port_that_is_open_between_nodes_and_not_for_connections() -> None:
    assert RENDEZVOUS_PORTS[0] <= MASTER_PORT < 32768
