"""Write the costs in docs/tutorial.md, from the included price list.

python -m tools.tutorial_costs
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final

from cluster.aws.price_list import (
    EBS,
    EFS,
    NAT_GATEWAY,
    NAT_TRAFFIC,
    PUBLIC_IPV4,
    S3,
    SERVICES,
    Price,
    included_price,
)
from stacks.config import ClusterConfig
from tools.site.reference import rows

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
REGION: Final = "us-east-1"
HOURS_PER_MONTH: Final = 730
"""As in AWS's pricing calculator."""
ADDRESSES: Final = 2
"""Public IPv4 addresses: the master's and the NAT gateway's."""


FEES: Final = (EBS, EFS, S3, NAT_TRAFFIC, "transfer-out")
"""Services with a price per GB, by their name in `cluster/aws/price_list.csv`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """The size of the cluster in a part of the tutorial."""

    workers: int
    worker_type: str = ClusterConfig.worker_instance_type

    @property
    def name(self) -> str:
        """Return the number and type of the workers, such as `2 x c5.2xlarge`."""
        return f"{self.workers} x {self.worker_type}"


FIRST: Final = Cluster(workers=2)
LARGE: Final = Cluster(workers=16)
GPUS: Final = Cluster(workers=16, worker_type="p4d.24xlarge")
SESSION: Final = (("deploy, the first runs", FIRST, 1.0), ("sixteen nodes", LARGE, 1.0))
"""The tutorial's steps with their cluster and hours, rounded up."""


def hourly(cluster: Cluster) -> dict[str, float]:
    """Return the hourly costs of a cluster with the tutorial's cdk.json, USD, by part."""
    gib = ClusterConfig.master_volume_gib + cluster.workers * ClusterConfig.worker_volume_gib
    return {
        f"master ({ClusterConfig.master_instance_type})": fee(ClusterConfig.master_instance_type).usd,
        "NAT gateway": fee(NAT_GATEWAY).usd,
        f"{ADDRESSES} public IPv4 addresses": ADDRESSES * fee(PUBLIC_IPV4).usd,
        "workers": cluster.workers * fee(cluster.worker_type).usd,
        "root volumes": gib * fee(EBS).usd / HOURS_PER_MONTH,
    }


def usd(amount: float) -> str:
    """Format an amount in USD with two decimals, or three below $0.10."""
    return f"${amount:,.2f}" if amount >= 0.1 else f"${amount:.3f}"


def hours_table() -> str:
    """Return a table of hourly costs by part and cluster."""
    clusters = (FIRST, LARGE, GPUS)
    by_part = zip(*(hourly(cluster).items() for cluster in clusters), strict=True)
    cells = [(parts[0][0], *(usd(amount) for _, amount in parts)) for parts in by_part]
    total = ("**together**", *(f"**{usd(sum(hourly(cluster).values()))}**" for cluster in clusters))
    return rows(("an hour of", *(cluster.name for cluster in clusters)), [*cells, total])


def session_table() -> str:
    """Return a table of the costs of the tutorial's steps, with their sum."""
    costs = [(what, cluster, hours, hours * sum(hourly(cluster).values())) for what, cluster, hours in SESSION]
    cells = [(what, cluster.name, f"{hours:g} h", usd(cost)) for what, cluster, hours, cost in costs]
    total = sum(cost for *_, cost in costs)
    return rows(("step", "workers", "time", "cost"), [*cells, ("**together**", "", "", f"**{usd(total)}**")])


def fees_table() -> str:
    """Return a table of the fees other than instances, with date and source."""
    cells = [
        (SERVICES[item], f"{usd(fee(item).usd)} per {fee(item).unit}", fee(item).date, linked(fee(item).source))
        for item in (NAT_GATEWAY, PUBLIC_IPV4, *FEES)
    ]
    return rows(("what", "fee", "date", "source"), cells)


def fee(item: str) -> Price:
    """Return a price of the included price list. Raises LookupError if the list lacks `item`."""
    found = included_price(REGION, item)
    if found is None:
        raise LookupError(
            f"the price list has no price of {item} in {REGION}; add the price to cluster/aws/price_list.csv"
        )
    return found


def linked(source: str) -> str:
    """Return a source with each URL replaced by a Markdown link with the host as its text."""
    return re.sub(r"https?://([^/\s]+)[^\s;]*", lambda found: f"[{found[1]}]({found[0]})", source)


def section() -> str:
    """Return the text between the two marks in docs/tutorial.md: a paragraph and three tables."""
    lines = (
        f"Prices of instances in {REGION} are of {fee(ClusterConfig.master_instance_type).date}. They are included, in",
        "`cluster/aws/price_list.csv`, with the fees below. `fab prices --refresh` shows today's.",
        f"A month has {HOURS_PER_MONTH} hours.",
    )
    return "\n".join(["", *lines, "", hours_table(), session_table(), fees_table()])


def with_costs(text: str) -> str:
    """Return the page's text with current costs between the two marks. Raises ValueError if the text lacks them."""
    changed, count = re.subn(
        r"(?s)(<!-- costs: python -m tools\.tutorial_costs -->\n).*(<!-- end -->)",
        lambda found: f"{found[1]}{section()}\n{found[2]}",
        text,
    )
    if count != 1:
        raise ValueError(f"{PAGE} must contain the marks `<!-- costs: ... -->` and `<!-- end -->` once; restore them")
    return changed


if __name__ == "__main__":
    PAGE.write_text(with_costs(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
