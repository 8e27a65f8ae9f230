"""Describe what a first deployment starts, its hourly price, what limits the bill, and what continues to cost money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cluster.aws.price_list import (
    EBS,
    EBS_IOPS,
    EBS_THROUGHPUT,
    ENDPOINT,
    NAT_GATEWAY,
    PUBLIC_IPV4,
    T3_CREDITS,
    T4G_CREDITS,
)
from cluster.aws.prices import Prices, shown, total_per_hour
from cluster.session import Session
from cluster.terminal.units import span
from stacks.config import ClusterConfig
from stacks.config_keys.compute import BASE_IOPS, BASE_MIB_S
from stacks.config_keys.network import ONE_NAT_GATEWAY
from stacks.instance_types import find

_MONTH_H: Final = 730
"""Hours per month, as in AWS's pricing calculator."""
_BASELINES: Final = {
    "nano": 0.05,
    "micro": 0.1,
    "small": 0.2,
    "medium": 0.2,
    "large": 0.3,
    "xlarge": 0.4,
    "2xlarge": 0.4,
}
"""Share of its vCPUs that the price of a burstable instance includes, by size (EC2 user guide, "Key concepts for
burstable performance instances").
"""
_CREDITS: Final = {"t3": T3_CREDITS, "t3a": T3_CREDITS, "t4g": T4G_CREDITS}
"""Burstable families for which AWS bills use above that share by default (EC2 user guide, "Unlimited mode for burstable
performance instances"), with the item for the price of a vCPU hour.
"""


def describe_deployment(session: Session) -> str:
    """Return a sentence on what a deployment starts and costs per hour, as far as the prices are known. Waits up to 3 s
    for prices.
    """
    config = session.config
    kinds = [config.master_instance_type, *[config.worker_instance_type] * config.workers]
    instances = total_per_hour(kinds, session.prices.per_hour(kinds, wait_s=3.0))
    types = " or ".join(config.worker_types)
    nodes = f"a {config.master_instance_type} master and {config.workers} {types} workers"
    if config.spot:
        nodes += f", {max(0, config.workers - config.on_demand_workers)} of them on spot"
    place = f", in the existing {config.vpc_id}" if config.vpc_id else ""
    volumes = root_volumes(config, session.prices, config.workers)
    costs = {"instances": instances, **volumes, **fixed_costs(config, session.prices)}
    total = total_per_hour(list(costs), costs)
    together = "price unknown" if total is None else f"{'at most ' if config.spot else ''}{shown(total)} together"
    each = ", ".join(f"{name} {shown(price)}" for name, price in costs.items())
    date = session.prices.dated(kinds)
    dated = f"; prices of {date}" if date else ""
    further = ", ".join(further_costs(config, session.prices, kinds, volumes))
    return f"deploy stack {config.stack_name}: {nodes}{place}, {together} ({each}{dated}), plus {further} and traffic."


def describe_bounds(config: ClusterConfig) -> str:
    """Return a sentence on what limits a cluster's bill automatically, or how to set a limit if there is none."""
    ends = [f"after {span(config.idle_minutes * 60)} idle without a live run"] if config.idle_minutes else []
    ends += [f"after {span(config.max_hours * 3600)}"] if config.max_hours else []
    ends += ["after the last run"] if config.then_stop else []
    budget = f"a budget of ${config.budget_usd:,.0f} a month"
    if config.budget_usd and config.budget_stops_workers:
        ends += [f"above {budget}"]
    if ends:
        return f"cost limits: all workers are terminated {', or '.join(ends)}."
    notifies = f" ({budget} only notifies)" if config.budget_usd else ""
    return (
        f"no cost limit is set{notifies}: workers cost money until you remove them. To set a limit: idle_minutes, "
        "max_hours, then_stop or budget_usd in cdk.json."
    )


