"""How the workers' group buys its instances, as the template says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stacks.config_keys.compute import ON_DEMAND_ALLOCATIONS, SPOT_ALLOCATIONS
from tests.stacks.clusters.template import Template

GPUS = {"worker_instance_type": "g5.xlarge", "worker_alternatives": ("g5.2xlarge", "g5.4xlarge")}
BLOCK = "cr-0123456789abcdef0"
POOL = "arn:aws:resource-groups:us-east-1:123456789012:group/ours"


def policy(template: Template) -> dict[str, Any]:
    found: dict[str, Any] = template.resources["WorkerGroup"]["Properties"]["MixedInstancesPolicy"]
    return found


def test_alternatives_follow_the_first_type_in_the_order_given(synthesise: Callable[..., Template]) -> None:
    found = policy(synthesise(**GPUS))
    types = [each["InstanceType"] for each in found["LaunchTemplate"]["Overrides"]]
    assert types == ["g5.xlarge", "g5.2xlarge", "g5.4xlarge"]
    assert found["InstancesDistribution"] == {
        "OnDemandAllocationStrategy": "prioritized",
        "OnDemandPercentageAboveBaseCapacity": 100,
    }


@pytest.mark.parametrize("strategy", SPOT_ALLOCATIONS)
def test_every_spot_strategy_reaches_the_template(strategy: str, synthesise: Callable[..., Template]) -> None:
    found = policy(synthesise(**GPUS, spot=True, on_demand_workers=1, spot_allocation=strategy))
    assert found["InstancesDistribution"]["SpotAllocationStrategy"] == strategy
    assert found["InstancesDistribution"]["OnDemandBaseCapacity"] == 1
    assert found["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 0


@pytest.mark.parametrize("strategy", ON_DEMAND_ALLOCATIONS)
def test_every_on_demand_strategy_reaches_the_template(strategy: str, synthesise: Callable[..., Template]) -> None:
    found = policy(synthesise(**GPUS, on_demand_allocation=strategy))
    assert found["InstancesDistribution"]["OnDemandAllocationStrategy"] == strategy


def test_the_master_buys_nothing_but_its_own_type_on_demand(synthesise: Callable[..., Template]) -> None:
    template = synthesise(**GPUS, spot=True)
    assert "MixedInstancesPolicy" not in template.resources["MasterGroup"]["Properties"]
    reserved = synthesise(capacity_reservation=BLOCK)
    assert "CapacityReservationSpecification" not in reserved.template_of("MasterGroup")


@pytest.mark.parametrize(
    ("given", "key"), [(BLOCK, "CapacityReservationId"), (POOL, "CapacityReservationResourceGroupArn")]
)
def test_workers_launch_into_their_reservation_alone(given: str, key: str, synthesise: Callable[..., Template]) -> None:
    data = synthesise(capacity_reservation=given).template_of("WorkerGroup")
    assert data["CapacityReservationSpecification"] == {"CapacityReservationTarget": {key: given}}
    assert "InstanceMarketOptions" not in data


def test_a_capacity_block_is_a_market_of_its_own_and_places_its_instances_itself(
    synthesise: Callable[..., Template],
) -> None:
    template = synthesise(worker_instance_type="p5.48xlarge", efa=True, capacity_reservation=BLOCK, capacity_block=True)
    data = template.template_of("WorkerGroup")
    assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert len(data["NetworkInterfaces"]) == 33
    assert "Placement" not in data
    assert not template.of("AWS::EC2::PlacementGroup")


def test_without_being_asked_no_template_names_a_reservation_or_a_market(template: Template) -> None:
    assert "CapacityReservation" not in template.text()
    assert "InstanceMarketOptions" not in template.text()
