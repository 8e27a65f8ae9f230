from __future__ import annotations

import re

import pytest

from cluster.aws.price_list import included_price
from tools.tutorial_costs import (
    FIRST,
    GPUS,
    LARGE,
    PAGE,
    REGION,
    Cluster,
    fee,
    fees_table,
    hourly,
    hours_table,
    linked,
    session_table,
    usd,
    with_costs,
)


def test_costs_on_the_page_match_the_price_list() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_costs(text), "run python -m tools.tutorial_costs"


def test_all_amounts_on_the_page_are_computed_except_limit_of_run() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rest = re.sub(r"(?s)<!-- costs.*<!-- end -->", "", text)
    assert re.findall(r"\$[0-9.,]*[0-9]", rest) == ["$5"]
    assert "--max-cost 5" in rest


def test_hourly_cost_is_sum_of_its_parts() -> None:
    # Calculated by hand: 0.0416 + 0.045 + 2 x 0.005 + 16 x 0.34 + (50 + 16 x 100) GB x 0.08 / 730 h.
    assert sum(hourly(LARGE).values()) == pytest.approx(0.0416 + 0.045 + 0.010 + 5.44 + 0.180822, abs=1e-5)
    assert hourly(GPUS)["workers"] == 16 * fee("p4d.24xlarge").usd
    assert "| **together** | **$0.80** | **$5.72** |" in hours_table()


def test_cost_of_session_is_sum_of_its_steps() -> None:
    total = sum(hourly(FIRST).values()) + sum(hourly(LARGE).values())
    assert session_table().splitlines()[-1] == f"| **together** |  |  | **{usd(total)}** |"


def test_type_without_price_has_no_cost() -> None:
    with pytest.raises(LookupError, match=r"x9\.huge"):
        hourly(Cluster(workers=1, worker_type="x9.huge"))


def test_fee_has_date_and_source_and_unknown_fee_is_rejected() -> None:
    row = next(line for line in fees_table().splitlines() if line.startswith("| EFS |"))
    found = included_price(REGION, "efs")
    assert found
    assert usd(found.usd) in row
    assert found.date in row
    with pytest.raises(LookupError, match="no price of fsx in us-east-1"):
        fee("fsx")


def test_source_is_linked_with_its_host_as_text() -> None:
    assert linked("https://a.example/b/ (first 10 TB)") == "[a.example](https://a.example/b/) (first 10 TB)"


def test_small_amounts_have_three_decimals() -> None:
    assert [usd(0.045), usd(0.68), usd(1351.3)] == ["$0.045", "$0.68", "$1,351.30"]


def test_page_without_markers_is_rejected() -> None:
    with pytest.raises(ValueError, match="marks"):
        with_costs("# A page\n")
