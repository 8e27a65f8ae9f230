"""Validation before any cost: one pass reports every problem, each with its fix."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.config import ClusterConfig, ConfigError
from stacks.cross_key_checks import InvalidClusterError, Problem, cautions, check, images, validate
from stacks.instance_types import names

TOPIC = "arn:aws:sns:us-east-1:123456789012:ops"
SSH_CIDR = "198.18.0.7/32"
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
OPEN = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"


def build(**values: Any) -> ClusterConfig:
    return ClusterConfig.from_context({"cluster": {"ssh_cidr": SSH_CIDR, **values}})


def problems(**values: Any) -> list[Problem]:
    return list(check(build(**values)))


def keys(**values: Any) -> list[str]:
    return [problem.key for problem in problems(**values)]


def test_all_problems_are_listed_with_key_value_rule_and_fix() -> None:
    with pytest.raises(InvalidClusterError) as caught:
        validate(
            build(
                worker_instance_type="c5.2xlage",
                master_instance_type="t4g.medium",
                master_image_parameter=AL2023 + "x86_64",
                vpc_cidr="10.0.0.0/24",
                max_workers=100,
                ssh_cidr="10.0.0.9/32",
            )
        )
    assert [problem.key for problem in caught.value.problems] == [
        "worker_instance_type",
        "master_image_parameter",
        "max_workers",
        "vpc_cidr",
    ]
    said = str(caught.value)
    assert said.startswith("4 problems in the configuration; nothing was deployed\n")
    for problem in caught.value.problems:
        assert f"cluster.{problem.key} = {problem.value!r}: {problem.rule}" in said
        assert f"do: {problem.remedy}" in said
    assert isinstance(caught.value, ConfigError)


def test_unknown_type_is_rejected_with_nearest_type_and_date_of_table() -> None:
    (problem,) = problems(worker_instance_type="c5.2xlage")
    assert problem.key == "worker_instance_type"
    assert "the nearest is c5.2xlarge" in problem.rule
    assert "written 20" in problem.rule
    assert "python -m tools.instance_types" in problem.remedy


def test_unknown_type_can_be_allowed() -> None:
    image = AL2023 + "x86_64"
    allowed = {"worker_instance_type": "c99g.large", "allow_unknown_instance_types": True, "idle_cpu_percent": 5.0}
    assert not problems(worker_image_parameter=image, **allowed)
    # It is unknown which image would fit.
    assert keys(**allowed) == ["worker_image_parameter"]


@pytest.mark.parametrize(
    ("instance_type", "image", "fits"),
    [
        ("c7g.2xlarge", AL2023 + "arm64", True),
        ("c7g.2xlarge", AL2023 + "x86_64", False),
        ("c5.2xlarge", AL2023 + "arm64", False),
        ("c5.2xlarge", UBUNTU, True),
        ("c7g.2xlarge", UBUNTU, False),
        ("c7g.2xlarge", "/my/own/image", True),
    ],
)
def test_image_name_must_match_the_processor(instance_type: str, image: str, fits: bool) -> None:
    config = build(worker_instance_type=instance_type, worker_image_parameter=image, login_user="ops")
    found = [problem.key for problem in images.check(config)]
    assert found == ([] if fits else ["worker_image_parameter"])


@pytest.mark.parametrize(
    ("key", "value", "without", "remedy"),
    [
        ("idle_cpu_percent", 2.0, {"idle_minutes": 0}, "set idle_minutes"),
        ("budget_emails", ("ops@example.com",), {}, "set budget_usd"),
        ("alarm_emails", ("ops@example.com",), {}, "set alarms = true"),
        ("alarm_topic", TOPIC, {}, "set alarms = true"),
        *(
            (key, value, {}, "set fsx_capacity_gib to 1200 or more")
            for key, value in (("fsx_deployment", "PERSISTENT_2"), ("fsx_mount", "/fast"), ("fsx_s3", "s3://bucket"))
        ),
        ("on_demand_allocation", "lowest-price", {}, "set worker_alternatives"),
        ("on_demand_workers", 1, {}, "set spot = true"),
        ("spot_allocation", "lowest-price", {}, "set spot = true"),
        ("capacity_rebalance", True, {"termination_notice_s": 120}, "set spot = true"),
        ("efs_throughput_mibps", 128, {}, "set efs_throughput = provisioned"),
        ("bucket_expire_versions_days", 14, {"bucket_versioning": False}, "set bucket_versioning = true"),
    ],
)
def test_key_without_effect_is_a_problem(key: str, value: Any, without: dict[str, Any], remedy: str) -> None:
    (problem,) = problems(**{key: value}, **without)
    assert (problem.key, problem.value, problem.remedy) == (key, value, f"{remedy}, or remove {key}")
    assert problem.rule.startswith("has no effect with")
    assert not problems(**without)


@pytest.mark.parametrize(
    "values",
    [
        {"idle_minutes": 30, "idle_cpu_percent": 2.0},
        {"budget_usd": 5.0, "budget_emails": ("ops@example.com",)},
        {"alarms": True, "alarm_emails": ("ops@example.com",), "alarm_topic": TOPIC},
        {"spot": True, "on_demand_workers": 1, "spot_allocation": "lowest-price"},
        {"worker_alternatives": ("c5.4xlarge",), "on_demand_allocation": "lowest-price"},
        {"bucket_versioning": False, "bucket_expire_versions_days": 0},
        {"bucket_expire_versions_days": 14},
    ],
)
def test_key_with_effect_is_no_problem(values: dict[str, Any]) -> None:
    assert not problems(**values)


def test_workers_at_risk_are_replaced_early_only_on_spot_with_notice() -> None:
    assert not problems(spot=True, capacity_rebalance=True, termination_notice_s=120)
    (problem,) = problems(spot=True, capacity_rebalance=True)
    assert problem.rule.endswith("without a notice their ranks write no checkpoint")


def test_alternatives_have_same_processor_and_gpus_and_are_unique() -> None:
    def rules(*alternatives: str, first: str = "g5.xlarge", **more: Any) -> list[str]:
        found = problems(worker_instance_type=first, worker_alternatives=alternatives, **more)
        assert {problem.key for problem in found} <= {"worker_alternatives"}
        return [problem.rule for problem in found]

    assert rules("g5.2xlarge", "g5.4xlarge") == []
    assert rules("g6.xlarge") == ["has 1 L4 GPUs, g5.xlarge has 1 A10G GPUs"]
    assert rules("g5.12xlarge") == ["has 4 A10G GPUs, g5.xlarge has 1 A10G GPUs"]
    assert rules("c5.4xlarge") == ["has no GPUs, g5.xlarge has 1 A10G GPUs"]
    assert rules("c7g.4xlarge", first="c5.4xlarge") == ["has arm64 processors, c5.4xlarge has x86_64"]
    assert rules("g5.2xlarge", "g5.2xlarge") == ["is already worker_instance_type or an earlier alternative"]
    assert rules("g5.xlarge") == ["is already worker_instance_type or an earlier alternative"]
    assert "not in the table of instance types" in rules("g5.hugelarge")[0]
    assert rules("p5e.48xlarge", first="p5.48xlarge") != []
    assert "EFA devices in a different layout" in rules("c5n.18xlarge", first="c6in.32xlarge", efa=True)[0]


def test_auto_scaling_group_has_at_most_forty_types() -> None:
    plain = [name for name in names() if not problems(worker_instance_type="c5.large", worker_alternatives=(name,))]
    assert not problems(worker_instance_type="c5.large", worker_alternatives=tuple(plain[:39]))
    (problem,) = problems(worker_instance_type="c5.large", worker_alternatives=tuple(plain[:40]))
    assert "at most 40 types" in problem.rule


def test_placement_group_must_be_supported_by_every_type() -> None:
    assert keys(worker_alternatives=("t3.2xlarge",), placement_group=True) == ["placement_group"]


RESERVATION = {"capacity_reservation": "cr-0123456789abcdef0"}
POOL = {"capacity_reservation": "arn:aws:resource-groups:us-east-1:123456789012:group/ours"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (RESERVATION, []),
        (POOL, []),
        (RESERVATION | {"placement_group": True}, []),
        (RESERVATION | {"spot": True}, ["capacity_reservation"]),
        (RESERVATION | {"worker_alternatives": ("c5.4xlarge",)}, ["capacity_reservation"]),
        (POOL | {"worker_alternatives": ("c5.4xlarge",)}, []),
        (RESERVATION | {"availability_zones": 2}, ["availability_zones"]),
        (POOL | {"availability_zones": 2}, []),
        ({"capacity_block": True}, ["capacity_block"]),
        (POOL | {"capacity_block": True}, ["capacity_block"]),
        (RESERVATION | {"capacity_block": True}, []),
        (RESERVATION | {"capacity_block": True, "placement_group": True}, ["placement_group"]),
        (RESERVATION | {"capacity_block": True, "worker_instance_type": "p5.48xlarge", "efa": True}, []),
    ],
)
def test_reservation_requires_one_on_demand_type_in_one_zone(values: dict[str, Any], expected: list[str]) -> None:
    assert keys(**values) == expected


def test_minimum_of_capacity_policy_cannot_exceed_workers() -> None:
    assert not problems(workers=2, capacity_policy="at-least 2")
    assert keys(workers=2, capacity_policy="at-least 3") == ["capacity_policy"]
    assert build(capacity_policy="at-least 12").least_workers == 12
    assert build().least_workers == 0


def test_scratch_requires_disks_on_every_type_and_its_own_directory() -> None:
    disks = {"worker_instance_type": "c5d.2xlarge", "scratch_mount": "/mnt/scratch"}
    assert not problems(**disks)
    assert keys(scratch_mount="/mnt/scratch") == ["scratch_mount"]
    assert keys(**disks, worker_alternatives=("c5.2xlarge",)) == ["scratch_mount"]
    assert keys(**disks, efs_mount="/mnt/scratch") == ["scratch_mount"]
    assert keys(**disks, efs_mount="/mnt/scratch/efs") == ["scratch_mount"]
    assert keys(**disks, fsx_capacity_gib=1200, fsx_mount="/mnt/scratch/fsx") == ["scratch_mount"]
    with pytest.raises(ConfigError, match="a system directory"):
        build(**{**disks, "scratch_mount": "/opt/deepcdk"})
    assert not problems(**disks, efs_mount="/mnt/scratches")


def test_gpus_unsupported_by_current_driver_require_another_image() -> None:
    (problem,) = problems(worker_instance_type="p3dn.24xlarge")
    assert problem.key == "worker_image_parameter"
    assert "no driver for the V100 GPUs" in problem.rule
    assert keys(worker_instance_type="p3dn.24xlarge", worker_image_parameter=OPEN) == ["worker_image_parameter"]
    assert not problems(worker_instance_type="p3dn.24xlarge", worker_image_parameter="/my/proprietary/driver")


def test_image_without_gpu_driver_is_rejected_for_gpu_types() -> None:
    (problem,) = problems(worker_instance_type="g5.xlarge", worker_image_parameter=AL2023 + "x86_64")
    assert "1 GPUs of g5.xlarge would be idle" in problem.rule
    assert not problems(worker_instance_type="g5.xlarge")


def test_volume_must_be_large_enough_for_image() -> None:
    assert keys(worker_instance_type="g5.xlarge", worker_volume_gib=74) == ["worker_volume_gib"]
    assert not problems(worker_instance_type="g5.xlarge", worker_volume_gib=75)
    assert not problems(worker_volume_gib=8, master_volume_gib=8)


def test_image_id_requires_root_device_and_login_user() -> None:
    ami = "ami-0123456789abcdef0"
    assert keys(worker_image_id=ami) == ["worker_root_device", "login_user"]
    assert not problems(worker_image_id=ami, worker_root_device="/dev/sda1", login_user="ubuntu")
    assert keys(
        worker_image_id=ami, worker_root_device="/dev/sda1", login_user="ubuntu", worker_image_parameter="/my/own/image"
    ) == ["worker_image_id"]
    both = {f"{role}_{key}": value for role in ("worker", "master") for key, value in (("image_id", ami),)}
    assert keys(**both) == ["master_root_device", "worker_root_device", "login_user"]


def test_image_id_is_not_checked_by_parameter_name() -> None:
    values = {"worker_image_id": "ami-01234567", "worker_root_device": "/dev/xvda", "login_user": "ops"}
    assert not problems(worker_instance_type="p3dn.24xlarge", worker_volume_gib=8, **values)


@pytest.mark.parametrize("role", ["worker", "master"])
@given(
    gib=st.integers(8, 65536),
    iops=st.integers(3000, 80000),
    mib_s=st.integers(125, 2000),
)
def test_volume_limits_iops_per_gib_and_throughput_per_iops(role: str, gib: int, iops: int, mib_s: int) -> None:
    values = {f"{role}_volume_gib": gib, f"{role}_volume_iops": iops, f"{role}_volume_mib_s": mib_s}
    too_many = iops > 3000 and iops > 500 * gib
    too_fast = 4 * mib_s > iops
    expected = [f"{role}_volume_iops"] * too_many + [f"{role}_volume_mib_s"] * too_fast
    assert keys(**values) == expected


def test_fixes_for_volume_problems_work() -> None:
    (first, second) = problems(worker_volume_gib=8, worker_volume_iops=5000, worker_volume_mib_s=2000)
    assert "set worker_volume_gib to 10 or more" in first.remedy
    assert "set worker_volume_iops to 8000 or more" in second.remedy
    assert not problems(worker_volume_gib=16, worker_volume_iops=8000, worker_volume_mib_s=2000)


def test_all_nodes_must_have_same_login_user() -> None:
    assert keys(worker_image_parameter=UBUNTU) == ["login_user"]
    assert not problems(worker_image_parameter=UBUNTU, master_image_parameter=UBUNTU)
    assert not problems(worker_image_parameter=UBUNTU, login_user="ops")


def test_every_type_except_macs_and_oldest_gpus_has_a_default_image() -> None:
    refused = {name.partition(".")[0] for name in names() if list(images.check(build(worker_instance_type=name)))}
    assert {family for family in refused if not family.startswith("mac")} == {"p3dn"}


def test_placement_group_requires_supporting_type_and_one_zone() -> None:
    assert not problems(placement_group=True)
    assert keys(placement_group=True, worker_instance_type="t3.medium") == ["placement_group"]
    assert keys(placement_group=True, availability_zones=2) == ["availability_zones"]
    assert keys(placement_group=True, worker_instance_type="t3.medium", availability_zones=2) == [
        "placement_group",
        "availability_zones",
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"worker_instance_type": "p5.48xlarge"}, []),
        ({"worker_instance_type": "c5n.18xlarge"}, []),
        ({"worker_instance_type": "c5.2xlarge"}, ["efa"]),
        ({"worker_instance_type": "c5n.18xlarge", "availability_zones": 2}, ["availability_zones"]),
        (
            {"worker_instance_type": "t3.medium"},
            ["efa"],
        ),  # neither EFA nor the placement group that it implies, in one report
        ({"worker_instance_type": "vt1.24xlarge"}, ["efa"]),  # EFA, but no cluster placement groups
        ({"worker_instance_type": "c99.large", "allow_unknown_instance_types": True, "idle_minutes": 0}, ["efa"]),
    ],
)
def test_efa_requires_supporting_type_and_one_zone(values: dict[str, Any], expected: list[str]) -> None:
    assert [key for key in keys(efa=True, **values) if key != "worker_image_parameter"] == expected


def test_network_of_laptop_must_not_contain_the_vpc() -> None:
    assert keys(ssh_cidr="10.0.0.0/8") == ["vpc_cidr"]
    assert keys(ssh_cidr="10.1.0.0/16") == []


def test_open_ssh_cidr_is_allowed_with_ssh_from_anywhere() -> None:
    assert not problems(ssh_cidr="0.0.0.0/0", ssh_from_anywhere=True)


def test_validation_imports_no_third_party_package() -> None:
    heavy = "('aws_cdk', 'jsii', 'boto3', 'fabric')"
    program = f"import sys, stacks.cross_key_checks; print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("values", "minutes"),
    [
        ({}, 15),
        ({"worker_instance_type": "p4d.24xlarge"}, 30),
        ({"worker_alternatives": "p5en.48xlarge"}, 30),
        ({"worker_instance_type": "c5.metal"}, 30),
        ({"worker_instance_type": "m7i.metal-24xl"}, 30),
        ({"master_instance_type": "c5.metal"}, 30),
        ({"worker_instance_type": "c4.large"}, 30),
        ({"worker_instance_type": "p3.16xlarge", "allow_unknown_instance_types": True}, 30),
        ({"worker_instance_type": "p3dn.24xlarge"}, 15),
        ({"worker_instance_type": "p4d.24xlarge", "ready_timeout_min": 12}, 12),
    ],
)
def test_slowly_booting_types_have_30_minutes_by_default(values: dict[str, Any], minutes: int) -> None:
    assert build(**values).ready_min == minutes


@pytest.mark.parametrize(
    ("parameter", "release"),
    [
        (UBUNTU.replace("24.04", "22.04"), "Ubuntu 22.04 (Python 3.10)"),
        (UBUNTU.replace("24.04", "jammy"), "Ubuntu 22.04 (Python 3.10)"),
        (UBUNTU.replace("24.04", "26.04"), "Ubuntu 26.04 (Python 3.14)"),
        (UBUNTU.replace("24.04", "20.04"), "Ubuntu 20.04 (Python 3.8)"),
        ("/aws/service/debian/release/11/latest/amd64", "Debian 11 (Python 3.9)"),
        ("/aws/service/ami-amazon-linux-latest/amzn2-ami-hvm-x86_64-gp2", "Amazon Linux 2 (Python 3.7)"),
        ("/aws/service/ecs/optimized-ami/amazon-linux-2/gpu/recommended/image_id", "Amazon Linux 2 (Python 3.7)"),
        ("/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id", "Amazon Linux 2 (Python 3.7)"),
        (OPEN.replace("amazon-linux-2023", "amazon-linux-2"), "Amazon Linux 2 (Python 3.7)"),
        (OPEN.replace("amazon-linux-2023", "ubuntu-22.04"), "Ubuntu 22.04 (Python 3.10)"),
        ("/aws/service/ecs/optimized-ami/amazon-linux-2023/recommended/image_id", ""),
        (UBUNTU, ""),
        ("/aws/service/debian/release/12/latest/amd64", ""),
        ("/aws/service/debian/release/13/latest/amd64", ""),
        (AL2023 + "x86_64", ""),
        (OPEN, ""),
        ("/lab/image", ""),
    ],
)
def test_image_without_usable_python_is_rejected(parameter: str, release: str) -> None:
    both = problems(worker_image_parameter=parameter, master_image_parameter=parameter, login_user="ops")
    found = [problem for problem in both if "Python" in problem.rule]
    assert [problem.key for problem in found] == (
        ["master_image_parameter", "worker_image_parameter"] if release else []
    )
    assert all(release in problem.rule and "Ubuntu 24.04" in problem.remedy for problem in found)


@pytest.mark.parametrize("kind", ["t2.medium", "m4.large", "p3.2xlarge", "g3s.xlarge"])
def test_xen_is_rejected_for_master_and_warned_about_for_workers(kind: str) -> None:
    """Source: canonical/pycloudlib #193, where the console of a type on Xen takes up to 20 minutes."""
    allowed = {"allow_unknown_instance_types": True, "worker_image_parameter": "/lab/x", "login_user": "ec2-user"}
    (problem,) = problems(master_instance_type=kind, master_image_parameter="/lab/x", **allowed)
    assert problem.key == "master_instance_type"
    assert "runs on Xen" in problem.rule and "t3.medium" in problem.remedy
    workers = build(worker_instance_type=kind, idle_minutes=0, **allowed)
    assert list(check(workers)) == []
    (caution,) = [each for each in cautions(workers) if "Xen" in each.rule]
    assert (caution.key, caution.value) == ("worker_instance_type", kind)
    alternative = build(worker_alternatives=kind, idle_minutes=0, **allowed)
    assert [each.key for each in cautions(alternative) if "Xen" in each.rule] == ["worker_alternatives"]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (
            {"worker_instance_type": "p4d.24xlarge", "worker_volume_gib": 84},
            "worker_volume_gib = 84: the image takes up",
        ),
        ({"worker_instance_type": "p4d.24xlarge", "worker_volume_gib": 85}, ""),
        ({"worker_instance_type": "p4d.24xlarge"}, ""),
        ({"master_image_parameter": OPEN, "master_volume_gib": 78}, "master_volume_gib = 78: the image takes up"),
        ({"master_image_parameter": OPEN, "master_volume_gib": 79}, ""),
        ({"worker_volume_gib": 8, "master_volume_gib": 8}, ""),
    ],
)
def test_volume_nearly_filled_by_deep_learning_image_causes_warning(values: dict[str, Any], found: str) -> None:
    cautioned = [each.what for each in cautions(build(**values)) if "volume_gib" in each.key]
    assert (len(cautioned), found in "".join(cautioned)) == (bool(found), True)


def test_nitro_and_bare_metal_types_cause_no_warning() -> None:
    for kind in ("c5.large", "p3dn.24xlarge", "c5.metal"):
        assert "Xen" not in str([*cautions(build(worker_instance_type=kind)), *problems(master_instance_type=kind)])


def test_rolling_update_rejects_too_long_ready_timeout() -> None:
    assert keys(update_policy="rolling", ready_timeout_min=60) == keys(ready_timeout_min=720) == []
    (problem,) = problems(update_policy="rolling", ready_timeout_min=61)
    assert problem.key == "ready_timeout_min"
    assert "update_policy = rolling" in problem.rule and "update_policy = keep" in problem.remedy
