"""What the name of an image parameter tells."""

from __future__ import annotations

import pytest

from stacks.images import architecture, root_device

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
def test_the_architecture_is_told_or_not(parameter: str, told: str) -> None:
    assert architecture(parameter) == told


@pytest.mark.parametrize(
    ("parameter", "device"),
    [("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64", "/dev/xvda"), (UBUNTU, "/dev/sda1")],
)
def test_the_root_device_follows_the_publisher(parameter: str, device: str) -> None:
    assert root_device(parameter) == device
