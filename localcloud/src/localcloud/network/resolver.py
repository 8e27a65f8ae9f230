"""The VPC's DNS resolver: private names of instances, and names of file systems. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dnslib import QTYPE, RCODE, RR, A, DNSError, DNSHeader, DNSRecord

from localcloud.hosts.host import DOMAIN, hostname
from localcloud.snapshot import REGION, Snapshot

_TTL_S: Final = 5
_HEADER_BYTES: Final = 12


def lookup(snapshot: Snapshot, vpc_id: str, name: str, asker: str, outside: Mapping[str, str]) -> str:
    """Return the address of `name` for the instance with the address `asker`, or "" for an unknown name.

    `name` is in lower case, without the trailing dot. As on AWS, `fs-ID.efs.REGION.amazonaws.com` is the mount target
    in the asker's zone, and `ZONE.fs-ID.efs.REGION.amazonaws.com` is the mount target in another zone. An FSx file
    system has one address for all zones. `outside` has the addresses of the reachable hosts of the real internet.
    """
    instances = [instance for instance in snapshot.instances if instance.vpc_id == vpc_id]
    for instance in instances:
        if name == f"{hostname(instance.private_ip)}.{DOMAIN}":
            return instance.private_ip
    zones = {subnet.id: subnet.zone for subnet in snapshot.subnets}
    asking_zone = next((instance.zone for instance in instances if instance.private_ip == asker), "")
    for target in snapshot.mount_targets:
        zone = zones.get(target.subnet_id, "")
        full = f"{target.file_system_id}.{target.service}.{REGION}.amazonaws.com"
        near = target.service == "fsx" or zone == asking_zone
        if target.vpc_id == vpc_id and (name == f"{zone}.{full}" or (name == full and near)):
            return target.ip
    return outside.get(name, "")


def respond(query: bytes, find: Callable[[str], str]) -> bytes:
    """Return the answer to a DNS message, or b"" if the message is too short.

    `find` takes a lower-case name without the trailing dot and returns an IPv4 address or "". The answer is NXDOMAIN
    for "", and FORMERR for a malformed message. For a known name, only queries of the type A get an address.
    """
    if len(query) < _HEADER_BYTES:
        return b""
    try:
        request = DNSRecord.parse(query)
        if len(request.questions) != 1:
            raise DNSError(f"{len(request.questions)} questions")
        address = find(str(request.q.qname).rstrip(".").lower())
        answer = request.reply()
        if not address:
            answer.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype == QTYPE.A:
            answer.add_answer(RR(request.q.qname, ttl=_TTL_S, rdata=A(address)))
        return bytes(answer.pack())
    except (DNSError, UnicodeError):
        header = DNSHeader(id=int.from_bytes(query[:2], "big"), qr=1, rcode=RCODE.FORMERR)
        return bytes(DNSRecord(header).pack())