def describe_rest(session: Session) -> str:
    """Return a sentence on the costs per hour of a cluster without workers, as far as the prices are known. Waits up to
    3 s for prices.
    """
    config, kind = session.config, session.config.master_instance_type
    master = session.prices.per_hour([kind], wait_s=3.0)[kind]
    volumes = root_volumes(config, session.prices, 0)
    costs = {f"a {kind} master": master, **volumes, **fixed_costs(config, session.prices)}
    total = total_per_hour(list(costs), costs)
    each = ", ".join(f"{name} {shown(price)}" for name, price in costs.items())
    further = further_costs(config, session.prices, [kind], volumes)
    together = "price unknown" if total is None else shown(total)
    kept = " Kept data costs money after `fab down`." if config.retain_data else ""
    found = f"{together} ({each}), plus {', '.join(further)}"
    return f"costs that continue without workers until `fab down`: {found}.{kept}"


def further_costs(
    config: ClusterConfig, prices: Prices, instance_types: Sequence[str], volumes: Mapping[str, float]
) -> list[str]:
    """Return phrases about what else costs money, besides items with an hourly price and traffic.

    They are about CPU credits, storage, FSx for Lustre and a KMS key, and begin in lower case, for use in a sentence.

    `instance_types` are the types that may need CPU credits. `volumes` are the result of `root_volumes`.
    """
    usd = {kind: credits_per_hour(kind, prices) for kind in instance_types}
    kinds = [kind for kind in instance_types if usd[kind] != 0]
    most, names = total_per_hour(kinds, usd), ", ".join(dict.fromkeys(kinds))
    bound = "an unknown price" if most is None else f"up to {shown(most)}"
    found = [f"{bound} for CPU credits ({names})"] if kinds else []
    found.append("other storage" if volumes else "storage")
    if config.fsx_capacity_gib:
        found.append(f"{config.fsx_capacity_gib:,} GiB of FSx for Lustre")
    if config.kms_key == "create":
        found.append("a KMS key")
    return found


def credits_per_hour(instance_type: str, prices: Prices) -> float | None:
    """Return the hourly price of CPU credits for an instance that is always busy, USD.

    Return 0 for a type that AWS bills without credits, and None if the price is unknown.
    """
    family, _, size = instance_type.partition(".")
    if family not in _CREDITS:
        return 0.0
    kind, price = find(instance_type), prices.service(_CREDITS[family])
    return price.usd * kind.vcpus * (1 - _BASELINES[size]) if kind and price else None


def fixed_costs(config: ClusterConfig, prices: Prices) -> dict[str, float | None]:
    """Return hourly costs besides instances, USD, by a description with the count: gateways, addresses, endpoints.

    What the cluster does not have is left out. An unknown price is None.
    """
    gateways = 0 if config.vpc_id else _gateways(config)
    addresses = gateways + config.opens_ssh_port
    endpoints = len(config.interface_endpoints) * config.availability_zones
    counted = {
        _counted(gateways, "NAT gateway", "s"): (NAT_GATEWAY, gateways),
        _counted(addresses, "public IPv4 address", "es"): (PUBLIC_IPV4, addresses),
        _counted(endpoints, "interface endpoint", "s"): (ENDPOINT, endpoints),
    }
    known = {words: (prices.service(item), count) for words, (item, count) in counted.items() if count}
    return {words: price.usd * count if price else None for words, (price, count) in known.items()}


def root_volumes(config: ClusterConfig, prices: Prices, workers: int) -> dict[str, float]:
    """Return one entry: the total hourly cost of all root volumes, USD, by a description such as "3 root volumes".

    The master has one, and each worker. {} if a price is unknown.
    """
    master = (config.master_volume_gib, config.master_volume_iops, config.master_volume_mib_s)
    worker = (config.worker_volume_gib, config.worker_volume_iops, config.worker_volume_mib_s)
    gib, iops, mib_s = (one + each * workers for one, each in zip(master, worker, strict=True))
    volumes = 1 + workers
    wanted = {EBS: gib, EBS_IOPS: iops - BASE_IOPS * volumes, EBS_THROUGHPUT: mib_s - BASE_MIB_S * volumes}
    usd = 0.0
    for item, amount in wanted.items():
        if amount:
            price = prices.service(item)
            if price is None:
                return {}
            usd += price.usd * amount / _MONTH_H
    return {_counted(volumes, "root volume", "s"): usd}


def _gateways(config: ClusterConfig) -> int:
    return 1 if config.nat_gateways == ONE_NAT_GATEWAY else config.availability_zones


def _counted(count: int, noun: str, plural: str) -> str:
    return f"a {noun}" if count == 1 else f"{count} {noun}{plural}"
