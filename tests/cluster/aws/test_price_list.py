"""The included price list."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from invoke.exceptions import Exit

from cluster.aws import price_list
from cluster.aws.price_list import (
    FILE,
    HEADER,
    NAT_GATEWAY,
    PUBLIC_IPV4,
    SERVICES,
    PriceListError,
    included,
    included_price,
    parse,
    render,
)
from cluster.cli.task import task
from stacks.config import ClusterConfig

SOURCE = "# 1 2026-01-01 a list, with a comma"


def test_written_list_is_read_back() -> None:
    assert render(included()) == FILE.read_text(encoding="utf-8")


def test_every_price_has_a_unit_a_date_and_a_source() -> None:
    for price in included().values():
        assert 0 < price.usd < 1000
        assert price.unit
        assert price.source
        assert datetime.date.fromisoformat(price.date) <= datetime.datetime.now(datetime.UTC).date()


def test_types_of_the_recipes_and_of_the_default_cluster_have_a_price() -> None:
    default = ClusterConfig()
    kinds = {default.worker_instance_type, default.master_instance_type, "p3.16xlarge", "p4d.24xlarge", "p5.48xlarge"}
    assert all(included_price("us-east-1", item) for item in (*kinds, *(SERVICES.keys() - {"fsx-lustre"})))
    regions = {region for region, item in included() if "." in item}
    assert all(included_price(region, NAT_GATEWAY) for region in regions), "a region's total needs it"


def test_price_of_one_region_does_not_count_in_another() -> None:
    assert included_price("eu-west-1", NAT_GATEWAY) is None
    assert included_price("us-east-1", "fsx-lustre") is None
    assert included_price("eu-west-1", PUBLIC_IPV4) is not None


def test_unreadable_list_is_reported_without_line() -> None:
    text = str(PriceListError(0, "cannot be read (No such file or directory)"))
    assert text.startswith(f"{FILE}: cannot be read") and "git" in text


@pytest.mark.parametrize("content", [None, b"region", b"\xff"])
def test_task_reports_an_invalid_list_in_a_message(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(price_list, "FILE", tmp_path / "price_list.csv")
    if content is not None:
        price_list.FILE.write_bytes(content)
    monkeypatch.setattr(price_list, "included", price_list.included.__wrapped__)

    @task()
    def priced() -> None:
        """Show a price."""
        included_price("us-east-1", NAT_GATEWAY)

    with pytest.raises(Exit, match=r"price_list\.csv.*\n  do: restore the file with git"):
        priced()


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ([SOURCE, "region,item"], "line 2: the columns must be"),
        ([SOURCE, HEADER, "r,efs,0,GB,1"], "line 3: 0 is not a price"),
        ([SOURCE, HEADER, "r,efs,inf,GB,1"], "line 3: inf is not a price"),
        ([SOURCE, HEADER, "r,efs,free,GB,1"], "line 3: 'r,efs,free,GB,1' must have a region, item"),
        ([SOURCE, HEADER, "r,efs,1,GB"], "line 3: 'r,efs,1,GB' must have"),
        ([SOURCE, HEADER, "r,efs,1,GB,2"], "line 3: 'r,efs,1,GB,2' must have"),
        ([SOURCE, HEADER, "r,ebs,1,GB,1"], "line 3: unknown item ebs"),
    ],
)
def test_invalid_line_is_reported_with_its_number(lines: list[str], rule: str) -> None:
    with pytest.raises(PriceListError, match=rule):
        parse(lines)
