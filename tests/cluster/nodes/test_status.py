"""Facts about a cluster's status: what is unknown is called unknown, and the document holds the table's numbers."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pytest

from cluster.aws.inventory import Instance, Inventory
from cluster.aws.stack import Stack
from cluster.nodes.status import status_document, status_table

LAUNCHED = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)
NOW = LAUNCHED + datetime.timedelta(minutes=5)
STACK = Stack(
    name="deepcdk", status="CREATE_COMPLETE", master_group="m", worker_group="w", efs_mount="/mnt/efs", bucket="b",
    login_user="ec2-user", max_workers=16,
)  # fmt: skip


def instance(instance_id: str, role: str, kind: str, lifecycle: str = "InService") -> Instance:
    return Instance(
        id=instance_id, role=role, state="running", lifecycle=lifecycle, type=kind, private_ip="10.0.0.5",
        public_ip="198.18.1.2" if role == "master" else "", zone="us-east-1a", launched=LAUNCHED,
    )  # fmt: skip


INVENTORY = Inventory(
    stack=STACK,
    desired_workers=2,
    instances=(instance("i-0", "master", "t3.medium"), instance("i-1", "worker", "c5.2xlarge", "Terminating")),
)
PRICES = {"t3.medium": 0.0416, "c5.2xlarge": 0.34}


def test_a_node_has_address_state_age_and_price() -> None:
    table = status_table(INVENTORY, PRICES, NOW)
    assert table.rows[0] == (
        "master", "i-0", "t3.medium", "running", "10.0.0.5", "198.18.1.2", "us-east-1a", "5:00", "$0.042/h",
    )  # fmt: skip
    assert table.rows[1][3] == "running (Terminating)"
    assert table.footer == (
        "workers: 1 of 2 wanted, 16 at most",
        "instances together: $0.382/h, $0.03 since their launch",
    )


def test_a_spot_instance_is_told_and_costs_the_known_price_at_most() -> None:
    spot = dataclasses.replace(INVENTORY.instances[1], spot=True)
    table = status_table(dataclasses.replace(INVENTORY, instances=(INVENTORY.instances[0], spot)), PRICES, NOW)
    assert (table.rows[1][2], table.rows[1][8]) == ("c5.2xlarge (spot)", "at most $0.340/h")
    assert table.rows[0][8] == "$0.042/h"
    assert table.footer[1].startswith("instances together: at most $0.382/h")
    unknown = status_table(dataclasses.replace(INVENTORY, instances=(spot,)), {}, NOW)
    assert unknown.rows[0][8] == "unknown"


def test_one_unknown_price_makes_the_total_unknown() -> None:
    assert status_table(INVENTORY, {"t3.medium": 0.0416}, NOW).footer[1] == "instances together: unknown"


def test_the_document_holds_the_same_as_numbers() -> None:
    document = json.loads(json.dumps(status_document(INVENTORY, PRICES, NOW)))
    assert document["nodes"][0]["age_s"] == 300
    assert document["nodes"][0]["launched"] == "2026-11-20T12:00:00+00:00"
    assert document["usd_per_hour"] == pytest.approx(0.3816)
    assert status_document(INVENTORY, {}, NOW)["usd_per_hour"] is None
