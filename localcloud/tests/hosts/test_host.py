"""What every host has, of whatever it is made."""

from __future__ import annotations

import uuid

from localcloud.hosts.host import firmware_id, hostname, read_result


def test_a_host_is_named_after_its_address() -> None:
    assert hostname("10.0.1.10") == "ip-10-0-1-10"


def test_the_firmware_names_ec2_and_the_instance() -> None:
    assert firmware_id("i-1").startswith("ec2")
    assert uuid.UUID(firmware_id("i-1")) != uuid.UUID(firmware_id("i-2"))
    assert firmware_id("i-1") == firmware_id("i-1")


def test_result_of_user_data_is_read_from_the_console() -> None:
    assert read_result("boot\ncloud-init: user data ended with exit code 3\n") == 3
    assert read_result("boot\r\ncloud-init: user data ended with exit code 0\r\n") == 0, "a serial line's line ends"
    assert read_result("boot\nwork\n") is None
    assert read_result("say cloud-init: user data ended with exit code 3\n") is None
