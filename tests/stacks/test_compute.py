"""Launch templates and Auto Scaling groups, and how they purchase instances."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.compute import efa_interfaces, least_percent
from stacks.config import ConfigError
from stacks.config_keys.compute import ON_DEMAND_ALLOCATIONS, SPOT_ALLOCATIONS
from stacks.instance_types import find, names
from stacks.purchasing import on_demand_strategy, spot_strategy
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.conftest import BLOCK, POOL, UBUNTU, Variant

GROUPS = ("MasterGroup", "WorkerGroup")


def test_images_are_ssm_parameters_or_ids_with_their_root_device(variant: Variant) -> None:
    template = variant("own images")
    parameter = template.document["Parameters"][template.template_of("MasterGroup")["ImageId"]["Ref"]]
    assert (parameter["Type"], parameter["Default"]) == ("AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", UBUNTU)
    assert template.template_of("WorkerGroup")["ImageId"] == "ami-0123456789abcdef0"
    for group in GROUPS:
        (volume,) = template.template_of(group)["BlockDeviceMappings"]
        assert volume["DeviceName"] == "/dev/sda1"
        assert not {"Iops", "Throughput"} & set(volume["Ebs"]), "no faster than gp3 is by default"
        assert "export DEEPCDK_LOGIN_USER=ubuntu\n" in template.user_data(group)


def test_stack_has_one_master_and_requested_workers_and_waits_for_them(variant: Variant) -> None:
    template = variant("own images")
    sizes = {
        id: tuple(int(item[key]) for key in ("MinSize", "DesiredCapacity", "MaxSize"))
        for id, item in template.of("AWS::AutoScaling::AutoScalingGroup").items()
    }
    assert sizes == {"MasterGroup": (1, 1, 1), "WorkerGroup": (0, 16, 50)}
    assert {group: template.resources[group]["CreationPolicy"] for group in GROUPS} == {
        "MasterGroup": {"ResourceSignal": {"Count": 1, "Timeout": "PT15M"}},
        "WorkerGroup": {
            "AutoScalingCreationPolicy": {"MinSuccessfulInstancesPercent": 88},
            "ResourceSignal": {"Count": 16, "Timeout": "PT15M"},
        },
    }


@given(wanted=st.integers(1, 1000), least=st.integers(1, 1000))
def test_percentage_gives_at_least_the_minimum_number_of_nodes(wanted: int, least: int) -> None:
    least = min(least, wanted)
    percent = least_percent(least, wanted)
    stands_for = math.ceil(wanted * percent / 100)
    assert 1 <= percent <= 100
    assert least <= stands_for <= least + wanted // 100
    assert wanted > 100 or stands_for == least


@pytest.mark.parametrize(("group", "batch"), [("MasterGroup", 1), ("WorkerGroup", 3)])
def test_rolling_update_replaces_nodes_in_batches(group: str, batch: int, variant: Variant) -> None:
    rolling = variant("mixed types").resources[group]["UpdatePolicy"]["AutoScalingRollingUpdate"]
    assert (rolling["MaxBatchSize"], rolling["MinInstancesInService"]) == (batch, 0)


def test_stack_without_workers_waits_for_none(variant: Variant) -> None:
    group = variant("mixed types").resources["WorkerGroup"]
    assert "CreationPolicy" not in group
    assert group["Properties"]["DesiredCapacity"] == "0"


def test_spot_workers_follow_on_demand_workers_and_get_a_notice(inspected: Callable[[str], Inspected]) -> None:
    template = inspected("spot mixed").template
    workers, master = (template.resources[group]["Properties"] for group in ("WorkerGroup", "MasterGroup"))
    policy = workers["MixedInstancesPolicy"]
    assert policy["InstancesDistribution"] == {
        "OnDemandAllocationStrategy": "prioritized",
        "OnDemandBaseCapacity": 1,
        "OnDemandPercentageAboveBaseCapacity": 0,
        "SpotAllocationStrategy": "price-capacity-optimized",
    }
    types = [each["InstanceType"] for each in policy["LaunchTemplate"]["Overrides"]]
    assert types == ["g5.2xlarge", "g5.4xlarge", "g5.8xlarge"]
    assert (workers["CapacityRebalance"], "LaunchTemplate" in workers) == (True, False)
    assert not {"MixedInstancesPolicy", "CapacityRebalance"} & set(master)
    (hook,) = template.of("AWS::AutoScaling::LifecycleHook").values()
    assert hook == {
        "AutoScalingGroupName": {"Ref": "WorkerGroup"},
        "DefaultResult": "CONTINUE",
        "HeartbeatTimeout": 120,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    }
    assert "' registry firewall worker leftovers notice node || exit" in template.user_data("WorkerGroup")
    assert "' registry firewall master shared consoles node || exit" in template.user_data("MasterGroup")


def test_on_demand_alternatives_use_a_reservation_group(variant: Variant) -> None:
    template = variant("mixed types")
    distribution = template.resources["WorkerGroup"]["Properties"]["MixedInstancesPolicy"]["InstancesDistribution"]
    assert distribution == {
        "OnDemandAllocationStrategy": "lowest-price",
        "OnDemandPercentageAboveBaseCapacity": 100,
    }
    target = {"CapacityReservationTarget": {"CapacityReservationResourceGroupArn": POOL}}
    assert template.template_of("WorkerGroup")["CapacityReservationSpecification"] == target
    assert "CapacityReservationSpecification" not in template.template_of("MasterGroup")


def test_every_allocation_strategy_is_known_to_the_cdk() -> None:
    assert all(map(spot_strategy, SPOT_ALLOCATIONS))
    assert all(map(on_demand_strategy, ON_DEMAND_ALLOCATIONS))


def test_capacity_block_has_its_own_market_type_and_no_placement_group(variant: Variant) -> None:
    template = variant("GPU block")
    data = template.template_of("WorkerGroup")
    target = {"CapacityReservationTarget": {"CapacityReservationId": BLOCK}}
    assert data["CapacityReservationSpecification"] == target
    assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert "Placement" not in data
    assert not template.of("AWS::EC2::PlacementGroup")


@pytest.mark.parametrize(
    ("instance_type", "devices", "first_card"),
    [("p5.48xlarge", 32, 0), ("p6-b300.48xlarge", 16, 1), ("c5n.18xlarge", 1, 0)],
)
def test_efa_uses_every_device_and_one_interface_with_address(
    instance_type: str, devices: int, first_card: int
) -> None:
    primary, *others = efa_interfaces(instance_type)
    assert (primary["NetworkCardIndex"], primary["DeviceIndex"], primary["InterfaceType"]) == (0, 0, "interface")
    assert {each["InterfaceType"] for each in others} == {"efa-only"}
    assert [each["NetworkCardIndex"] for each in others] == list(range(first_card, first_card + devices))
    places = [(each["NetworkCardIndex"], each["DeviceIndex"]) for each in (primary, *others)]
    assert len(set(places)) == devices + 1
    assert all(device == (0 if card else 1) for card, device in places[1:])


def test_only_types_with_efa_have_a_layout() -> None:
    for kind in filter(None, map(find, names())):
        if kind.efa_interfaces:
            assert len(efa_interfaces(kind.name)) == kind.efa_interfaces + 1
        else:
            with pytest.raises(ConfigError, match="has no EFA devices"):
                efa_interfaces(kind.name)
