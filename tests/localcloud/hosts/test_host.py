"""What tells one host from another."""

from __future__ import annotations

import dataclasses

from localcloud.hosts.host import domain, files, hostname, read_result
from tests.localcloud.testbed import WORKER, snapshot

SUBNET = snapshot().subnets[1]


def content(path: str, **changes: object) -> str:
    found = {f.path: f for f in files(dataclasses.replace(WORKER, **changes), SUBNET, "us-east-1")}  # type: ignore[arg-type]
    return found[path].content.decode()


def test_host_is_named_after_its_address() -> None:
    assert hostname("10.0.1.10") == "ip-10-0-1-10"
    assert content("etc/hostname") == "ip-10-0-1-10\n"
    assert "10.0.1.10 ip-10-0-1-10.ec2.internal ip-10-0-1-10\n" in content("etc/hosts")
    assert domain("eu-west-1") == "eu-west-1.compute.internal"


def test_key_pair_may_log_in_and_only_it() -> None:
    key = "ssh-ed25519 AAAA me"
    assert content("home/ec2-user/.ssh/authorized_keys", public_key=key) == f"{key}\n"
    paths = {file.path for file in files(WORKER, SUBNET, "us-east-1")}
    assert not any("authorized_keys" in path for path in paths)


def test_user_data_is_kept_byte_by_byte() -> None:
    found = {f.path: f for f in files(dataclasses.replace(WORKER, user_data=b"#!/bin/sh\n\xff"), SUBNET, "us-east-1")}
    assert found["var/lib/cloud/instance/user-data.txt"].content == b"#!/bin/sh\n\xff"
    assert found["var/lib/cloud/instance/user-data.txt"].mode == 0o700


def test_result_of_user_data_is_read_from_the_console() -> None:
    assert read_result("boot\ncloud-init: user data ended with exit code 3\n") == 3
    assert read_result("boot\nwork\n") is None
    assert read_result("say cloud-init: user data ended with exit code 3\n") is None
