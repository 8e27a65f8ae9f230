"""The limits of a run before it starts: rejected are a cost limit without prices, and a limit that is used up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from agent.spec.run_limits import RunLimits
from agent.spec.submission import Origin
from cluster.aws.prices import Prices
from cluster.errors import DeepcdkError
from cluster.runs.limit_checks import check_left, check_prices, describe, describe_spent
from tests.factories import MASTER_ID, make_nodes, make_program_spec, make_spec

COST, HOURS = RunLimits(max_usd=5.0), RunLimits(max_hours=2.0)
ORIGIN = Origin(
    master=MASTER_ID, instance_types={MASTER_ID: "t3.medium", "i-00000001": "c5.2xlarge", "i-00000002": "c5.2xlarge"},
    usd_per_hour={"t3.medium": 0.0416, "c5.2xlarge": 0.34},
)  # fmt: skip


class Known:
    """Prices, only some of them known."""

    def __init__(self, **known: float) -> None:
        self._known = known

    def per_hour(self, kinds: Iterable[str], wait_s: float) -> dict[str, float | None]:
        return {kind: self._known.get(kind) for kind in kinds}


def check(bounds: RunLimits, *kinds: str, **known: float) -> None:
    check_prices(bounds, kinds, cast("Prices", Known(**known)))


def test_cost_limit_is_rejected_with_types_without_price() -> None:
    with pytest.raises(DeepcdkError, match="--max-cost cannot be checked: the price of b, c in this region is unknown"):
        check(COST, "a", "c", "b", a=1.0)
    check(COST, "a", a=1.0)
    check(HOURS, "a")


def test_run_at_its_limit_is_not_resumed() -> None:
    spec = make_spec(bounds=COST)
    with pytest.raises(
        DeepcdkError, match=f"run {spec.run_id} has reached --max-cost 5: .5.02 of .5 after 2 h"
    ) as caught:
        check_left(spec, {"seconds": 7200, "usd": 5.02})
    assert caught.value.remedy == "give a higher limit with --max-cost, or --max-cost none"
    with pytest.raises(DeepcdkError, match=f"the cost of the earlier attempts of run {spec.run_id} is unknown"):
        check_left(spec, {"seconds": 7200, "usd": None})
    check_left(spec, {"seconds": 7200, "usd": 4.0})
    check_left(spec, None)
    check_left(make_spec(), {"seconds": 7200, "usd": None})


def test_new_run_is_described_with_its_limits_and_price() -> None:
    hosts = make_nodes(2)
    both = make_spec(hosts=hosts, bounds=RunLimits(max_usd=5.0, max_hours=2.0))
    expected = "the run writes a checkpoint and is stopped after $5 for its instances or 2 h, at $0.722/h"
    assert describe(both, ORIGIN) == [expected]
    assert describe(make_spec(hosts=hosts), ORIGIN) == []
    unpriced = Origin(**{**vars(ORIGIN), "usd_per_hour": {"t3.medium": 0.0416, "c5.2xlarge": None}})
    assert describe(make_spec(hosts=hosts, bounds=HOURS), unpriced) == [
        "the run writes a checkpoint and is stopped after 2 h"
    ]
    with pytest.raises(DeepcdkError, match=r"the price of c5\.2xlarge"):
        describe(both, unpriced)
    (told,) = describe(make_program_spec(hosts=hosts, bounds=HOURS), unpriced)
    assert told == "the run gets SIGTERM, so that it can write a checkpoint, and is stopped after 2 h"


@pytest.mark.parametrize(
    ("bounds", "spent", "told"),
    [
        ({"max_hours": 2.0, "max_usd": 0.0}, {"seconds": 3600, "usd": 1.5}, "--max-hours 2: 1 h of 2 h, $1.50"),
        ({"max_hours": 2.0}, None, ""),
        ({}, {"seconds": 3600, "usd": 1.5}, ""),
        (None, {"seconds": 3600, "usd": 1.5}, ""),
        ({"max_hours": -2.0}, {"seconds": 3600, "usd": 1.5}, ""),
    ],
)
def test_record_has_used_part_of_limit(bounds: Any, spent: Any, told: str) -> None:
    assert describe_spent({"spec": {"bounds": bounds}, "spent": spent}) == told
