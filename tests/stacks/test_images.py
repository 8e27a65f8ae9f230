"""Facts about an image that the name of its parameter reveals."""

from __future__ import annotations

import pytest

from stacks.images import architecture, choose, default, default_root_device, login_user
from stacks.instance_types import find

UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"


@pytest.mark.parametrize(
    ("parameter", "told"),
    [
        ("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64", "x86_64"),
        ("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64", "arm64"),
        (UBUNTU, "x86_64"),
        ("/my/aarch64/image", "arm64"),
        ("/my/image", ""),
        ("/my/x86_64-and-arm64/image", ""),
    ],
)
def test_architecture_of_an_image_may_be_unknown(parameter: str, told: str) -> None:
    assert architecture(parameter) == told


@pytest.mark.parametrize(
    ("instance_type", "parameter"),
    [
        ("c5.2xlarge", "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
        ("c7g.2xlarge", "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"),
        (
            "p5.48xlarge",
            "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
        ),
        (
            "g5g.xlarge",
            "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
        ),
        ("p3dn.24xlarge", ""),
        ("mac2.metal", ""),
        ("c99.large", ""),
    ],
)
def test_default_image_depends_on_processor_and_gpus(instance_type: str, parameter: str) -> None:
    assert default(find(instance_type)) == parameter


def test_given_image_is_used() -> None:
    assert choose("/my/image", "p5.48xlarge") == "/my/image"
    assert choose("", "c99.large").endswith("x86_64")


@pytest.mark.parametrize(
    ("parameter", "user"),
    [
        (UBUNTU, "ubuntu"),
        ("/aws/service/debian/release/13/latest/arm64", "admin"),
        ("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64", "ec2-user"),
        ("/my/image", "ec2-user"),
    ],
)
def test_login_user_depends_on_publisher(parameter: str, user: str) -> None:
    assert login_user(parameter) == user


@pytest.mark.parametrize(
    ("parameter", "device"),
    [("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64", "/dev/xvda"), (UBUNTU, "/dev/sda1")],
)
def test_default_root_device_depends_on_publisher(parameter: str, device: str) -> None:
    assert default_root_device(parameter) == device
