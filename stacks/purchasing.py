"""Purchase options for worker instances: on demand, spot, several types, or a reservation."""

from __future__ import annotations

import dataclasses

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2

from stacks.config import ClusterConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Market:
    """How a group buys its instances. The default is on-demand instances of the launch template's type."""

    alternatives: tuple[str, ...] = ()
    """Instance types in addition to the launch template's, in order of preference."""
    spot: bool = False
    on_demand: int = 0
    """With `spot`: number of instances that are bought on demand. These are the first ones."""
    spot_allocation: str = ""
    rebalanced: bool = False
    """With `spot`: replace an instance as soon as AWS recommends it, before AWS reclaims the instance."""
    on_demand_allocation: str = ""
    reservation: str = ""
    """ID of a capacity reservation, or ARN of a resource group of reservations; empty: none."""
    block: bool = False
    """Whether the reservation is a capacity block."""

    @property
    def mixed(self) -> bool:
        """Return whether the group needs a mixed instances policy: for spot instances or several types."""
        return self.spot or bool(self.alternatives)


def of(config: ClusterConfig) -> Market:
    """Return the purchase options for the workers of a configuration."""
    return Market(
        alternatives=config.worker_alternatives,
        spot=config.spot,
        on_demand=config.on_demand_workers,
        spot_allocation=config.spot_allocation,
        rebalanced=config.spot and config.capacity_rebalance,
        on_demand_allocation=config.on_demand_allocation,
        reservation=config.capacity_reservation,
        block=config.capacity_block,
    )


def mixed_policy(template: ec2.LaunchTemplate, instance_type: str, market: Market) -> autoscaling.MixedInstancesPolicy:
    """Return the policy of a group with several types or purchase options. `instance_type` is preferred to the
    alternatives.

    Spot prices are limited to the on-demand price.
    """
    types = [instance_type, *market.alternatives] if market.alternatives else []
    return autoscaling.MixedInstancesPolicy(
        launch_template=template,
        launch_template_overrides=[
            autoscaling.LaunchTemplateOverrides(instance_type=ec2.InstanceType(each)) for each in types
        ]
        or None,
        instances_distribution=autoscaling.InstancesDistribution(
            on_demand_allocation_strategy=_on_demand(market) if market.alternatives else None,
            on_demand_base_capacity=market.on_demand if market.spot else None,
            on_demand_percentage_above_base_capacity=0 if market.spot else 100,
            spot_allocation_strategy=_spot(market) if market.spot else None,
        ),
    )


def _spot(market: Market) -> autoscaling.SpotAllocationStrategy:
    return autoscaling.SpotAllocationStrategy[market.spot_allocation.upper().replace("-", "_")]


def _on_demand(market: Market) -> autoscaling.OnDemandAllocationStrategy:
    return autoscaling.OnDemandAllocationStrategy[market.on_demand_allocation.upper().replace("-", "_")]


def reserve(template: ec2.LaunchTemplate, market: Market) -> None:
    """Make a template launch instances only into the reservation, if there is one.

    The construct has no property for reservations.
    """
    resource = template.node.default_child
    if not market.reservation or not isinstance(resource, ec2.CfnLaunchTemplate):
        return
    kind = "CapacityReservationResourceGroupArn" if market.reservation.startswith("arn:") else "CapacityReservationId"
    data = "LaunchTemplateData"
    resource.add_property_override(
        f"{data}.CapacityReservationSpecification.CapacityReservationTarget.{kind}", market.reservation
    )
    if market.block:
        resource.add_property_override(f"{data}.InstanceMarketOptions.MarketType", "capacity-block")
