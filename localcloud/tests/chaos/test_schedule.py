from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.chaos.schedule import CLOSE_S, KINDS, LASTING, Fault, draw
from localcloud.errors import LocalCloudError


def drawn(seed: int, **changes: float) -> tuple[Fault, ...]:
    given = {"first_s": 20.0, "every_s": 60.0, "duration_s": 600.0, "longest_s": 60.0, **changes}
    return draw(seed, kinds=list(KINDS), **given)


@given(seed=st.integers(0, 10**9), first_s=st.floats(0, 100), every_s=st.floats(1, 100), longest_s=st.floats(1, 100))
def test_faults_are_within_the_schedule_and_only_temporary_ones_have_a_duration(
    seed: int, first_s: float, every_s: float, longest_s: float
) -> None:
    faults = drawn(seed, first_s=first_s, every_s=every_s, longest_s=longest_s)
    times = [fault.at_s for fault in faults]
    assert times[0] == pytest.approx(first_s, abs=0.06)
    assert all(
        0.5 * every_s - 0.2 <= later - sooner <= 1.5 * every_s + 0.2 for sooner, later in itertools.pairwise(times)
    )
    assert max(times) <= 600.1
    for fault in faults:
        assert (fault.lasts_s > 0) == (fault.kind in LASTING)
        assert fault.lasts_s <= longest_s + 0.1
        assert 0 <= fault.place < 1


def test_seed_gives_the_same_faults_and_another_seed_others() -> None:
    assert drawn(7) == drawn(7) != drawn(8)
    assert drawn(7, duration_s=300.0) == drawn(7)[: len(drawn(7, duration_s=300.0))], "a longer one begins alike"


def test_every_kind_is_drawn_by_some_seed() -> None:
    assert {fault.kind for seed in range(20) for fault in drawn(seed)} == set(KINDS)


def test_unknown_kind_is_rejected_with_list_of_kinds() -> None:
    with pytest.raises(LocalCloudError, match=r"fault 'meteor': must be one of kill-rank, .*reboot"):
        draw(1, kinds=["meteor"], first_s=0, every_s=1, duration_s=1, longest_s=1)


def test_fault_has_text_and_json_form() -> None:
    fault = Fault(at_s=20.0, kind="cut", place=0.5, lasts_s=30.0)
    assert (str(fault), str(dataclasses.replace(fault, kind="reboot", lasts_s=0))) == (
        "after 20 s: cut, for 30 s",
        "after 20 s: reboot",
    )
    assert fault.document() == {"at_s": 20.0, "kind": "cut", "place": 0.5, "lasts_s": 30.0, "hosts": ""}
    assert str(dataclasses.replace(fault, hosts="master")) == "after 20 s: cut, on master, for 30 s"


def test_kind_can_have_its_own_hosts() -> None:
    faults = draw(3, kinds=["cut@^w", "reboot"], first_s=0, every_s=1, duration_s=60, longest_s=1)
    assert {(fault.kind, fault.hosts) for fault in faults} == {("cut", "^w"), ("reboot", "")}


def test_some_faults_occur_during_recovery_and_the_others_are_unchanged() -> None:
    gaps = [b.at_s - a.at_s for a, b in itertools.pairwise(drawn(1, duration_s=30000.0, close_share=0.25))]
    close = [gap for gap in gaps if gap <= CLOSE_S[1] + 0.1]
    assert min(close) >= CLOSE_S[0] - 0.1
    assert 0.2 < len(close) / len(gaps) < 0.3
    assert min(gap for gap in gaps if gap not in close) >= 29.9
    alone, often = drawn(1), drawn(1, close_share=1.0)
    assert [fault.kind for fault in alone] == [fault.kind for fault in often[: len(alone)]]
