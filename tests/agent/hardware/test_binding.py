from __future__ import annotations

import ctypes
import dataclasses
import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.hardware import binding
from agent.hardware.binding import bind, gpu_variables, prefer_node
from agent.hardware.gpus import PciGpu
from agent.hardware.placement import Placement

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, os, threading
from pathlib import Path
from agent.hardware.binding import bind
from agent.hardware.placement import Placement
leave, found = threading.Event(), {}
thread = threading.Thread(target=leave.wait)
thread.start()
cpu = min(os.sched_getaffinity(0))
found["refused"] = bind(Placement(cpus=(cpu,), cores=1, node=0))
found["cpu"] = cpu
found["main"] = sorted(os.sched_getaffinity(0))
found["elder"] = sorted(os.sched_getaffinity(thread.native_id))
later = threading.Thread(target=lambda: found.update(younger=sorted(os.sched_getaffinity(0))))
later.start()
later.join()
leave.set()
maps = Path("/proc/self/numa_maps")
found["policy"] = maps.read_text().split()[1] if maps.exists() else None
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Bind a process of its own, so that this one keeps its CPUs; return what it saw."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def test_threads_before_and_after_are_bound(found: dict[str, Any]) -> None:
    assert found["main"] == found["elder"] == found["younger"] == [found["cpu"]]


def test_memory_is_taken_from_the_node_first_or_the_refusal_is_said(found: dict[str, Any]) -> None:
    if found["refused"]:
        assert found["refused"][0].startswith("binding to memory node 0 refused: ")
    elif found["policy"] is not None:
        assert found["policy"] == "prefer:0"


def test_a_sandbox_that_forbids_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(thread: int, cpus: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    monkeypatch.setattr(binding, "prefer_node", lambda node: "Operation not permitted")
    assert bind(Placement(cpus=(0,), cores=1, node=1)) == (
        "binding to CPUs refused: Operation not permitted",
        "binding to memory node 1 refused: Operation not permitted",
    )


def test_a_node_that_is_not_there_and_an_unknown_processor_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = prefer_node(1023)  # no machine that runs this has so many nodes
    assert reason in (os.strerror(errno.EINVAL), os.strerror(errno.EPERM), os.strerror(errno.ENOSYS))
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert prefer_node(0) == "the number of set_mempolicy on riscv64 is not known"


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 238), ("aarch64", 237)])
@pytest.mark.parametrize(("node", "mask", "bits"), [(0, [1], 65), (63, [1 << 63], 65), (64, [0, 1], 129)])
def test_the_kernel_is_asked_by_the_processors_own_number_for_the_bit_of_the_node(
    machine: str, number: int, node: int, mask: list[int], bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        def __init__(self, name: str | None, *, use_errno: bool) -> None:
            assert name is None and use_errno

        def syscall(self, number: Any, policy: Any, mask: Any, bits: Any) -> int:
            asked.append((number.value, policy.value, list(mask), bits.value))
            return 0

    asked: list[tuple[int, int, list[int], int]] = []
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(ctypes, "CDLL", Libc)
    assert prefer_node(node) is None
    assert asked == [(number, 1, mask, bits)]  # 1: MPOL_PREFERRED


def test_cuda_is_left_one_gpu_unless_the_user_chose() -> None:
    alone = Placement(cpus=(0,), cores=1, node=None)
    beside = dataclasses.replace(alone, gpu=PciGpu(index=3, address="0000:00:1a.0", node=0))
    assert gpu_variables(beside, {}) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3"}
    assert gpu_variables(beside, {"CUDA_VISIBLE_DEVICES": "1,2"}) == {}
    assert gpu_variables(alone, {}) == {}
