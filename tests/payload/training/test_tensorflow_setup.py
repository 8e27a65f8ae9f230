"""Facts about TensorFlow in one rank: the threads that were chosen, and one GPU, whatever it is shown."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from agent.hardware.placement import unplaced
from payload.settings import Settings
from payload.training.rank_setup import RankSetup, job_of
from payload.training.rank_tuning import tune
from payload.training.tensorflow_setup import set_up_tensorflow


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Note what TensorFlow is told, and show it no GPU."""
    found: dict[str, Any] = {"gpus": []}
    for name in ("intra", "inter"):
        monkeypatch.setattr(
            tf.config.threading,
            f"set_{name}_op_parallelism_threads",
            lambda threads, name=name: found.update({name: threads}),
        )
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: found["gpus"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda device, kind: found.update(taken=(device, kind)))
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


def test_a_rank_has_the_threads_that_were_chosen_and_a_host_may_have_no_gpu(told: dict[str, Any]) -> None:
    set_up_tensorflow(rank_setup(), 0)
    assert told == {"gpus": [], "intra": 3, "inter": 2}


def test_a_rank_that_is_shown_its_gpu_alone_takes_that(told: dict[str, Any]) -> None:
    told["gpus"] = ["GPU:0"]
    set_up_tensorflow(rank_setup(), 3)
    assert "taken" not in told


@pytest.mark.parametrize(("local_rank", "taken"), [(0, "GPU:0"), (3, "GPU:3"), (5, "GPU:1")])
def test_a_rank_that_is_shown_all_gpus_takes_the_one_of_its_number(
    told: dict[str, Any], local_rank: int, taken: str
) -> None:
    told["gpus"] = [f"GPU:{number}" for number in range(4)]
    set_up_tensorflow(rank_setup(), local_rank)
    assert told["taken"] == (taken, "GPU")
