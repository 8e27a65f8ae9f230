"""The pre-flight allreduce uses the GPU and gives exact sums with each framework."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from agent.preflight import allreduce
from agent.preflight.allreduce import HERE, MARK, TORCH, WITHOUT, marked
from tests.agent.conftest import LocalGroup
from tests.factories import make_program_spec, make_spec

PROOF = ("-m", "agent.preflight.allreduce")


class FakeHorovod(SimpleNamespace):
    """Horovod with one rank that records the device of each allreduce; a missing device falls back to the CPU."""

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
    assert allreduce.main([str(tmp_path), "horovod.tensorflow"]) == 0
    assert horovod.devices == {"warm-up": place, "proof": place}


def test_the_sum_that_is_timed_is_one_of_gpus(horovod: FakeHorovod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allreduce, "EDGE", 8)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda device, kind: None)
    horovod.size = lambda: 2
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(allreduce, "report", lambda mark, **values: reports.append(values))
    joined = dataclasses.replace(allreduce.tensorflow(), is_on_gpu=lambda tensor: True)
    allreduce.prove(joined, "deeplearning-worker1", 1)
    assert horovod.devices["speed"] == "/GPU:0"
    assert {"matmul_tflops", "bus_gb_s"} < reports[0].keys()
    assert reports[0]["error"] == 1000.0  # the fake adds nothing: 2 * 999 + 1 - 999


@pytest.mark.full
def test_every_rank_of_pytorch_proves_the_sum(group: LocalGroup, torch_python: str, meeting_port: None) -> None:
    spec = group.lay_out("")
    status, output = group.run(spec, torch_python, (*PROOF, spec.run_directory, TORCH))
    assert status == 0, output
    assert [(found["error"], found["ranks"]) for found in marked(output, MARK)] == [(0.0, 2)] * 2


def test_without_pytorch_each_rank_reports_that(group: LocalGroup) -> None:
    spec = group.lay_out("")
    status, output = group.run(spec, module=(*PROOF, spec.run_directory, TORCH))
    assert (status, len(marked(output, HERE)), len(marked(output, WITHOUT))) == (0, 2, 2)


def test_the_proof_of_pytorch_has_the_variables_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "0")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    spec = make_program_spec(rank_launcher="plain", environment=(("NCCL_P2P_DISABLE", "1"),))
    (tmp_path / "spec.json").write_text(spec.to_json())
    assert allreduce.main([str(tmp_path), TORCH]) == 0
    assert os.environ["NCCL_P2P_DISABLE"] == "1"
