"""Purchase options for worker instances: on demand, spot, several types, or a reservation."""

from __future__ import annotations

from typing import cast

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2

from stacks.config import ClusterConfig


def mixed_policy(template: ec2.LaunchTemplate, config: ClusterConfig) -> autoscaling.MixedInstancesPolicy | None:
    """Return the policy for spot instances or several types; None if all workers are on-demand instances of one type.

    Spot prices are limited to the on-demand price.
    """
    if not config.spot and not config.worker_alternatives:
        return None
    types = config.worker_types if config.worker_alternatives else ()
    return autoscaling.MixedInstancesPolicy(
        launch_template=template,
        launch_template_overrides=[
            autoscaling.LaunchTemplateOverrides(instance_type=ec2.InstanceType(each)) for each in types
        ]
        or None,
        instances_distribution=autoscaling.InstancesDistribution(
            on_demand_allocation_strategy=on_demand_strategy(config.on_demand_allocation) if types else None,
            on_demand_base_capacity=config.on_demand_workers if config.spot else None,
            on_demand_percentage_above_base_capacity=0 if config.spot else 100,
            spot_allocation_strategy=spot_strategy(config.spot_allocation) if config.spot else None,
        ),
    )


def spot_strategy(name: str) -> autoscaling.SpotAllocationStrategy:
    """Return the CDK's value for a value of `spot_allocation`."""
    return autoscaling.SpotAllocationStrategy[name.upper().replace("-", "_")]


def on_demand_strategy(name: str) -> autoscaling.OnDemandAllocationStrategy:
    """Return the CDK's value for a value of `on_demand_allocation`."""
    return autoscaling.OnDemandAllocationStrategy[name.upper().replace("-", "_")]


def reserve(template: ec2.LaunchTemplate, config: ClusterConfig) -> None:
    """Make a template launch instances only into the configured reservation. Do nothing if none is configured.

    If it is a capacity block, also set the template's market type. The construct has no property for reservations.
    """
    given = config.capacity_reservation
    if not given:
        return
    kind = "CapacityReservationResourceGroupArn" if given.startswith("arn:") else "CapacityReservationId"
    data, resource = "LaunchTemplateData", cast(ec2.CfnLaunchTemplate, template.node.default_child)
    resource.add_property_override(f"{data}.CapacityReservationSpecification.CapacityReservationTarget.{kind}", given)
    if config.capacity_block:
        resource.add_property_override(f"{data}.InstanceMarketOptions.MarketType", "capacity-block")
