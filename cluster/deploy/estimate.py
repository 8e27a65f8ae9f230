"""What a first deployment starts, and what that costs an hour."""

from __future__ import annotations

from cluster.aws.price_store import PriceStore
from cluster.aws.pricing import shown, total_per_hour
from cluster.aws.service_prices import NAT_GATEWAY, PUBLIC_IPV4
from cluster.session import Session
from stacks.config import ClusterConfig
from stacks.config_keys.network import ONE_NAT_GATEWAY


def describe_deployment(session: Session) -> str:
    """Return a sentence on what a deployment starts and what it costs, as far as the prices are known."""
    config = session.config
    kinds = [config.master_instance_type, *[config.worker_instance_type] * config.workers]
    instances = total_per_hour(kinds, session.prices.per_hour(kinds, wait_s=3.0))
    types = " or ".join(config.worker_types)
    nodes = f"a {config.master_instance_type} master and {config.workers} {types} workers"
    if config.spot:
        nodes += f", {max(0, config.workers - config.on_demand_workers)} of them on spot"
    place = f", in the existing {config.vpc_id}" if config.vpc_id else ""
    costs = {"instances": instances, **fixed_costs(config, session.price_store)}
    total = total_per_hour(list(costs), costs)
    together = "price unknown" if total is None else f"{'at most ' if config.spot else ''}{shown(total)} together"
    each = ", ".join(f"{name} {shown(price)}" for name, price in costs.items())
    date = session.prices.dated(kinds)
    dated = f"; prices of {date}" if date else ""
    return f"deploy stack {config.stack_name}: {nodes}{place}, {together} ({each}{dated}), plus storage and traffic."


def fixed_costs(config: ClusterConfig, prices: PriceStore) -> dict[str, float | None]:
    """Return what costs by the hour beside instances: NAT gateways, public addresses; None where unknown."""
    gateways = 0 if config.vpc_id else _gateways(config)
    addresses = gateways + config.opens_ssh_port
    counted = {
        _counted(gateways, "NAT gateway", "s"): (NAT_GATEWAY, gateways),
        _counted(addresses, "public IPv4 address", "es"): (PUBLIC_IPV4, addresses),
    }
    known = {words: (prices.service(item), count) for words, (item, count) in counted.items() if count}
    return {words: price.usd * count if price else None for words, (price, count) in known.items()}


def _gateways(config: ClusterConfig) -> int:
    return 1 if config.nat_gateways == ONE_NAT_GATEWAY else config.availability_zones


def _counted(count: int, noun: str, plural: str) -> str:
    return f"a {noun}" if count == 1 else f"{count} {noun}{plural}"
