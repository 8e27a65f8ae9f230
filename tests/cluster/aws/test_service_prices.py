"""Facts about the prices of services that ship."""

from __future__ import annotations

import datetime

import pytest

from cluster.aws.price_table import PriceTableError
from cluster.aws.service_prices import (
    EBS,
    EFS,
    HEADER,
    ITEMS,
    NAT_GATEWAY,
    PUBLIC_IPV4,
    S3,
    parse_services,
    service_price,
    shipped_services,
    usd_of,
)


def test_each_price_that_ships_has_a_unit_a_date_and_a_source() -> None:
    for price in shipped_services().values():
        assert price.usd > 0
        assert price.unit
        assert price.source
        assert datetime.date.fromisoformat(price.date) <= datetime.datetime.now(datetime.UTC).date()


def test_what_a_cluster_has_beside_instances_is_priced_in_the_first_region() -> None:
    assert [usd_of("us-east-1", item) for item in (NAT_GATEWAY, PUBLIC_IPV4, EBS, EFS, S3)] == [
        0.045,
        0.005,
        0.08,
        0.3,
        0.023,
    ]


def test_a_price_is_not_carried_over_to_another_region_but_where_it_holds_in_all() -> None:
    assert usd_of("eu-west-1", NAT_GATEWAY) is None
    assert usd_of("eu-west-1", PUBLIC_IPV4) == 0.005
    assert service_price("us-east-1", "fsx-lustre") is None, "unknown, and not nothing"
    assert {item for _, item in shipped_services()} < set(ITEMS)


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        (["region,item"], "line 1: the columns must be"),
        ([HEADER, "r,efs,0,GB,2026-01-01,x"], "line 2: '0' is no price"),
        ([HEADER, "r,efs,inf,GB,2026-01-01,x"], "line 2: 'inf' is no price"),
        ([HEADER, "r,efs,free,GB,2026-01-01,x"], "line 2: 'free' is no price"),
        ([HEADER, "r,efs,1,GB,2026-01-01"], "line 2: must have a region"),
        ([HEADER, "r,efs,1,GB,,x"], "line 2: must have a region"),
        ([HEADER, "r,ebs,1,GB,2026-01-01,x"], "line 2: unknown item ebs"),
    ],
)
def test_a_damaged_table_is_refused_with_the_line(lines: list[str], rule: str) -> None:
    with pytest.raises(PriceTableError, match=rule):
        parse_services(lines)
