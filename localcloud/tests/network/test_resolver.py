"""The VPC's DNS resolver."""

from __future__ import annotations

import dataclasses
import struct

from hypothesis import given
from hypothesis import strategies as st

from localcloud.network.resolver import lookup, respond
from testbed import MASTER, OTHER, VPC, WORKER, WORKER_IP, snapshot

EFS = "fs-0123abcd.efs.us-east-1.amazonaws.com"


def question(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def find(name: str, asker: str = WORKER_IP) -> str:
    outside = {"packages.example.org": "198.18.255.129"}
    return lookup(snapshot(MASTER, WORKER, OTHER), VPC, name, asker, outside)


def test_instances_are_found_by_their_private_names() -> None:
    assert find("ip-10-0-1-11.ec2.internal") == "10.0.1.11"
    assert find("ip-10-0-9-9.ec2.internal") == ""


def test_file_system_is_found_in_the_askers_zone() -> None:
    assert find(EFS) == "10.0.1.200"
    elsewhere = dataclasses.replace(WORKER, zone="us-east-1b")
    assert lookup(snapshot(elsewhere), VPC, EFS, WORKER_IP, {}) == ""
    assert lookup(snapshot(elsewhere), VPC, f"us-east-1a.{EFS}", WORKER_IP, {}) == "10.0.1.200"


def test_lustre_file_system_is_found_from_every_zone() -> None:
    now = snapshot(dataclasses.replace(WORKER, zone="us-east-1b"))
    lustre = dataclasses.replace(now.mount_targets[0], file_system_id="fs-4567", ip="10.0.1.201", service="fsx")
    now = dataclasses.replace(now, mount_targets=(*now.mount_targets, lustre))
    assert lookup(now, VPC, "fs-4567.fsx.us-east-1.amazonaws.com", WORKER_IP, {}) == "10.0.1.201"
    assert lookup(now, VPC, "fs-4567.efs.us-east-1.amazonaws.com", WORKER_IP, {}) == ""
    assert lookup(now, "vpc-2", "fs-4567.fsx.us-east-1.amazonaws.com", WORKER_IP, {}) == ""


def test_reachable_internet_host_has_address_in_cloud() -> None:
    assert find("packages.example.org") == "198.18.255.129"
    assert find("example.org") == ""


def test_known_name_is_answered_with_its_address() -> None:
    answer = respond(question("Known.example"), {"known.example": "10.0.0.7"}.get)  # type: ignore[arg-type]
    number, flags, _, answers = struct.unpack("!HHHH", answer[:8])
    assert (number, flags & 0x000F, answers) == (7, 0, 1)
    assert answer[-4:] == bytes([10, 0, 0, 7])


def test_known_name_has_no_ipv6_address() -> None:
    answer = respond(question("known.example", kind=28), lambda _: "10.0.0.7")
    assert struct.unpack("!HHHH", answer[:8])[1] & 0x000F == 0
    assert struct.unpack("!HHHH", answer[:8])[3] == 0


def test_unknown_name_does_not_exist() -> None:
    assert struct.unpack("!HH", respond(question("unknown.example"), lambda _: "")[:4])[1] & 0x000F == 3


@given(st.binary(max_size=80))
def test_any_message_causes_no_error(message: bytes) -> None:
    answer = respond(message, lambda _: "10.0.0.7")
    assert answer == b"" or answer[:2] == message[:2]
