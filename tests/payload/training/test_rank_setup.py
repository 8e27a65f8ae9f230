from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agent.hardware.placement import Placement, unplaced
from payload.settings import Settings
from payload.training.rank_setup import RankSetup, job_of, set_up_rank, set_up_tensorflow, set_up_untuned_rank
from payload.training.rank_tuning import tune
from tests.agent.hardware.machines import P3_16XLARGE, RECORDED, write

RANK = {"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2", "HOROVOD_SIZE": "4"}


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Placement]:
    """Do not bind this process; record the placements instead."""
    placements: list[Placement] = []

    def bind(placement: Placement) -> tuple[str, ...]:
        placements.append(placement)
        return ()

    monkeypatch.setattr("agent.hardware.placement.bind", bind)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    return placements


def arranged(root: Path, environ: dict[str, str], **settings: object) -> RankSetup:
    return set_up_rank(dataclasses.replace(Settings(network="lenet"), **settings), environ, root)  # type: ignore[arg-type]


def test_rank_is_bound_to_its_cores_and_its_variables_are_set(tmp_path: Path, bound: list[Placement]) -> None:
    environ = dict(RANK)
    found = arranged(write(tmp_path, RECORDED), environ)
    assert [placement.cpus for placement in bound] == [(1,)]
    assert found.tuning.intra_op_threads == 1
    assert environ.keys() > RANK.keys()
    assert environ["HOROVOD_CYCLE_TIME"] == f"{found.tuning.cycle_time_ms:g}"
    assert str(found).startswith("1 socket, 1 memory node, 2 cores, 2 CPUs: rank on CPUs 1; intra-op 1, inter-op 1")
    assert found.values()["placement"] == "CPUs 1"


def test_placement_can_be_disabled_with_threads_as_share_of_cpus(tmp_path: Path, bound: list[Placement]) -> None:
    found = arranged(write(tmp_path, RECORDED), dict(RANK), placement="none")
    assert bound == []
    placed = found.placed
    assert (placed.placement.cpus, found.tuning.intra_op_threads, placed.machine) == ((0, 1), 1, "2 CPUs")


def test_without_tuning_tensorflow_chooses_the_threads(tmp_path: Path, bound: list[Placement]) -> None:
    environ = RANK | {"HOROVOD_CYCLE_TIME": "7"}
    found = set_up_untuned_rank(Settings(network="lenet"), environ, write(tmp_path, RECORDED))
    assert (bound, environ) == ([], RANK | {"HOROVOD_CYCLE_TIME": "7"})
    tuning = found.tuning
    assert (tuning.intra_op_threads, tuning.inter_op_threads, tuning.variables) == (0, 0, ())
    assert (tuning.cycle_time_ms, tuning.fusion_threshold_mib, tuning.given) == (7.0, None, ("HOROVOD_CYCLE_TIME",))
    assert str(found) == (
        "1 socket, 1 memory node, 2 cores, 2 CPUs: rank on CPUs 0-1 shared with other ranks; intra-op by default, "
        "inter-op by default, gradients of 1.64 MiB, cycle 7 ms, given: HOROVOD_CYCLE_TIME"
    )


def test_without_tuning_a_rank_still_has_a_gpu_of_its_own(tmp_path: Path, bound: list[Placement]) -> None:
    tuned, untuned = dict(RANK), dict(RANK)
    root = write(tmp_path, P3_16XLARGE.files())
    placed = arranged(root, tuned).placed.placement
    left = set_up_untuned_rank(Settings(network="lenet"), untuned, root).placed.placement
    assert len(bound) == 1
    assert untuned == RANK | {name: value for name, value in tuned.items() if name.startswith("CUDA_")} != RANK
    assert (left.gpu, left.node) == (placed.gpu, None)


def test_unreadable_machine_is_reported_and_run_continues(tmp_path: Path, bound: list[Placement]) -> None:
    found = arranged(write(tmp_path, RECORDED | {"sys/devices/system/cpu/online": "?"}), dict(RANK))
    assert bound == []
    assert found.placed.notes[0].startswith("not placed: ")
    assert "not a list of CPUs" in str(found)


def test_shared_and_foreign_gpus_are_reported(tmp_path: Path) -> None:
    files = P3_16XLARGE.files()
    del files["dev/nvidia0"]
    found = arranged(write(tmp_path, files), RANK | {"HOROVOD_LOCAL_SIZE": "5"})
    assert found.placed.notes == (
        "5 ranks share 2 cores",
        "cannot match the container's GPUs with the 8 GPUs on the bus, so no GPU is chosen",
    )


def test_gpu_is_selected_by_cuda_without_horovod_settings(tmp_path: Path) -> None:
    environ = dict(RANK)
    found = arranged(write(tmp_path, P3_16XLARGE.files()), environ)
    assert found.tuning.cycle_time_ms is None
    assert environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_job_follows_from_the_settings() -> None:
    settings = Settings(network="resnet50", image_size=112, global_batch=64, compression="fp16")
    job = job_of(settings, ranks=4)
    assert (job.batch_per_rank, job.bytes_per_gradient, job.parameters) == (16, 2, 25_557_032)
    assert job.multiply_adds == pytest.approx(4_089_184_256 / 4, abs=1)
    assert job_of(Settings(network="lenet", batch_per_rank=256), ranks=4).batch_per_rank == 256


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Record the calls to a fake TensorFlow without a GPU."""
    found: dict[str, Any] = {"gpus": []}
    tensorflow: Any = ModuleType("tensorflow")
    tensorflow.config = SimpleNamespace(
        threading=SimpleNamespace(
            set_intra_op_parallelism_threads=lambda threads: found.update(intra=threads),
            set_inter_op_parallelism_threads=lambda threads: found.update(inter=threads),
        ),
        list_physical_devices=lambda kind: found["gpus"],
        set_visible_devices=lambda device, kind: found.update(taken=(device, kind)),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    return found


def rank_setup() -> RankSetup:
    placed = unplaced(1)
    tuning = tune(
        job_of(Settings(network="lenet"), ranks=4),
        placed.placement,
        vector_bits=256,
        environ={},
        intra_op_threads=3,
        inter_op_threads=2,
    )
    return RankSetup(placed=placed, tuning=tuning)


def test_rank_has_the_threads_that_were_chosen_and_a_host_may_have_no_gpu(told: dict[str, Any]) -> None:
    set_up_tensorflow(rank_setup(), 0)
    assert told == {"gpus": [], "intra": 3, "inter": 2}


def test_rank_that_sees_one_gpu_uses_it(told: dict[str, Any]) -> None:
    told["gpus"] = ["GPU:0"]
    set_up_tensorflow(rank_setup(), 3)
    assert "taken" not in told


@pytest.mark.parametrize(("local_rank", "taken"), [(0, "GPU:0"), (3, "GPU:3"), (5, "GPU:1")])
def test_rank_that_sees_all_gpus_uses_the_one_of_its_local_rank(
    told: dict[str, Any], local_rank: int, taken: str
) -> None:
    told["gpus"] = [f"GPU:{number}" for number in range(4)]
    set_up_tensorflow(rank_setup(), local_rank)
    assert told["taken"] == (taken, "GPU")
