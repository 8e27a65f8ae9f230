"""Facts about spot prices."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from moto import mock_aws

from cluster.aws.client import Aws
from cluster.aws.spot_prices import ask_spot, cheapest

NOW = datetime.datetime(2026, 11, 24, tzinfo=datetime.UTC)


def entry(kind: str, zone: str, usd: str, days: int) -> Any:
    """Return an entry of EC2's history, so many days old."""
    return {
        "InstanceType": kind,
        "AvailabilityZone": zone,
        "SpotPrice": usd,
        "Timestamp": NOW - datetime.timedelta(days=days),
    }


def test_the_cheapest_zone_counts_with_its_newest_price() -> None:
    history = [
        entry("p5", "a", "20.0", 5),
        entry("p5", "a", "30.0", 1),
        entry("p5", "b", "25.0", 2),
        entry("c5", "a", "0.1", 3),
    ]
    found = cheapest(history, NOW)
    assert (found["p5"].usd_per_hour, found["p5"].zone) == (25.0, "b")
    assert found["c5"].usd_per_hour == 0.1
    assert found["p5"].since.startswith("2026-11-22")


def test_a_price_older_than_ec2_keeps_them_and_one_of_nothing_are_none() -> None:
    assert cheapest([entry("c5", "a", "0.1", 91), entry("p5", "a", "0", 1)], NOW) == {}


def test_the_embedded_cloud_s_stand_in_prices_are_no_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with mock_aws():
        assert ask_spot(Aws(), ["c5.2xlarge"], datetime.datetime.now(datetime.UTC)) == {}
