"""The pre-flight allreduce uses the GPU, gives exact sums with each framework, and reports rates as usually defined."""

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
    monkeypatch.setattr(allreduce, "announce", lambda spec: "deeplearning-worker1")
    return fake


@pytest.mark.parametrize(("gpus", "place"), [([], ""), (["GPU:0"], "/GPU:0")])
def test_ranks_with_gpus_sum_on_gpus(
    horovod: FakeHorovod, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: list[str], place: str
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda device, kind: None)
    (tmp_path / "spec.json").write_text(make_spec().to_json())
    assert allreduce.main([str(tmp_path), "horovod.tensorflow"]) == 0
    assert horovod.devices == {"warm-up": place, "proof": place}


def test_timed_sum_runs_on_gpus(horovod: FakeHorovod, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_every_pytorch_rank_checks_the_sum(group: LocalGroup, torch_python: str, meeting_port: None) -> None:
    spec = group.lay_out("")
    status, output = group.run(spec, torch_python, (*PROOF, spec.run_directory, TORCH))
    assert status == 0, output
    assert [(found["error"], found["ranks"]) for found in marked(output, MARK)] == [(0.0, 2)] * 2


def test_without_pytorch_each_rank_reports_that(group: LocalGroup) -> None:
    spec = group.lay_out("")
    status, output = group.run(spec, module=(*PROOF, spec.run_directory, TORCH))
    assert (status, len(marked(output, HERE)), len(marked(output, WITHOUT))) == (0, 2, 2)


def test_pytorch_check_uses_variables_of_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "0")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    spec = make_program_spec(rank_launcher="plain", environment=(("NCCL_P2P_DISABLE", "1"),))
    (tmp_path / "spec.json").write_text(spec.to_json())
    assert allreduce.main([str(tmp_path), TORCH]) == 0
    assert os.environ["NCCL_P2P_DISABLE"] == "1"


def test_rates_follow_their_definitions() -> None:
    # 20 products of 8192 x 8192 matrices: 2 * 8192**3 operations each.
    assert allreduce.matmul_tflops(0.022) == pytest.approx(999.6, abs=0.1)
    # nccl-tests: 1 GiB over 8 ranks in 5 ms is 214.7 GB/s, and 1.75 times that on the bus.
    assert allreduce.bus_gb_s(1 << 30, 8, 0.005) == pytest.approx(375.8, abs=0.1)
    assert allreduce.bus_gb_s(1 << 30, 1, 0.005) == 0


def test_first_round_does_not_count_and_one_slow_round_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, took = [0.0], iter([9.0, 0.1, 5.0, 0.2])
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def work() -> None:
        clock[0] += next(took)

    assert allreduce.median_s(work) == pytest.approx(0.2)
    assert next(took, None) is None


def test_one_rank_has_no_allreduce_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allreduce, "median_s", lambda work: work() or 0.5)
    asked: list[str] = []
    both = allreduce.speeds(lambda: asked.append("multiply"), lambda: asked.append("add up"), 1 << 30, 2)
    assert (sorted(both), asked) == (["bus_gb_s", "matmul_tflops"], ["multiply", "add up"])
    assert sorted(allreduce.speeds(lambda: None, lambda: None, 1 << 30, 1)) == ["matmul_tflops"]
