"""The table of the nodes' load: every instance has a row, and a node that does not answer shows the reason."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

import pytest

from agent.hardware.gpus import GpuLoad
from agent.hardware.load import Load
from agent.spec.laptop_requests import RemoteCommand
from agent.spec.nodes import NODE_PYTHON
from cluster.errors import ConnectionFailedError
from cluster.nodes import node_load
from cluster.nodes.node_load import Row, documents, rows, table
from cluster.nodes.occupancy import Occupancy
from cluster.ssh import command_on_nodes
from tests.factories import MASTER_ID, make_instance, make_inventory, make_master, make_master_instance, make_node

LOAD = Load(
    processor=0.37, cores=8, memory_used=3 << 30, memory_total=16 << 30, received_per_s=12_500_000.0,
    sent_per_s=950.0, disk_used=25 << 30, disk_total=100 << 30, gpus=(),
)  # fmt: skip
GPU = GpuLoad(name="V100", utilization=0.5, memory_used=8 << 30, memory_total=16 << 30, temperature_c=60.0)
A, B, C, M = "i-0000000a", "i-0000000b", "i-0000000c", MASTER_ID
INVENTORY = make_inventory(
    3, instances=(make_instance(id=A), make_master_instance(), make_instance(id=B), make_instance(id=C))
)
NODES = (make_node(10, instance_id=A), make_master(), make_node(2, instance_id=B))


def test_every_instance_has_a_row_in_the_order_of_the_names() -> None:
    loads: dict[str, Load | str] = {"deeplearning-master": LOAD, "deeplearning-worker2": "not reached: no route"}
    found = rows(INVENTORY, NODES, loads, Occupancy(hosts={"one": ("deeplearning-worker10",)}))
    assert [row.run_id for row in found] == ["", "", "one", ""]
    assert [(row.instance_id, row.name) for row in found] == [
        (M, "deeplearning-master"),
        (B, "deeplearning-worker2"),
        (A, "deeplearning-worker10"),
        (C, ""),
    ]
    assert [row.load for row in found[1:]] == [
        "not reached: no route",
        "no answer",
        "running, has not joined the cluster",
    ]


def test_load_is_shown_in_numbers_and_problems_below_the_table() -> None:
    gpus = dataclasses.replace(LOAD, gpus=(GPU, dataclasses.replace(GPU, utilization=1.0)))
    shown = table(
        [
            Row(instance_id=M, name="deeplearning-master", load=LOAD),
            Row(instance_id=B, name="deeplearning-worker2", load=gpus, run_id="one"),
            Row(instance_id=C, name="", load="pending, has not joined the cluster"),
        ]
    )
    assert shown.rows[0] == (
        "master", "-", M, "37% of 8", "3.0 of 16.0 GiB", "-", "-", "12.5 MB/s", "950 B/s", "25% of 100 GiB",
    )  # fmt: skip
    assert dict(zip(shown.columns, shown.rows[1], strict=True)) == {
        "node": "worker2", "run": "one", "instance": B, "CPU": "37% of 8", "memory": "3.0 of 16.0 GiB",
        "GPU": "75% of 2", "GPU memory": "16.0 of 32.0 GiB", "received": "12.5 MB/s", "sent": "950 B/s",
        "disk": "25% of 100 GiB",
    }  # fmt: skip
    assert shown.rows[2] == ("-", "-", C, *("-",) * 7)
    assert shown.title == "load over one second"
    assert shown.footer == (f"{C}: load unknown: pending, has not joined the cluster",)


def test_gpus_without_load_are_not_shown_as_idle() -> None:
    silent = GpuLoad(name="MIG", utilization=None, memory_used=None, memory_total=None, temperature_c=None)
    shown = table([Row(instance_id=B, name="", load=dataclasses.replace(LOAD, gpus=(silent,)))])
    assert shown.rows[0][5:7] == ("-", "-")
    half = dataclasses.replace(GPU, memory_used=None)
    shown = table([Row(instance_id=B, name="", load=dataclasses.replace(LOAD, gpus=(half,)))])
    assert shown.rows[0][5:7] == ("50% of 1", "-")


def test_document_has_load_or_problem() -> None:
    found = json.loads(
        json.dumps(documents([Row(instance_id=M, name="x", load=LOAD), Row(instance_id=C, name="", load="gone")]))
    )
    assert (found[0]["processor"], found[0]["instance"]) == (0.37, M)
    assert found[1] == {"instance": C, "name": "", "run": "", "trouble": "gone"}


def test_large_amounts_have_no_fraction_and_a_node_without_a_disk_is_no_error() -> None:
    large = dataclasses.replace(LOAD, memory_used=99 << 30, memory_total=2000 << 30, disk_used=0, disk_total=0)
    (cells,) = table([Row(instance_id=B, name="", load=large)]).rows
    assert (cells[0], cells[4], cells[-1]) == ("-", "99.0 of 2,000 GiB", "0% of 0.0 GiB")
    edge = dataclasses.replace(LOAD, memory_used=100 << 30, memory_total=100 << 30)
    assert table([Row(instance_id=B, name="", load=edge)]).rows[0][4] == "100 of 100 GiB"


def result(name: str, stdout: bytes, exit_code: int = 0) -> command_on_nodes.HostResult:
    return command_on_nodes.HostResult(
        name=name, exit_code=exit_code, reached=True, seconds=0.1, stdout=stdout, stderr=b""
    )


def test_master_and_workers_are_measured_each_with_the_pushed_program(monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.dumps(dataclasses.asdict(LOAD)).encode()
    asked: list[RemoteCommand] = []

    def run(master: object, directory: str, request: RemoteCommand, _: object) -> list[command_on_nodes.HostResult]:
        asked.append(request)
        if request.master:
            return [result("deeplearning-master", stdout=document)]
        return [
            result("deeplearning-worker2", stdout=b"no load"),
            result("deeplearning-worker3", stdout=b"no such module", exit_code=1),
            result("deeplearning-worker10", stdout=document),
        ]

    monkeypatch.setattr(command_on_nodes, "run", run)
    found = node_load.read(cast(Any, None), ".deepcdk/trees/ab", "/mnt/efs/payloads/ab", NODES)
    assert found["deeplearning-master"] == found["deeplearning-worker10"] == LOAD
    assert "Expecting value" in str(found["deeplearning-worker2"])
    assert "no such module" in str(found["deeplearning-worker3"])
    assert sorted(request.master for request in asked) == [False, True]
    for request in asked:
        tree = ".deepcdk/trees/ab" if request.master else "/mnt/efs/payloads/ab"
        assert request.command == (
            "env", f"PYTHONPATH={tree}", NODE_PYTHON, "-m", "agent.hardware.load",
        )  # fmt: skip
    asked.clear()
    assert node_load.read(cast(Any, None), "/mnt/efs", "/mnt/efs", [NODES[1]]) == {"deeplearning-master": LOAD}
    assert len(asked) == 1, "there is no worker to measure"


def test_load_of_master_is_shown_if_workers_are_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.dumps(dataclasses.asdict(LOAD)).encode()

    def run(master: object, directory: str, request: RemoteCommand, _: object) -> list[command_on_nodes.HostResult]:
        if request.master:
            return [result("deeplearning-master", stdout=document)]
        raise ConnectionFailedError("no route")

    monkeypatch.setattr(command_on_nodes, "run", run)
    found = node_load.read(cast(Any, None), "/mnt/efs", "/mnt/efs", NODES)
    assert found == {
        "deeplearning-master": LOAD,
        "deeplearning-worker10": "no route",
        "deeplearning-worker2": "no route",
    }

    def fail(*_: object) -> list[command_on_nodes.HostResult]:
        raise ConnectionFailedError("no route")

    monkeypatch.setattr(command_on_nodes, "run", fail)
    with pytest.raises(ConnectionFailedError):
        node_load.read(cast(Any, None), "/mnt/efs", "/mnt/efs", [NODES[1]])
