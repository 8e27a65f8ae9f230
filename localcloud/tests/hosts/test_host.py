"""Names, firmware ids, results of user data, and files of hosts."""

from __future__ import annotations

import dataclasses
import uuid

from localcloud.hosts.host import firmware_id, hostname, read_result
from localcloud.hosts.images import Image
from localcloud.hosts.namespace_host import GuestFile, files
from testbed import WORKER, snapshot

SUBNET = snapshot().subnets[1]
MACHINE = Image(lower=(), boot="boot_machine", environment={})
DEBIAN = dataclasses.replace(MACHINE, boot="boot_cloud_init", accounts=False)


def found(image: Image = MACHINE, **changes: object) -> dict[str, GuestFile]:
    instance = dataclasses.replace(WORKER, **changes)  # type: ignore[arg-type]
    return {file.path: file for file in files(instance, SUBNET, image)}


def content(path: str, **changes: object) -> str:
    return found(MACHINE, **changes)[path].content.decode()


def test_host_is_named_after_its_address() -> None:
    assert content("etc/hostname") == "ip-10-0-1-10\n"
    assert "10.0.1.10 ip-10-0-1-10.ec2.internal ip-10-0-1-10\n" in content("etc/hosts")


def test_only_key_pair_can_log_in() -> None:
    key = "ssh-ed25519 AAAA me"
    assert content("home/ec2-user/.ssh/authorized_keys", public_key=key) == f"{key}\n"
    assert not any("authorized_keys" in path for path in found())


def test_user_data_is_kept_byte_by_byte() -> None:
    file = found(user_data=b"#!/bin/sh\n\xff")["var/lib/cloud/instance/user-data.txt"]
    assert (file.content, file.mode) == (b"#!/bin/sh\n\xff", 0o700)


def test_cloud_init_image_gets_network_and_firmware_only() -> None:
    files = found(DEBIAN, public_key="ssh-ed25519 AAAA me", user_data=b"#!/bin/sh\n")
    assert set(files) == {"etc/resolv.conf", "run/localcloud/network", "run/localcloud/firmware-id"}
    assert files["run/localcloud/firmware-id"].content.decode() == f"{firmware_id(WORKER.id)}\n"


def test_a_host_is_named_after_its_address() -> None:
    assert hostname("10.0.1.10") == "ip-10-0-1-10"


def test_firmware_id_begins_with_ec2_and_differs_by_instance() -> None:
    assert firmware_id("i-1").startswith("ec2")
    assert uuid.UUID(firmware_id("i-1")) != uuid.UUID(firmware_id("i-2"))
    assert firmware_id("i-1") == firmware_id("i-1")


def test_result_of_user_data_is_read_from_the_console() -> None:
    assert read_result("boot\ncloud-init: user data ended with exit code 3\n") == 3
    assert read_result("boot\r\ncloud-init: user data ended with exit code 0\r\n") == 0, "a serial line's line ends"
    assert read_result("boot\nwork\n") is None
    assert read_result("say cloud-init: user data ended with exit code 3\n") is None
