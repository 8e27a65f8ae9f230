"""Groups launch several types, on-demand and spot, in order and within the capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.templates import Client, Stacks, mixed, nodes
from localcloud.api.autoscaling.instance_choice import choices, on_demand_of
from localcloud.api.cloud import Cloud


@pytest.fixture
def scarce(cloud: Cloud) -> Iterator[Cloud]:
    yield cloud
    for instance_type in ("c5.large", "m5.large"):
        cloud.limit(instance_type, None)


def bought(cloud: Cloud) -> Counter[tuple[str, bool]]:
    return Counter((instance.instance_type, instance.spot) for instance in cloud.snapshot().instances)


def activity(client: Client, group: str) -> dict[str, Any]:
    found: dict[str, Any] = client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"][
        0
    ]
    return found


@given(base=st.integers(0, 20), percent=st.integers(0, 100), size=st.integers(0, 60))
def test_single_launches_add_up_to_distribution(base: int, percent: int, size: int) -> None:
    distribution = {"OnDemandBaseCapacity": base, "OnDemandPercentageAboveBaseCapacity": percent}
    policy = {"InstancesDistribution": distribution, "LaunchTemplate": {}}
    on_spot: list[bool] = []
    for _ in range(size):
        (choice,) = choices(policy, on_spot)
        on_spot.append(choice.spot)
    assert on_spot.count(False) == on_demand_of(distribution, size)
    assert not any(on_spot[:base])


def test_base_is_on_demand_and_the_rest_on_spot(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    name = stacks.create(mixed(3, base=1))
    assert bought(cloud) == {("c5.large", False): 1, ("c5.large", True): 2}
    pages = client("ec2").describe_instances()["Reservations"]
    lifecycles = [instance.get("InstanceLifecycle", "") for page in pages for instance in page["Instances"]]
    assert sorted(lifecycles) == ["", "spot", "spot"]
    (group,) = client("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=[stacks.physical(name, "Nodes")]
    )["AutoScalingGroups"]
    assert "LaunchTemplate" not in group
    assert group["MixedInstancesPolicy"]["InstancesDistribution"]["OnDemandBaseCapacity"] == 1


def test_first_type_with_capacity_is_used(scarce: Cloud, stacks: Stacks) -> None:
    scarce.limit("c5.large", 1)
    stacks.create(mixed(3, "c5.large", "m5.large"))
    assert bought(scarce) == {("c5.large", True): 1, ("m5.large", True): 2}


def test_group_without_capacity_waits_and_reports_it(scarce: Cloud, client: Client, stacks: Stacks) -> None:
    scarce.limit("c5.large", 1)
    name = stacks.create(nodes(3))
    assert stacks.describe(name)["StackStatus"] == "CREATE_COMPLETE"
    assert len(scarce.snapshot().instances) == 1
    found = activity(client, stacks.physical(name, "Nodes"))
    assert found["StatusCode"] == "Failed"
    assert "do not have sufficient c5.large capacity" in found["StatusMessage"]
    scarce.limit("c5.large", None)
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=stacks.physical(name, "Nodes"), DesiredCapacity=3)
    assert len(scarce.snapshot().instances) == 3


def test_size_set_later_keeps_the_mix(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(mixed(1, base=1)), "Nodes")
    client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group, DesiredCapacity=3)
    assert bought(cloud) == {("c5.large", False): 1, ("c5.large", True): 2}


def test_change_from_one_type_to_a_mix_keeps_the_instances(cloud: Cloud, stacks: Stacks) -> None:
    resources = nodes(2)
    name = stacks.create(resources)
    before = {instance.id for instance in cloud.snapshot().instances}
    properties = resources["Nodes"]["Properties"]
    properties["MixedInstancesPolicy"] = {
        "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0},
        "LaunchTemplate": {"LaunchTemplateSpecification": properties.pop("LaunchTemplate")},
    }
    stacks.update(name, resources)
    assert stacks.describe(name)["StackStatus"] == "UPDATE_COMPLETE"
    assert {instance.id for instance in cloud.snapshot().instances} == before


def test_mixed_groups_instances_are_replaced_if_its_policy_requires_it(cloud: Cloud, stacks: Stacks) -> None:
    rolling = {"AutoScalingRollingUpdate": {"MaxBatchSize": 2, "MinInstancesInService": 0}}
    resources = mixed(2, UpdatePolicy=rolling)
    name = stacks.create(resources)
    before = {instance.id for instance in cloud.snapshot().instances}
    resources["Template"]["Properties"]["LaunchTemplateData"]["InstanceType"] = "m5.large"
    stacks.update(name, resources)
    after = cloud.snapshot().instances
    assert {instance.instance_type for instance in after} == {"m5.large"}
    assert not before & {instance.id for instance in after}
