"""Facts about the table of the nodes' load: every instance has a row, and a silent node says why."""

from __future__ import annotations

import dataclasses
import datetime
import json

from agent.hardware.gpus import GpuLoad
from agent.hardware.load import Load
from agent.spec.nodes import Node
from cluster.aws.inventory import Instance, Inventory
from cluster.aws.stack import Stack
from cluster.nodes.load import Row, documents, rows, table

LOAD = Load(
    processor=0.37, cores=8, memory_used=3 << 30, memory_total=16 << 30, received_per_s=12_500_000.0,
    sent_per_s=950.0, disk_used=25 << 30, disk_total=100 << 30, gpus=(),
)  # fmt: skip
GPU = GpuLoad(name="V100", utilization=0.5, memory_used=8 << 30, memory_total=16 << 30, temperature_c=60.0)
STACK = Stack(
    name="deepcdk", status="CREATE_COMPLETE", master_group="m", worker_group="w", efs_mount="/mnt/efs", bucket="b",
    login_user="ec2-user", max_workers=16,
)  # fmt: skip
A, B, C, M = "i-0000000a", "i-0000000b", "i-0000000c", "i-000000ff"


def instance(instance_id: str, role: str) -> Instance:
    return Instance(
        id=instance_id, role=role, state="running", lifecycle="InService", type="c5.2xlarge", private_ip="10.0.0.5",
        public_ip="", zone="us-east-1a", launched=datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC),
    )  # fmt: skip


def node(name: str, instance_id: str) -> Node:
    return Node(name=name, address="10.0.0.5", instance_id=instance_id, slots=1, interface="ens5", zone="us-east-1a")


INVENTORY = Inventory(
    stack=STACK, desired_workers=3,
    instances=(
        instance(A, "worker"), instance(M, "master"), instance(B, "worker"), instance(C, "worker"),
    ),
)  # fmt: skip
NODES = (
    node("deeplearning-worker10", A),
    node("deeplearning-master", M),
    node("deeplearning-worker2", B),
)


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
