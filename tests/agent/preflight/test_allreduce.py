"""Facts about the proof of an allreduce: where Horovod is told to add up, which by itself takes the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from agent.preflight import allreduce, gpu_speed
from tests.factories import make_spec


class FakeHorovod(SimpleNamespace):
    """Horovod of one rank, which notes the device of each allreduce; a device that is not there is the CPU."""

    Sum = "sum"

    def __init__(self) -> None:
        """Begin with no allreduce."""
        super().__init__(devices={}, init=lambda: None, shutdown=lambda: None, nccl_built=lambda: 23203)
        self.size, self.rank, self.local_rank = (lambda: 1), (lambda: 0), (lambda: 0)

    def allreduce(self, tensor: Any, *, op: str, name: str, device_dense: str) -> Any:
        """Return the sum of one rank's tensor."""
        self.devices[name] = device_dense
        return tf.identity(tensor)


@pytest.fixture
def horovod(monkeypatch: pytest.MonkeyPatch) -> FakeHorovod:
    fake = FakeHorovod()
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", fake)
    monkeypatch.setattr("horovod.tensorflow", fake, raising=False)
    monkeypatch.setattr(allreduce, "join", lambda spec: "deeplearning-worker1")
    return fake


@pytest.mark.parametrize(("gpus", "place"), [([], ""), (["GPU:0"], "/GPU:0")])
def test_ranks_with_a_gpu_add_up_there(
    horovod: FakeHorovod, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: list[str], place: str
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda device, kind: None)
    (tmp_path / "spec.json").write_text(make_spec().to_json())
    assert allreduce.main([str(tmp_path)]) == 0
    assert horovod.devices == {"warm-up": place, "proof": place}


def test_the_sum_that_is_timed_is_one_of_gpus(horovod: FakeHorovod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_speed, "EDGE", 8)
    horovod.size = lambda: 2
    assert allreduce._speeds(tf, horovod, 1 << 10).keys() == {"matmul_tflops", "bus_gb_s"}
    assert horovod.devices == {"speed": "/GPU:0"}
