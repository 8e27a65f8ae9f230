"""The status of a cluster: unknown values are shown as unknown, and the document has the same numbers as the table."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pytest

from cluster.nodes.status import status_document, status_table
from tests.factories import LAUNCHED, make_instance, make_inventory, make_master_instance

NOW = LAUNCHED + datetime.timedelta(minutes=5)
INVENTORY = make_inventory(instances=(make_master_instance(id="i-0"), make_instance(id="i-1", lifecycle="Terminating")))
PRICES = {"t3.medium": 0.0416, "c5.2xlarge": 0.34}


def test_node_is_shown_with_address_state_age_and_price() -> None:
    table = status_table(INVENTORY, PRICES, NOW)
    assert table.rows[0] == (
        "master", "i-0", "t3.medium", "running", "10.0.0.5", "198.18.1.2", "us-east-1a", "5:00", "$0.042/h",
    )  # fmt: skip
    assert table.rows[1][3] == "running (Terminating)"
    assert table.footer == (
        "workers: 1 of 2 wanted, at most 16",
        "instances together: $0.382/h, $0.03 since their launch",
    )


def test_spot_instance_is_marked_and_costs_at_most_the_known_price() -> None:
    spot = dataclasses.replace(INVENTORY.instances[1], spot=True)
    table = status_table(dataclasses.replace(INVENTORY, instances=(INVENTORY.instances[0], spot)), PRICES, NOW)
    assert (table.rows[1][2], table.rows[1][8]) == ("c5.2xlarge (spot)", "at most $0.340/h")
    assert table.rows[0][8] == "$0.042/h"
    assert table.footer[1].startswith("instances together: at most $0.382/h")
    unknown = status_table(dataclasses.replace(INVENTORY, instances=(spot,)), {}, NOW)
    assert unknown.rows[0][8] == "unknown"


def test_one_unknown_price_makes_the_total_unknown() -> None:
    assert status_table(INVENTORY, {"t3.medium": 0.0416}, NOW).footer[1] == "instances together: unknown"


def test_document_has_same_values_as_numbers() -> None:
    document = json.loads(json.dumps(status_document(INVENTORY, PRICES, NOW)))
    assert (document["nodes"][0]["age_s"], document["nodes"][0]["launched"]) == (300, "2026-11-20T12:00:00+00:00")
    assert document["usd_per_hour"] == pytest.approx(0.3816)


def test_older_prices_have_their_date() -> None:
    footer = status_table(INVENTORY, PRICES, NOW, "2026-07-20").footer[1]
    assert footer == "instances together: $0.382/h, $0.03 since their launch (prices of 2026-07-20)"
    assert status_document(INVENTORY, PRICES, NOW, "2026-07-20")["prices_of"] == "2026-07-20"
    assert status_document(INVENTORY, PRICES, NOW)["prices_of"] is None
