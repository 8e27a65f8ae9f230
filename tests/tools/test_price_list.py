"""Writing the price table: only types with exactly one price, with date and source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.aws.price_list import HEADER, parse
from tools import price_list

RECORDING = """
// generated at 2026-07-20T13:44:30Z for us-east-1
"us-east-1": {
    "c5.large": 0.085000, "t3.medium": 0.041600, "p3.2xlarge": 0.000000,
"""


def product(kind: str, usd: str) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"T": {"priceDimensions": {"D": dimension}}}}
    return json.dumps({"product": {"attributes": {"instanceType": kind}}, "terms": terms})


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "prices.csv"
    monkeypatch.setattr(price_list, "FILE", path)
    return path


def recording(tmp_path: Path, *words: str, text: str = RECORDING) -> list[str]:
    path = tmp_path / "prices.go"
    path.write_text(text, encoding="utf-8")
    return ["--recording", str(path), "--region", "us-east-1", *words]


def test_recording_gives_types_with_a_price(tmp_path: Path, table: Path) -> None:
    assert price_list.main(recording(tmp_path, "--date", "2026-07-20", "--source", "someone's list")) == 0
    found = parse(table.read_text(encoding="utf-8").splitlines())
    assert {key: price.usd for key, price in found.items()} == {
        ("us-east-1", "c5.large"): 0.085,
        ("us-east-1", "t3.medium"): 0.0416,
    }
    assert {(price.date, price.source) for price in found.values()} == {("2026-07-20", "someone's list")}


def test_other_regions_and_service_prices_are_unchanged(tmp_path: Path, table: Path) -> None:
    rows = "eu-west-1,c5.large,0.096,hour,1\nus-east-1,efs,0.3,GB-month,1\nus-east-1,m1.old,1,hour,1\n"
    table.write_text(f"# 1 2026-01-01 a list\n{HEADER}\n{rows}")
    assert price_list.main(recording(tmp_path, "--date", "2026-07-20", "--source", "x")) == 0
    found = parse(table.read_text(encoding="utf-8").splitlines())
    assert {item for region, item in found if region == "eu-west-1"} == {"c5.large"}
    assert {item for region, item in found if region == "us-east-1"} == {"c5.large", "efs", "t3.medium"}


def test_recording_without_price_writes_nothing(
    tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert price_list.main(recording(tmp_path, "--date", "2026-07-20", "--source", "x", text="{}")) == 1
    assert "nothing written" in capsys.readouterr().err
    assert not table.exists()


def test_damaged_price_list_is_reported_and_kept(
    tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text("c5.large\n")
    assert price_list.main(recording(tmp_path, "--date", "2026-07-20", "--source", "x")) == 1
    assert capsys.readouterr().err.startswith("price_list: ")
    assert table.read_text() == "c5.large\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--date", "2026-07-20"], "--recording needs"),
        (["--source", "x", "--date", "July"], "--date must be a date"),
        (["--source", "x", "--date", "2026-07-20", "--region", "eu-west-1"], "one --region"),
    ],
)
def test_recording_has_its_source_and_date(
    tmp_path: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        price_list.main(recording(tmp_path, *words))
    assert why in capsys.readouterr().err


def test_source_without_recording_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        price_list.main(["--region", "eu-west-1", "--source", "x"])
    assert "need --recording" in capsys.readouterr().err


def test_price_list_gives_types_with_exactly_one_price() -> None:
    products = [product("c5.large", "0.085"), product("c5.large", "0.0"), product("t3.medium", "0.04")]
    products += [product("t3.medium", "0.05"), product("", "1.0")]
    assert price_list.parse_products(products) == {"c5.large": 0.085}
