from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from agent.launch.elastic import offers
from agent.launch.elastic.offers import Reformed, Unjoined, Waiting
from agent.spec.elastic import FirstStep
from agent.spec.nodes import LEAVING
from agent.spec.run import RunSpec
from agent.supervisor.elastic import elastic_run
from agent.supervisor.elastic.elastic_run import RETRY_S, ElasticRun, describe
from agent.supervisor.elastic.joining import with_hosts
from tests.factories import make_node, make_nodes, make_spec

COMMAND = ("-m", "payload.train", "--recipe", "digits")


@pytest.fixture
def spec() -> RunSpec:
    return make_spec(hosts=make_nodes(3), command=COMMAND, elastic=True)


@pytest.fixture
def run(spec: RunSpec, tmp_path: Path) -> ElasticRun:
    run = ElasticRun(spec, tmp_path / "elastic")
    run.begin()
    return run


def tell(folder: Path, *hosts: int, lost: tuple[int, ...] = (), joined: tuple[int, ...] = ()) -> None:
    names = {index: make_node(index).name for index in range(1, 10)}
    offers.tell(
        folder,
        Reformed(
            time=1.0,
            why="rank 0 on deeplearning-worker1 was killed",
            lost=tuple(names[index] for index in lost),
            joined=tuple(names[index] for index in joined),
            hosts=tuple(names[index] for index in hosts),
            ranks=len(hosts),
            first=FirstStep(round=2, step=7, steps_lost=1, seconds=1.25),
        ),
    )


def offered(folder: Path) -> list[tuple[str, int]]:
    return [(offer.node.instance_id, offer.number) for offer in offers.read_offers(folder)]


def test_a_lost_host_is_no_longer_offered_and_the_run_is_judged_without_it(
    run: ElasticRun, spec: RunSpec, tmp_path: Path
) -> None:
    tell(tmp_path / "elastic", 2, 3, lost=(1,))
    (found,) = run.look()
    assert describe(found) == (
        "goes on with 2 ranks on deeplearning-worker2, deeplearning-worker3, after 1.2 s, for rank 0 on "
        "deeplearning-worker1 was killed"
    )
    assert run.look() == []
    assert offered(tmp_path / "elastic") == [("i-00000002", 2), ("i-00000003", 3)]
    assert [host.name for host in run.judged(spec).hosts] == ["deeplearning-worker2", "deeplearning-worker3"]


def test_a_host_that_is_offered_again_has_another_number(run: ElasticRun, tmp_path: Path) -> None:
    tell(tmp_path / "elastic", 2, 3, lost=(1,))
    run.look()
    run.offer([make_node(1)])
    assert offered(tmp_path / "elastic")[-1] == ("i-00000001", 4)


def test_a_host_that_has_taken_a_lost_ones_name_is_another_one(run: ElasticRun, spec: RunSpec, tmp_path: Path) -> None:
    tell(tmp_path / "elastic", 2, 3, lost=(1,))
    run.look()
    new = make_node(1, instance_id="i-0000000a", address="10.0.1.77")
    run.offer([new])
    tell(tmp_path / "elastic", 2, 3, 1, joined=(1,))
    run.look()
    assert run.judged(spec).hosts[-1] == new
    assert [host.instance_id for host in with_hosts(spec, [new]).hosts] == ["i-0000000a", "i-00000002", "i-00000003"]


def test_a_host_that_does_not_join_in_time_is_withdrawn(
    run: ElasticRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.offer([make_node(4)])
    run.look()
    assert ("i-00000004", 4) in offered(tmp_path / "elastic")
    monkeypatch.setattr(elastic_run, "JOIN_S", 0.0)
    run.look()
    assert ("i-00000004", 4) not in offered(tmp_path / "elastic")


def test_a_host_that_was_lost_before_it_joined_is_withdrawn_and_refused(run: ElasticRun, tmp_path: Path) -> None:
    run.offer([make_node(4), make_node(5)])
    for number, for_good in ((4, False), (5, True)):
        offers.tell(tmp_path / "elastic", Unjoined(instance_id=f"i-0000000{number}", for_good=for_good))
    assert run.look() == []
    assert [number for _, number in offered(tmp_path / "elastic")] == [1, 2, 3]
    assert run.refused() == {"i-00000004": False, "i-00000005": True}
    assert run.refused(at=time.monotonic() + RETRY_S + 1.0) == {"i-00000005": True}


def test_one_that_was_refused_for_good_stays_so_however_long_ago_it_was_offered(
    run: ElasticRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.offer([make_node(4)])
    offers.tell(tmp_path / "elastic", Unjoined(instance_id="i-00000004", for_good=True))
    run.look()
    monkeypatch.setattr(elastic_run, "JOIN_S", 0.0)
    run.look()
    run.refuse(["i-00000004"])
    assert run.refused() == {"i-00000004": True}


def test_a_host_that_waits_for_the_others_step_is_not_late_and_one_that_has_joined_is_not_refused(
    run: ElasticRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.refuse(["i-00000004"])
    run.offer([make_node(4)])
    offers.tell(tmp_path / "elastic", Waiting(instance_id="i-00000004"))
    monkeypatch.setattr(elastic_run, "JOIN_S", 0.0)
    assert run.look() == []
    assert ("i-00000004", 4) in offered(tmp_path / "elastic")
    assert run.refused() == {"i-00000004": False}
    tell(tmp_path / "elastic", 1, 2, 3, 4, joined=(4,))
    run.look()
    assert run.refused() == {}


def test_a_host_in_a_lost_ones_place_stays_offered_where_the_loss_is_told_later(
    run: ElasticRun, tmp_path: Path
) -> None:
    run.offer([make_node(3, instance_id="i-0000000a", address="10.0.1.77")])
    tell(tmp_path / "elastic", 1, 2, lost=(3,))
    run.look()
    assert [instance_id for instance_id, _ in offered(tmp_path / "elastic")] == [
        "i-00000001",
        "i-00000002",
        "i-0000000a",
    ]


def test_nothing_of_an_earlier_attempt_is_told_again(spec: RunSpec, tmp_path: Path) -> None:
    tell(tmp_path, 2, 3, lost=(1,))
    again = ElasticRun(spec, tmp_path)
    again.begin()
    assert again.look() == []


def test_a_host_leaves_between_two_steps_where_enough_of_those_that_train_stay(
    spec: RunSpec, run: ElasticRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = dataclasses.replace(spec, efs_mount=str(tmp_path), min_nodes=2)
    monkeypatch.setattr(elastic_run, "LEAVING_S", 0.0)
    (tmp_path / LEAVING).mkdir(parents=True)
    tell(tmp_path / "elastic", 2, 3, lost=(1,))
    run.look()
    run.offer([make_node(1)])
    (tmp_path / LEAVING / make_node(2).instance_id).write_text("spot interruption: {}")
    run.let_leave(spec)
    assert len(run.offered) == 3, "one of the three has not joined yet"
    tell(tmp_path / "elastic", 2, 3, 1, joined=(1,))
    run.look()
    run.let_leave(spec)
    assert [host.name for host in run.offered] == ["deeplearning-worker3", "deeplearning-worker1"]
    (tmp_path / LEAVING / make_node(3).instance_id).write_text("spot interruption: {}")
    run.let_leave(spec)
    assert len(run.offered) == 2, "the first one has not left yet, and does not count any more"
