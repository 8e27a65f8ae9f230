"""The VPC's name service: private names of instances, and of the file systems' mount targets. Pure functions."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from typing import Final

from localcloud.hosts.host import domain, hostname
from localcloud.snapshot import Snapshot

_TTL_S: Final = 5
_A, _IN = 1, 1
_NO_ERROR, _FORMAT_ERROR, _NO_SUCH_NAME = 0, 1, 3


def lookup(snapshot: Snapshot, vpc_id: str, region: str, name: str, asker: str) -> str:
    """Return the address of `name` for the instance whose address is `asker`; empty for an unknown name.

    `fs-ID.efs.REGION.amazonaws.com` is the mount target in the asker's zone, as on AWS; a mount target of another zone
    is found as `ZONE.fs-ID.efs.REGION.amazonaws.com`. A file system of FSx has one address for all zones.
    """
    instances = [instance for instance in snapshot.instances if instance.vpc_id == vpc_id]
    for instance in instances:
        if name == f"{hostname(instance.private_ip)}.{domain(region)}":
            return instance.private_ip
    zones = {subnet.id: subnet.zone for subnet in snapshot.subnets}
    asking_zone = next((instance.zone for instance in instances if instance.private_ip == asker), "")
    for target in snapshot.mount_targets:
        zone = zones.get(target.subnet_id, "")
        full = f"{target.file_system_id}.{target.service}.{region}.amazonaws.com"
        near = target.service == "fsx" or zone == asking_zone
        if target.vpc_id == vpc_id and (name == f"{zone}.{full}" or (name == full and near)):
            return target.ip
    return ""


def respond(query: bytes, find: Callable[[str], str]) -> bytes:
    """Answer one DNS message; return nothing for one that is too short to be answered.

    `find` takes a lower-case name without the last dot and returns an IPv4 address, or nothing.
    """
    if len(query) < 12:
        return b""
    number, flags, questions = struct.unpack("!HHH", query[:6])
    parsed = _question(query) if questions == 1 else None
    if parsed is None:
        return struct.pack("!HHHHHH", number, 0x8080 | flags & 0x0100 | _FORMAT_ERROR, 0, 0, 0, 0)
    name, kind, end = parsed
    address = find(name)
    code = _NO_ERROR if address else _NO_SUCH_NAME
    answers = b""
    if address and kind == _A:
        answers = struct.pack("!HHHIH", 0xC00C, _A, _IN, _TTL_S, 4) + ipaddress.IPv4Address(address).packed
    header = struct.pack("!HHHHHH", number, 0x8480 | flags & 0x0100 | code, 1, 1 if answers else 0, 0, 0)
    return header + query[12:end] + answers


def _question(query: bytes) -> tuple[str, int, int] | None:
    """Return the name asked for, the record type, and where the question ends; None when it is ill-formed."""
    labels, position = [], 12
    while position < len(query) and (length := query[position]):
        if length > 63 or position + 1 + length > len(query):
            return None
        labels.append(query[position + 1 : position + 1 + length].decode("ascii", errors="replace").lower())
        position += 1 + length
    if position + 5 > len(query):
        return None
    return ".".join(labels), struct.unpack("!H", query[position + 1 : position + 3])[0], position + 5
