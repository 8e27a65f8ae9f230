"""Facts about the table of the nodes' load: every instance has a row, and a silent node says why."""

from __future__ import annotations

import dataclasses
import json

from agent.hardware.gpus import GpuLoad
from agent.hardware.load import Load
from cluster.nodes.load import Row, documents, rows, table
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
    found = rows(INVENTORY, NODES, {"deeplearning-master": LOAD, "deeplearning-worker2": "not reached: no route"})
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


def test_a_load_is_told_in_figures_and_trouble_below_the_table() -> None:
    gpus = dataclasses.replace(LOAD, gpus=(GPU, dataclasses.replace(GPU, utilization=1.0)))
    shown = table(
        [
            Row(instance_id=M, name="deeplearning-master", load=LOAD),
            Row(instance_id=B, name="deeplearning-worker2", load=gpus),
            Row(instance_id=C, name="", load="pending, has not joined the cluster"),
        ]
    )
    assert shown.rows[0] == (
        "master", M, "37% of 8", "3.0 of 16.0 GiB", "-", "-", "12.5 MB/s", "950 B/s", "25% of 100 GiB",
    )  # fmt: skip
    assert shown.rows[1][4:6] == ("75% of 2", "16.0 of 32.0 GiB")
    assert shown.rows[2][2:] == ("-",) * 7
    assert shown.footer == (f"{C}: pending, has not joined the cluster",)


def test_gpus_that_tell_nothing_are_not_called_idle() -> None:
    silent = GpuLoad(name="MIG", utilization=None, memory_used=None, memory_total=None, temperature_c=None)
    shown = table([Row(instance_id=B, name="", load=dataclasses.replace(LOAD, gpus=(silent,)))])
    assert shown.rows[0][4:6] == ("-", "-")


def test_the_document_holds_load_or_trouble() -> None:
    found = json.loads(
        json.dumps(documents([Row(instance_id=M, name="x", load=LOAD), Row(instance_id=C, name="", load="gone")]))
    )
    assert (found[0]["processor"], found[0]["instance"]) == (0.37, M)
    assert found[1] == {"instance": C, "name": "", "trouble": "gone"}
