"""A cluster on a Debian root file system: cloud-init takes the user data, and apt uses the NAT gateway."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.conftest import EmbeddedCloud, start_cloud
from tests.waiting import eventually
from tools import demo

IMAGE: Final = "debian-12"
SEMAPHORES: Final = "/var/lib/cloud/instance/sem"
"""One file for each cloud-init module that has run on this instance."""
PER_BOOT: Final = "/var/lib/cloud/scripts/per-boot/counts"
TIMEOUT_S: Final = 600.0
"""For the start, which creates the root once per machine, for the deployment and for the training."""


@pytest.fixture(scope="module")
def debian() -> Iterator[EmbeddedCloud]:
    """Deploy a worker on Debian and train on it for an epoch."""
    with start_cloud(f"debian{os.getpid()}", "--image", IMAGE, timeout_s=TIMEOUT_S) as cloud:
        settings = demo.settings(1, IMAGE)
        cloud.fab("up", "--yes", *settings, timeout_s=TIMEOUT_S)
        digits = ("--nodes", "1", "--recipe", "digits", "--epochs", "1")
        cloud.fab("train", *digits, "--yes", *settings, timeout_s=TIMEOUT_S)
        yield cloud


def on(cloud: EmbeddedCloud, instance_id: str, script: str) -> str:
    """Run a shell script as root in a host; return its output."""
    return cloud.on(instance_id, "bash", "-c", script).stdout


def ids(cloud: EmbeddedCloud) -> list[str]:
    return [instance["InstanceId"] for role in ("master", "worker") for instance in cloud.instances(role)]


def test_every_node_runs_debian_and_was_made_a_node_by_cloud_init(debian: EmbeddedCloud) -> None:
    assert len(ids(debian)) == 2
    for instance in ids(debian):
        assert "bookworm" in on(debian, instance, "cat /etc/os-release")
        result = on(debian, instance, "cat /run/cloud-init/result.json")
        assert ("DataSourceEc2" in result, '"errors": []' in result) == (True, True), result
        assert "config_scripts_user" in on(debian, instance, f"ls {SEMAPHORES}")
        assert on(debian, instance, "id -un 1000").strip() == "admin"


def test_what_the_image_lacks_came_by_apt_through_the_nat_gateway(debian: EmbeddedCloud) -> None:
    for instance in ids(debian):
        asked = "dpkg-query --show --showformat='${Status}' nfs-common"
        assert on(debian, instance, asked) == "install ok installed"


def test_a_reboot_mounts_and_runs_what_each_boot_runs_and_not_the_user_data(debian: EmbeddedCloud) -> None:
    worker = debian.instances("worker")[0]["InstanceId"]
    on(debian, worker, f"printf '#!/bin/sh\\necho boot >>/root/boots\\n' >{PER_BOOT}; chmod 755 {PER_BOOT}")
    before = on(debian, worker, f"stat -c %Y {SEMAPHORES}/config_scripts_user")
    debian.aws("ec2", "reboot-instances", "--instance-ids", worker)
    ready = "cat /root/boots && mountpoint /mnt/efs && pgrep -f 'registry watch'"
    look = (worker, "bash", "-c", ready)
    eventually(lambda: debian.on(*look, check=False).returncode == 0)
    assert on(debian, worker, f"stat -c %Y {SEMAPHORES}/config_scripts_user") == before
    assert on(debian, worker, "cat /root/boots") == "boot\n"
