"""Facts about how this process is placed: bound where that helps, left where it would take others' time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.hardware import placed_rank
from agent.hardware.placed_rank import place_program, place_rank, unplaced
from agent.hardware.placement import Placement
from agent.hardware.topology import MACHINES_OWN, PROCESSES
from tests.agent.hardware.machines import P3_16XLARGE, RECORDED, write

ANOTHER = "pid:[4026532170]"


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Placement]:
    """Keep this process where it is; note what it would have been bound to."""
    placements: list[Placement] = []

    def bind(placement: Placement) -> tuple[str, ...]:
        placements.append(placement)
        return ("refused",)

    monkeypatch.setattr(placed_rank, "bind", bind)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    return placements


def in_namespace(root: Path, files: dict[str, str], namespace: str) -> Path:
    (write(root, files) / PROCESSES).parent.mkdir(parents=True)
    (root / PROCESSES).symlink_to(namespace)
    return root


def test_a_recipes_rank_is_bound_alone_too_and_refusals_are_kept(tmp_path: Path, bound: list[Placement]) -> None:
    found = place_rank(0, 1, write(tmp_path, RECORDED))
    assert [placement.cpus for placement in bound] == [(0, 1)]
    assert (found.notes, str(found)) == (("refused",), "1 socket, 1 memory node, 2 cores, 2 CPUs: rank on CPUs 0-1")


def test_a_programs_ranks_are_bound_where_each_has_a_core(tmp_path: Path, bound: list[Placement]) -> None:
    found = place_program(1, 2, in_namespace(tmp_path, RECORDED, MACHINES_OWN))
    assert [placement.cpus for placement in bound] == [(1,)]
    assert (found.placement.cores, found.notes) == (1, ("refused",))


@pytest.mark.parametrize(
    ("ranks", "namespace", "reason", "cores"),
    [
        (1, MACHINES_OWN, "the host's only rank", 2),
        (3, MACHINES_OWN, "3 ranks share 2 cores", 1),
        (2, ANOTHER, "other containers may compute on these cores", 1),
    ],
)
def test_a_programs_ranks_are_not_bound_to_cores_that_others_may_need(
    tmp_path: Path, bound: list[Placement], ranks: int, namespace: str, reason: str, cores: int
) -> None:
    found = place_program(0, ranks, in_namespace(tmp_path, RECORDED, namespace))
    assert bound == []
    assert found.notes == (f"not bound: {reason}",)
    assert (found.placement.cpus, found.placement.cores, found.placement.node) == ((0, 1), cores, None)


def test_a_container_with_cores_of_its_own_is_bound_to_them(tmp_path: Path, bound: list[Placement]) -> None:
    limited = P3_16XLARGE.files() | {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-3",
    }
    place_program(0, 2, in_namespace(tmp_path, limited, ANOTHER))
    assert [placement.cpus for placement in bound] == [(0, 1)]


def test_a_machine_that_cannot_be_read_is_said(tmp_path: Path, bound: list[Placement]) -> None:
    root = write(tmp_path, RECORDED | {"sys/devices/system/cpu/online": "?"})
    for found in (place_rank(0, 2, root), place_program(0, 2, root)):
        assert found.notes[0].startswith("not placed: ")
        assert (found.machine, found.placement.cores) == ("64 CPUs", 32)
    assert bound == []


def test_without_placement_threads_are_a_share_of_the_cpus() -> None:
    assert (unplaced(4).placement.cores, unplaced(4).notes, unplaced(100).placement.cores) == (16, (), 1)
