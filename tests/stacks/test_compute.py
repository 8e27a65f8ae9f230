"""Launch templates and Auto Scaling groups as properties of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.compute import efa_interfaces, least_percent
from stacks.config import CLUSTER_TAG, ROLE_TAG, ConfigError
from stacks.instance_types import find, names
from tests.stacks.clusters.template import Template

GROUPS = ("MasterGroup", "WorkerGroup")


def test_every_launch_template_belongs_to_a_group(template: Template) -> None:
    assert set(template.of("AWS::AutoScaling::AutoScalingGroup")) == set(GROUPS)
    assert len(template.of("AWS::EC2::LaunchTemplate")) == len(GROUPS)
    assert not template.of("AWS::AutoScaling::LaunchConfiguration")
    assert not template.of("AWS::EC2::Instance")


def test_the_metadata_service_demands_a_session_token_everywhere(template: Template) -> None:
    for item in template.of("AWS::EC2::LaunchTemplate").values():
        options = item["LaunchTemplateData"]["MetadataOptions"]
        assert options == {"HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1, "HttpTokens": "required"}


def test_every_volume_is_encrypted_gp3_and_goes_with_its_instance(template: Template) -> None:
    volumes = [
        mapping["Ebs"]
        for item in template.of("AWS::EC2::LaunchTemplate").values()
        for mapping in item["LaunchTemplateData"]["BlockDeviceMappings"]
    ]
    assert len(volumes) == len(GROUPS)
    for volume in volumes:
        assert (volume["Encrypted"], volume["VolumeType"], volume["DeleteOnTermination"]) == (True, "gp3", True)


def test_no_worker_has_a_public_address_and_the_master_has_one(template: Template) -> None:
    addresses = {
        group: [item["AssociatePublicIpAddress"] for item in template.template_of(group)["NetworkInterfaces"]]
        for group in GROUPS
    }
    assert addresses == {"MasterGroup": [True], "WorkerGroup": [False]}


def test_images_come_from_ssm_parameters(synthesise: Callable[..., Template]) -> None:
    template = synthesise(worker_image_parameter="/my/worker/image")
    for group, expected in (
        ("WorkerGroup", "/my/worker/image"),
        ("MasterGroup", "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
    ):
        parameter = template.document["Parameters"][template.template_of(group)["ImageId"]["Ref"]]
        assert parameter["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
        assert parameter["Default"] == expected


def test_an_image_by_id_stands_in_the_template_with_its_own_root_device(synthesise: Callable[..., Template]) -> None:
    template = synthesise(
        worker_image_id="ami-0123456789abcdef0", worker_root_device="/dev/sda1", login_user="ubuntu", workers=1
    )
    data = template.template_of("WorkerGroup")
    assert data["ImageId"] == "ami-0123456789abcdef0"
    assert [mapping["DeviceName"] for mapping in data["BlockDeviceMappings"]] == ["/dev/sda1"]
    assert "Ref" in template.template_of("MasterGroup")["ImageId"]
    assert "export DEEPCDK_LOGIN_USER=ubuntu\n" in template.user_data("WorkerGroup")


def test_volumes_are_as_fast_as_asked_and_no_faster_by_default(synthesise: Callable[..., Template]) -> None:
    asked = synthesise(worker_volume_gib=200, worker_volume_iops=80000, worker_volume_mib_s=2000)
    (worker,) = asked.template_of("WorkerGroup")["BlockDeviceMappings"]
    (master,) = asked.template_of("MasterGroup")["BlockDeviceMappings"]
    assert (worker["Ebs"]["Iops"], worker["Ebs"]["Throughput"]) == (80000, 2000)
    assert not {"Iops", "Throughput"} & set(master["Ebs"])


def test_there_is_one_master_and_as_many_workers_as_asked(synthesise: Callable[..., Template]) -> None:
    template = synthesise(workers=3, max_workers=5)
    sizes = {
        id: tuple(int(item[key]) for key in ("MinSize", "DesiredCapacity", "MaxSize"))
        for id, item in template.of("AWS::AutoScaling::AutoScalingGroup").items()
    }
    assert sizes == {"MasterGroup": (1, 1, 1), "WorkerGroup": (0, 3, 5)}


def test_the_stack_waits_for_a_signal_from_each_node(synthesise: Callable[..., Template]) -> None:
    template = synthesise(workers=3, max_workers=5)
    for group, count in (("MasterGroup", 1), ("WorkerGroup", 3)):
        signals = template.resources[group]["CreationPolicy"]["ResourceSignal"]
        assert signals == {"Count": count, "Timeout": "PT15M"}


def test_a_later_deployment_keeps_the_size_to_which_a_training_grew_the_group(template: Template) -> None:
    policy = template.resources["WorkerGroup"]["UpdatePolicy"]
    assert policy == {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}


@given(wanted=st.integers(1, 1000), least=st.integers(1, 1000))
def test_a_percentage_stands_for_the_least_number_of_nodes_and_for_none_fewer(wanted: int, least: int) -> None:
    least = min(least, wanted)
    percent = least_percent(least, wanted)
    stands_for = math.ceil(wanted * percent / 100)
    assert 1 <= percent <= 100
    assert least <= stands_for <= least + wanted // 100
    assert wanted > 100 or stands_for == least


def test_some_workers_suffice_where_the_policy_says_so(synthesise: Callable[..., Template]) -> None:
    template = synthesise(workers=16, capacity_policy="at-least 15")
    assert template.resources["WorkerGroup"]["CreationPolicy"] == {
        "AutoScalingCreationPolicy": {"MinSuccessfulInstancesPercent": 88},
        "ResourceSignal": {"Count": 16, "Timeout": "PT15M"},
    }
    assert "AutoScalingCreationPolicy" not in template.resources["MasterGroup"]["CreationPolicy"]


@pytest.mark.parametrize(("group", "batch"), [("MasterGroup", 1), ("WorkerGroup", 3)])
def test_a_rolling_update_replaces_nodes_in_batches_that_report(
    group: str, batch: int, synthesise: Callable[..., Template]
) -> None:
    policy = synthesise(update_policy="rolling", update_batch=3, workers=0).resources[group]["UpdatePolicy"]
    rolling = policy["AutoScalingRollingUpdate"]
    assert (rolling["MaxBatchSize"], rolling["MinInstancesInService"]) == (batch, 0)
    assert (rolling["WaitOnResourceSignals"], rolling["PauseTime"]) == (True, "PT15M")
    assert {"HealthCheck", "ReplaceUnhealthy"} <= set(rolling["SuspendProcesses"])
    assert policy["AutoScalingScheduledAction"] == {"IgnoreUnmodifiedGroupSizeProperties": True}


def test_workers_alone_get_a_notice_before_their_group_ends_them(synthesise: Callable[..., Template]) -> None:
    template = synthesise(termination_notice_s=120)
    (hook,) = template.of("AWS::AutoScaling::LifecycleHook").values()
    assert hook == {
        "AutoScalingGroupName": {"Ref": "WorkerGroup"},
        "DefaultResult": "CONTINUE",
        "HeartbeatTimeout": 120,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    }


def test_scripts_come_with_what_was_asked_for(synthesise: Callable[..., Template], template: Template) -> None:
    asked = synthesise(worker_instance_type="c5d.2xlarge", scratch_mount="/mnt/scratch", spot=True)
    assert "export DEEPCDK_SCRATCH=/mnt/scratch\n" in asked.user_data("WorkerGroup")
    assert "for name in registry worker scratch notice node; do" in asked.user_data("WorkerGroup")
    assert "for name in registry master shared node; do" in asked.user_data("MasterGroup")
    assert "for name in registry worker node; do" in template.user_data("WorkerGroup")
    warned = synthesise(termination_notice_s=120).user_data("WorkerGroup")
    assert "for name in registry worker notice node; do" in warned


def test_there_is_no_placement_group_unless_asked_for(template: Template) -> None:
    assert not template.of("AWS::EC2::PlacementGroup")
    assert all("Placement" not in template.template_of(group) for group in GROUPS)


def test_workers_alone_are_placed_near_each_other(synthesise: Callable[..., Template]) -> None:
    template = synthesise(placement_group=True)
    group = template.only("AWS::EC2::PlacementGroup")
    assert template.of("AWS::EC2::PlacementGroup")[group]["Strategy"] == "cluster"
    assert template.template_of("WorkerGroup")["Placement"] == {"GroupName": {"Ref": group}}
    assert "Placement" not in template.template_of("MasterGroup")


def test_spot_workers_come_from_the_roomiest_pools_after_those_that_are_on_demand(
    synthesise: Callable[..., Template],
) -> None:
    template = synthesise(spot=True, on_demand_workers=1, workers=4)
    group = template.resources["WorkerGroup"]
    assert group["Properties"]["MixedInstancesPolicy"]["InstancesDistribution"] == {
        "OnDemandBaseCapacity": 1,
        "OnDemandPercentageAboveBaseCapacity": 0,
        "SpotAllocationStrategy": "capacity-optimized",
    }
    assert "LaunchTemplate" not in group["Properties"]
    assert template.template_of("WorkerGroup")["InstanceType"] == "c5.2xlarge"
    assert group["CreationPolicy"]["ResourceSignal"]["Count"] == 4


@pytest.mark.parametrize("rebalanced", [False, True])
def test_workers_alone_are_replaced_when_aws_recommends_it_and_that_was_asked_for(
    synthesise: Callable[..., Template], rebalanced: bool
) -> None:
    template = synthesise(spot=True, capacity_rebalance=rebalanced, termination_notice_s=120)
    found = {
        name: template.resources[name]["Properties"].get("CapacityRebalance") for name in ("WorkerGroup", "MasterGroup")
    }
    assert found == {"WorkerGroup": True if rebalanced else None, "MasterGroup": None}


def test_the_master_is_never_a_spot_instance(synthesise: Callable[..., Template]) -> None:
    assert "MixedInstancesPolicy" not in synthesise(spot=True).resources["MasterGroup"]["Properties"]


def test_without_spot_no_worker_is_a_spot_instance(template: Template) -> None:
    assert "MixedInstancesPolicy" not in template.text()


@pytest.mark.parametrize(
    ("instance_type", "devices", "first_card"),
    [
        ("p4d.24xlarge", 4, 0),
        ("p5.48xlarge", 32, 0),
        ("p5en.48xlarge", 16, 0),
        ("p6-b200.48xlarge", 8, 0),
        ("p6-b300.48xlarge", 16, 1),
        ("c5n.18xlarge", 1, 0),
    ],
)
def test_efa_takes_every_device_of_the_type_beside_one_interface_with_an_address(
    instance_type: str, devices: int, first_card: int
) -> None:
    primary, *others = efa_interfaces(instance_type)
    assert (primary["NetworkCardIndex"], primary["DeviceIndex"], primary["InterfaceType"]) == (0, 0, "interface")
    assert {each["InterfaceType"] for each in others} == {"efa-only"}
    assert [each["NetworkCardIndex"] for each in others] == list(range(first_card, first_card + devices))
    places = [(each["NetworkCardIndex"], each["DeviceIndex"]) for each in (primary, *others)]
    assert len(set(places)) == devices + 1
    assert all(device == (0 if card else 1) for card, device in places[1:])


def test_every_type_with_efa_has_a_layout_and_no_other_has() -> None:
    for kind in filter(None, map(find, names())):
        if kind.efa_interfaces:
            assert len(efa_interfaces(kind.name)) == kind.efa_interfaces + 1
        else:
            with pytest.raises(ConfigError, match="has no EFA devices"):
                efa_interfaces(kind.name)


def test_efa_workers_have_their_devices_in_the_workers_group_and_in_one_placement_group(
    synthesise: Callable[..., Template],
) -> None:
    template = synthesise(worker_instance_type="p5.48xlarge", efa=True)
    workers = template.group_behind("Each other and the master")
    data = template.template_of("WorkerGroup")
    assert len(data["NetworkInterfaces"]) == 33
    for interface in data["NetworkInterfaces"]:
        assert [group["Fn::GetAtt"][0] for group in interface["Groups"]] == [workers]
        assert "AssociatePublicIpAddress" not in interface
    assert data["Placement"] == {"GroupName": {"Ref": template.only("AWS::EC2::PlacementGroup")}}
    assert {("in", workers, workers, "-1", -1, -1), ("out", workers, workers, "-1", -1, -1)} <= template.rules()
    assert len(template.template_of("MasterGroup")["NetworkInterfaces"]) == 1


def test_without_workers_there_is_nothing_to_wait_for(synthesise: Callable[..., Template]) -> None:
    group = synthesise(workers=0).resources["WorkerGroup"]
    assert "CreationPolicy" not in group
    assert group["Properties"]["DesiredCapacity"] == "0"


@pytest.mark.parametrize("group", GROUPS)
def test_instances_are_found_by_their_tags(template: Template, group: str) -> None:
    tags = {item["Key"]: item for item in template.resources[group]["Properties"]["Tags"]}
    assert all(item["PropagateAtLaunch"] for item in tags.values())
    role = "master" if group == "MasterGroup" else "worker"
    assert {key: item["Value"] for key, item in tags.items()} == {
        CLUSTER_TAG: "deepcdk",
        ROLE_TAG: role,
        "Name": f"deepcdk-{role}",
    }


@pytest.mark.parametrize("group", GROUPS)
def test_no_node_starts_before_its_way_out_its_rules_and_the_mount_target(template: Template, group: str) -> None:
    needed = {template.resources[id]["Type"] for id in template.resources[group]["DependsOn"]}
    assert needed >= {
        "AWS::EC2::Route",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EFS::MountTarget",
        "AWS::IAM::Policy",
    }


def test_user_data_signals_the_group_that_it_belongs_to(template: Template) -> None:
    for group, role in (("MasterGroup", "master"), ("WorkerGroup", "worker")):
        settings = template.user_data(group).split("mkdir", 1)[0]
        assert f"export DEEPCDK_GROUP={group}\n" in settings
        assert f"export DEEPCDK_ROLE={role}\n" in settings
        assert "export DEEPCDK_STACK='${AWS::StackName}'\n" in settings
        assert "${FileSystem}.efs.${AWS::Region}.${AWS::URLSuffix}" in settings


def test_the_encrypted_volume_is_the_root_volume_of_the_image(synthesise: Callable[..., Template]) -> None:
    ubuntu = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
    template = synthesise(worker_image_parameter=ubuntu)
    devices = {
        group: [mapping["DeviceName"] for mapping in template.template_of(group)["BlockDeviceMappings"]]
        for group in GROUPS
    }
    assert devices == {"MasterGroup": ["/dev/xvda"], "WorkerGroup": ["/dev/sda1"]}
