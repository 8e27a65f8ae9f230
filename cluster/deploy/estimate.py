"""What a first deployment starts, and what that costs an hour."""

from __future__ import annotations

from cluster.aws.pricing import shown, total_per_hour
from cluster.session import Session
from stacks.config import ClusterConfig
from stacks.config_keys.network import ONE_NAT_GATEWAY


def describe_deployment(session: Session) -> str:
    """Return a sentence on what a deployment starts and what it costs, as far as the prices are known."""
    config = session.config
    kinds = [config.master_instance_type, *[config.worker_instance_type] * config.workers]
    price = shown(total_per_hour(kinds, session.prices.per_hour(kinds, wait_s=3.0)))
    types = " or ".join(config.worker_types)
    nodes = f"a {config.master_instance_type} master and {config.workers} {types} workers"
    if config.spot:
        nodes += f", {max(0, config.workers - config.on_demand_workers)} of them on spot"
    return f"deploy stack {config.stack_name}: {nodes}, instances {price}{_gateways(config)}."


def _gateways(config: ClusterConfig) -> str:
    """Return the part about the NAT gateways, which cost by the hour too."""
    if config.vpc_id:
        return f", in the existing {config.vpc_id}"
    if config.nat_gateways == ONE_NAT_GATEWAY or config.availability_zones == 1:
        return ", and a NAT gateway"
    return f", and {config.availability_zones} NAT gateways"
