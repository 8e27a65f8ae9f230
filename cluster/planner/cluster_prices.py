"""Hourly prices of the candidates, including everything that a cluster has besides its workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.aws.prices import as_of, shown, total_per_hour
from cluster.deploy.cost import credits_per_hour, fixed_costs, further_costs, root_volumes
from cluster.planner.candidates import HourlyPrices
from cluster.planner.hardware import Hardware
from cluster.session import Session


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterPrices:
    """Prices of a cluster in one region."""

    region: str
    region_is_set: bool
    """False if no AWS region is set on the laptop. The prices are then those of a default region."""
    by_type: Mapping[str, HourlyPrices]
    fixed: Mapping[str, float | None]
    """Hourly costs besides the workers, USD. An unknown price is None and is not included in the sums."""
    included: str
    """Describes what the prices of workers include."""
    excluded: str
    """Describes the costs that no price includes."""
    date: str
    """Date of the price table; "" if the prices are AWS's current ones."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return sentences on what the costs include, on prices that are unknown, and on a region that is not set."""
        known = ", ".join(f"{name} {shown(price)}" for name, price in self.fixed.items())
        missing = [name for name, price in self.by_type.items() if price.node is None]
        fix = "to get it, use credentials that may read AWS's price list (pricing:GetProducts)"
        types, no_spot = ",".join(self.by_type), all(price.spot_node is None for price in self.by_type.values())
        return (
            *(
                []
                if self.region_is_set
                else [f"no AWS region is set: these are prices of {self.region}; for another region, set AWS_REGION"]
            ),
            f"costs in {self.region}: {self.included}, and {known}{as_of(self.date)}; not included: {self.excluded}",
            *([f"no spot price is known; to get it: `fab prices --instance {types} --refresh`"] if no_spot else []),
            *([f"the price of {', '.join(missing)} in {self.region} is unknown; {fix}"] if missing else []),
        )

    def document(self) -> dict[str, Any]:
        """Return the fields as JSON values: all prices, USD per hour, with their region and date."""
        return dataclasses.asdict(self)


def look_up(session: Session, types: Sequence[Hardware], *, wait_s: float) -> ClusterPrices:
    """Return the hourly prices of these instance types and of the rest of the configured cluster.

    Waits up to `wait_s` for AWS's current on-demand prices. A price that is missing then is from the included price
    list, or None. Spot prices are those of the last refresh.
    """
    config = session.config
    names = [kind.instance_type for kind in types]
    every = [*names, config.master_instance_type]
    prices = session.prices.per_hour(every, wait_s)
    volumes = root_volumes(config, session.prices, 0)
    fixed = {f"a {config.master_instance_type} master": prices[config.master_instance_type], **volumes}
    fixed |= fixed_costs(config, session.prices)
    rest = total_per_hour([name for name, price in fixed.items() if price is not None], fixed) or 0.0
    # volumes of one worker
    volume = sum(root_volumes(config, session.prices, 1).values()) - sum(volumes.values())
    credits = {name: credits_per_hour(name, session.prices) for name in names}

    def node(name: str, usd: float | None) -> float | None:
        more = credits[name]
        return None if usd is None or more is None else usd + more + volume

    spot = {name: session.prices.spot(name) for name in names}
    included = "workers with their root volumes" if volumes else "workers"
    excluded = further_costs(config, session.prices, [config.master_instance_type], volumes)
    return ClusterPrices(
        region=session.aws.price_region,
        region_is_set=bool(session.aws.region),
        by_type={
            name: HourlyPrices(
                node=node(name, prices[name]), spot_node=node(name, price.usd if price else None), rest=rest
            )
            for name, price in spot.items()
        },
        fixed=fixed,
        included=f"{included} and CPU credits" if any(credits.values()) else included,
        excluded=f"{', '.join(excluded)} and traffic",
        date=session.prices.dated(every),
    )
