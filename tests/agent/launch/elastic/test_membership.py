"""Facts about the places of ranks, from one forming to the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.launch.elastic.membership import MemberHost, Membership
from agent.launch.elastic.places import Answers
from agent.spec.elastic import Place
from tests.factories import make_node


def formed(*slots: int, least: int = 1) -> tuple[Membership, list[MemberHost]]:
    """Return a membership in its first round, all of whose ranks have joined, and its hosts."""
    membership = Membership(least)
    hosts = [membership.add(make_node(n, slots=count)) for n, count in enumerate(slots, start=1)]
    all_ask(membership, hosts)
    membership.form("10.0.0.5", 4000)
    for host in hosts:
        for member in host.members:
            membership.join(member)
    return membership, hosts


def is_ready(membership: Membership) -> bool:
    """Look anew: mypy takes a property to keep its value."""
    return membership.is_ready


def is_wanted(membership: Membership) -> bool:
    return membership.is_wanted


def all_ask(membership: Membership, hosts: list[MemberHost]) -> None:
    for host in hosts:
        assert [membership.ask(member) for member in host.members] == [True] * len(host.members)


def test_the_first_round_waits_for_all_ranks_and_numbers_them_host_by_host() -> None:
    membership = Membership(1)
    two, one = membership.add(make_node(1, slots=2)), membership.add(make_node(2, slots=1))
    assert [membership.ask(member) for member in two.members] == [True, True]
    assert not is_ready(membership)
    membership.ask(one.members[0])
    assert is_ready(membership)
    places = membership.form("10.0.0.5", 4000)
    assert {member: place.numbers for member, place in places.items()} == {
        0: "0,3,0,2,0,2",
        1: "1,3,1,2,0,1",
        2: "2,3,0,1,1,2",
    }
    assert places[0].variables()["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "4000"


def test_a_host_with_other_data_than_the_first_round_had_is_no_part_of_the_next() -> None:
    membership = Membership(1)
    first = membership.add(make_node(1))
    membership.ask(first.members[0], "one")
    assert not membership.strangers
    membership.form("10.0.0.5", 4000)
    same, other, silent = [membership.add(make_node(number)) for number in (2, 3, 4)]
    membership.ask(other.members[0], "another")
    assert (membership.strangers, is_wanted(membership)) == ([other], False)
    membership.ask(same.members[0], "one")
    membership.ask(silent.members[0])
    assert membership.strangers == [other] and is_wanted(membership)
    assert membership.next_hosts == [first, same, silent]


def test_ranks_of_the_first_round_that_differ_are_left_to_agree_by_themselves() -> None:
    membership = Membership(1)
    hosts = [membership.add(make_node(number)) for number in (1, 2)]
    for host, data in zip(hosts, ("one", "another"), strict=True):
        membership.ask(host.members[0], data)
    assert is_ready(membership) and membership.next_hosts == hosts


def test_where_the_first_round_said_nothing_of_its_data_any_host_may_join() -> None:
    membership, _ = formed(1)
    new = membership.add(make_node(2))
    membership.ask(new.members[0], "one")
    assert not membership.strangers and is_wanted(membership)


def test_when_rank_0_is_lost_the_next_one_takes_its_place_once_all_others_have_asked() -> None:
    membership, (first, second, third) = formed(1, 1, 1)
    membership.lose(first, "rank 0 was killed")
    membership.ask(second.members[0])
    assert not is_ready(membership)
    assert membership.silent == [third]
    membership.ask(third.members[0])
    assert is_ready(membership) and not membership.silent
    places = membership.form("10.0.0.5", 4001)
    assert [(member, place.rank, place.size) for member, place in places.items()] == [(1, 0, 2), (2, 1, 2)]
    (place, _) = places.values()
    assert (place.lost, place.lost_ranks, place.why) == (("deeplearning-worker1",), (0,), "rank 0 was killed")
    assert not membership.has_joined


def test_a_host_joins_between_two_steps_once_all_its_ranks_wait_and_the_others_learn_it() -> None:
    membership, hosts = formed(2, 2)
    new = membership.add(make_node(3, slots=2))
    membership.ask(new.members[0])
    assert not is_wanted(membership)
    membership.ask(new.members[1])
    assert is_wanted(membership) and not is_ready(membership)
    all_ask(membership, hosts)
    places = membership.form("10.0.0.5", 4001)
    assert [place.rank for place in places.values()] == list(range(6))
    assert {place.joined for place in places.values()} == {("deeplearning-worker3",)}
    assert not is_wanted(membership)


def test_a_host_that_is_to_leave_has_no_place_any_more_and_its_ranks_are_told() -> None:
    membership, hosts = formed(1, 1)
    hosts[0].leaves = True
    assert is_wanted(membership)
    all_ask(membership, hosts)
    places = membership.form("10.0.0.5", 4001)
    assert list(places) == [1]
    assert not membership.ask(0)
    assert places[1].why == "deeplearning-worker1 leaves the cluster"


def test_nobody_forms_anew_once_ranks_have_ended_well() -> None:
    membership, hosts = formed(1, 1)
    hosts[0].has_ended = True
    assert not membership.ask(1)
    assert membership.is_ending and not is_ready(membership)


@given(slots=st.lists(st.integers(1, 4), min_size=1, max_size=6), data=st.data())
def test_places_are_a_permutation_as_horovod_wants_it_whatever_is_lost(slots: list[int], data: st.DataObject) -> None:
    membership, hosts = formed(*slots)
    lost = data.draw(st.sets(st.sampled_from(range(len(hosts))), max_size=len(hosts) - 1))
    for index in lost:
        membership.lose(hosts[index], "lost")
    left = [host for index, host in enumerate(hosts) if index not in lost]
    all_ask(membership, left)
    places = membership.form("10.0.0.5", 4001)
    assert sorted(place.rank for place in places.values()) == list(range(sum(len(host.members) for host in left)))
    for host in left:
        mine = [places[member] for member in host.members]
        assert [place.local_rank for place in mine] == list(range(len(host.members)))
        assert {place.local_size for place in mine} == {len(host.members)}
    for slot in range(4):
        crossing = [place for place in places.values() if place.local_rank == slot]
        assert [place.cross_rank for place in crossing] == list(range(len(crossing)))
        assert {place.cross_size for place in crossing} <= {len(crossing)}


def test_a_host_that_comes_where_all_others_have_gone_has_nothing_to_join() -> None:
    membership, (first, second) = formed(1, 1)
    late = membership.add(make_node(3))
    for host in (first, second):
        membership.lose(host, "stopped")
    assert membership.ask(late.members[0]) is False


def test_a_place_that_was_given_while_a_rank_was_about_to_ask_again_is_taken_and_it_waits_no_longer() -> None:
    membership, hosts = formed(1, 1)
    answers = Answers(membership)
    all_ask(membership, hosts)
    answers.places = membership.form("10.0.0.5", 4001)
    found = [answers.place(host.members[0], wait_s=0.0) for host in hosts]
    assert [place.round for place in found if isinstance(place, Place)] == [2, 2]
    assert membership.silent == []
    assert not any(host.waiting for host in hosts)
