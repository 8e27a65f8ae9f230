"""Facts about the overview of prices."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.aws.price_overview import price_document, price_overview_table, price_rows
from cluster.aws.price_store import PriceStore, Refreshed
from cluster.aws.price_table import shipped
from cluster.aws.service_prices import ITEMS
from cluster.aws.spot_prices import SpotPrice


def test_each_price_has_its_date_and_source_and_an_unknown_one_says_so(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices.json", endpoint="", region="us-east-1")
    spot = SpotPrice(usd_per_hour=9.5, zone="us-east-1b", since="2026-11-23")
    store.save(Refreshed(date="2026-11-23", spot={"p4d.24xlarge": spot}))
    table = shipped()["us-east-1"]
    on_demand = {"p4d.24xlarge": table.usd_per_hour["p4d.24xlarge"], "c5.2xlarge": 0.35, "none": None}
    rows = {row.what: row for row in price_rows(on_demand, on_demand, table.date, store, "2026-11-24")}
    assert (rows["p4d.24xlarge, on demand"].date, rows["p4d.24xlarge, on demand"].source) == (table.date, table.source)
    assert rows["p4d.24xlarge, spot"].usd == 9.5
    assert "us-east-1b" in rows["p4d.24xlarge, spot"].source
    assert (rows["c5.2xlarge, on demand"].date, rows["c5.2xlarge, spot"].usd) == ("2026-11-24", None)
    assert (rows["none, on demand"].usd, rows["none, on demand"].source) == (None, "")
    assert set(ITEMS.values()) < set(rows)
    assert all(row.date and row.source for row in rows.values() if row.usd is not None)
    shown = price_overview_table("us-east-1", rows.values())
    cells = {row[0]: row[1] for row in shown.rows}
    assert (cells["none, on demand"], cells["FSx for Lustre"], cells["EFS"]) == ("unknown", "unknown", "0.3")
    assert json.loads(json.dumps(price_document("us-east-1", rows.values())))["currency"] == "USD"
