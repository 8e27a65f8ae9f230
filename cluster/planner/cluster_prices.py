"""What the candidates cost an hour, with everything that a cluster has beside its workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.aws.prices import as_of, shown, total_per_hour
from cluster.deploy.estimate import fixed_costs
from cluster.planner.candidates import HourlyPrices
from cluster.planner.hardware import Hardware
from cluster.session import Session


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterPrices:
    """Prices of a cluster in one region."""

    region: str
    region_is_set: bool
    """False: the laptop has no AWS region, and these are prices of the one that stands in for it."""
    by_type: Mapping[str, HourlyPrices]
    fixed: Mapping[str, float | None]
    """What costs by the hour beside the workers, USD; None where the price is unknown, and not in the sums."""
    date: str
    """Of the table that prices were taken from; "" for AWS's of today."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return what the costs hold, in words."""
        known = ", ".join(f"{name} {shown(price)}" for name, price in self.fixed.items())
        missing = [name for name, price in self.by_type.items() if price.node is None]
        return (
            *([] if self.region_is_set else [f"no AWS region is set: these are prices of {self.region}"]),
            f"costs in {self.region}: workers, and {known}{as_of(self.date)}; without storage and traffic",
            *(["no spot price is known; `fab prices --refresh` asks EC2"] if not self._has_spot else []),
            *([f"no price is known of {', '.join(missing)} in {self.region}"] if missing else []),
        )

    @property
    def _has_spot(self) -> bool:
        return any(price.spot_node is not None for price in self.by_type.values())

    def document(self) -> dict[str, Any]:
        """Return the prices as JSON values."""
        return dataclasses.asdict(self)


def look_up(session: Session, types: Sequence[Hardware], *, wait_s: float) -> ClusterPrices:
    """Return the prices of these types, and of what else the configured cluster has."""
    config = session.config
    names = [kind.instance_type for kind in types]
    every = [*names, config.master_instance_type]
    prices = session.prices.per_hour(every, wait_s)
    fixed = {f"a {config.master_instance_type} master": prices[config.master_instance_type]}
    fixed |= fixed_costs(config, session.prices)
    spot = {name: session.prices.spot(name) for name in names}
    rest = total_per_hour([name for name, price in fixed.items() if price is not None], fixed) or 0.0
    return ClusterPrices(
        region=session.aws.price_region,
        region_is_set=bool(session.aws.region),
        by_type={
            name: HourlyPrices(node=prices[name], spot_node=price.usd if price else None, rest=rest)
            for name, price in spot.items()
        },
        fixed=fixed,
        date=session.prices.dated(every),
    )
