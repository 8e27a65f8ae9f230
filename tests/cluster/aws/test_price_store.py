"""Facts about refreshed prices on the laptop."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.aws.price_store import PriceStore, Refreshed
from cluster.aws.service_prices import NAT_GATEWAY, ServicePrice
from cluster.aws.spot_prices import SpotPrice

LEARNT = Refreshed(
    date="2026-11-24",
    spot={"p5.48xlarge": SpotPrice(usd_per_hour=20.5, zone="us-east-1a", since="2026-11-23T00:00:00+00:00")},
    services={NAT_GATEWAY: ServicePrice(usd=0.05, unit="hour", date="2026-11-24", source="AWS's price list")},
)


def test_what_was_refreshed_is_kept_by_endpoint_and_region(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "prices.json"
    here, other = PriceStore(path, endpoint="", region="us-east-1"), PriceStore(path, endpoint="", region="eu-west-1")
    here.save(LEARNT)
    other.save(Refreshed(date="2026-11-25"))
    assert here.load() == LEARNT
    assert PriceStore(path, endpoint="http://localhost", region="us-east-1").load() == Refreshed()


def test_aws_s_price_comes_before_the_one_that_ships_and_neither_is_none(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices.json", endpoint="", region="us-east-1")
    assert (found := store.service(NAT_GATEWAY)) is not None
    assert found.usd == 0.045
    store.save(LEARNT)
    assert (found := store.service(NAT_GATEWAY)) is not None
    assert found.usd == 0.05
    assert store.service("fsx-lustre") is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"|us-east-1": 3}', '{"|us-east-1": {"date": "x", "spot": {"a": {}}}}']
)
def test_a_damaged_file_is_as_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(text)
    store = PriceStore(path, endpoint="", region="us-east-1")
    assert store.load() == Refreshed()
    store.save(LEARNT)
    assert store.load() == LEARNT


def test_a_place_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    PriceStore(tmp_path / "file" / "prices.json", endpoint="", region="r").save(LEARNT)
