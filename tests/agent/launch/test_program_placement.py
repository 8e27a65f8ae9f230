"""A rank of a user program gets its part of the host with every launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.hardware.placement import Placement
from agent.hardware.topology import MACHINES_OWN, PROCESSES
from agent.launch.program_placement import ProgramSetup, local_place, set_up_program
from agent.spec.launchers import HOROVOD, TORCHRUN
from tests.agent.hardware.machines import P3_16XLARGE, Built, write

SECOND_OF_TWO = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Do not bind this process; record the CPUs instead."""
    cpus: list[tuple[int, ...]] = []

    def bind(placement: Placement) -> tuple[str, ...]:
        cpus.append(placement.cpus)
        return ()

    monkeypatch.setattr("agent.hardware.placement.bind", bind)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    return cpus


def set_up(
    root: Path, files: Mapping[str, str], environ: Mapping[str, str], launcher: str = HOROVOD, *, own_gpu: bool = False
) -> ProgramSetup:
    write(root, files)
    (root / PROCESSES).parent.mkdir(parents=True)
    (root / PROCESSES).symlink_to(MACHINES_OWN)
    return set_up_program(environ, launcher=launcher, own_gpu=own_gpu, vector_bits=512, root=root)


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"}, (1, 2)),
        (SECOND_OF_TWO, (1, 2)),
        ({"LOCAL_RANK": "1"}, (0, 1)),
        ({"LOCAL_RANK": "one", "LOCAL_WORLD_SIZE": "2"}, (0, 1)),
        ({}, (0, 1)),
    ],
)
def test_local_rank_is_read_from_each_launcher(environ: dict[str, str], place: tuple[int, int]) -> None:
    assert local_place(environ) == place


def test_rank_gets_cores_and_as_many_threads(tmp_path: Path, bound: list[tuple[int, ...]]) -> None:
    found = set_up(tmp_path, Built(nodes=2, cores_per_node=4, threads=2).files(), SECOND_OF_TWO)
    assert bound == [(4, 5, 6, 7, 12, 13, 14, 15)]
    assert dict(found.variables) == {
        "OMP_NUM_THREADS": "4",
        "KMP_BLOCKTIME": "1",
        "TF_ENABLE_ONEDNN_OPTS": "1",
        "TF_NUM_INTRAOP_THREADS": "4",
        "TF_NUM_INTEROP_THREADS": "8",
    }
    assert str(found).startswith(
        "2 sockets, 2 memory nodes, 8 cores, 16 CPUs: rank on CPUs 4-7,12-15, memory node 1; OMP"
    )


@pytest.mark.parametrize(("set_to", "threads"), [("1", "16"), ("3", None)])
def test_single_thread_set_by_torchrun_is_not_a_user_setting(tmp_path: Path, set_to: str, threads: str | None) -> None:
    environ = SECOND_OF_TWO | {"OMP_NUM_THREADS": set_to}
    found = set_up(tmp_path, P3_16XLARGE.files(), environ, TORCHRUN)
    assert dict(found.variables).get("OMP_NUM_THREADS") == threads


def test_program_sees_all_gpus_unless_only_its_own_is_requested(
    tmp_path: Path,
) -> None:
    every = set_up(tmp_path / "every", P3_16XLARGE.files(), SECOND_OF_TWO)
    own = set_up(tmp_path / "own", P3_16XLARGE.files(), SECOND_OF_TWO, own_gpu=True)
    theirs = set_up(
        tmp_path / "theirs", P3_16XLARGE.files(), SECOND_OF_TWO | {"CUDA_VISIBLE_DEVICES": "5"}, own_gpu=True
    )
    assert dict(every.variables)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "CUDA_VISIBLE_DEVICES" not in dict(every.variables) | dict(theirs.variables)
    assert dict(own.variables)["CUDA_VISIBLE_DEVICES"] == "1"


def test_cores_are_near_the_gpu_of_the_ranks_number(tmp_path: Path, bound: list[tuple[int, ...]]) -> None:
    crossed = Built(nodes=2, cores_per_node=2, gpu_nodes=(1, 0))
    found = set_up(tmp_path, crossed.files(), SECOND_OF_TWO)
    assert (bound, found.placed.placement.node) == ([(0, 1)], 0)
