"""The firewall of ranks, loaded into a network namespace of its own, and attacked as the user for ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.user_data import SCRIPTS

ATTACKS = """\
import errno, json, os, socket, sys

def attempt(kind, protocol, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, kind, protocol) as client:
            client.settimeout(5)
            client.connect((address, port))
            client.send(b"x")
            return "sent"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)

# Root runs these, so that every attack reaches something.
listeners = []
for family in (socket.AF_INET, socket.AF_INET6):
    for port in (80, 988, 2049, 3000):
        listener = socket.socket(family)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(("", port))
        listener.listen(99)
        listeners.append(listener)
uid = int(sys.argv[1])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
kinds = {"TCP": (socket.SOCK_STREAM, 0), "MPTCP": (socket.SOCK_STREAM, 262),
         "UDP": (socket.SOCK_DGRAM, 0), "UDP-Lite": (socket.SOCK_DGRAM, 136)}
places = {
    "files": [("10.9.9.9", 2049), ("10.9.9.9", 988), ("::ffff:10.9.9.9", 2049), ("fd00:9::9", 2049),
              ("fd00:9::9", 988), ("127.0.0.1", 2049), ("::1", 988)],
    "metadata": [("169.254.169.254", 80), ("::ffff:169.254.169.254", 80), ("fd00:ec2::254", 80),
                 ("169.254.170.2", 80), ("169.254.170.23", 80), ("fd00:ec2::23", 80)],
    "others": [("10.9.9.9", 3000), ("fd00:9::9", 3000), ("169.254.169.253", 3000)],
}
print(json.dumps({
    name: sorted({attempt(*kind, *target) for target in targets for kind in kinds.values()})
    for name, targets in places.items()
}))
"""
ADDRESSES = (
    *("10.9.9.9", "169.254.169.253", "169.254.169.254", "169.254.170.2", "169.254.170.23"),
    *("fd00:9::9", "fd00:ec2::254", "fd00:ec2::23"),
)
REJECTED = ["ECONNREFUSED", "EPERM"]
RANK = 60900


def attack(folder: Path, uid: int, firewall: str) -> dict[str, list[str]]:
    """Carry out all attacks as a user; `firewall` is a shell command that runs before them."""
    (folder / "attacks.py").write_text(ATTACKS)
    links = [f"ip address add {address} dev lo nodad" for address in ADDRESSES]
    commands = ["ip link set lo up", *links, firewall, f"exec {sys.executable} {folder}/attacks.py {uid}"]
    done = subprocess.run(
        ["unshare", "--net", "sh", "-ec", "\n".join(commands)],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEEPCDK_ROOT": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.root
def test_a_rank_reaches_file_servers_and_the_metadata_service_without_the_firewall(tmp_path: Path) -> None:
    assert attack(tmp_path, RANK, "") == {"files": ["sent"], "metadata": ["sent"], "others": ["sent"]}


@pytest.mark.root
def test_the_firewall_rejects_what_a_rank_sends_there_and_nothing_else(tmp_path: Path) -> None:
    rejected = attack(tmp_path, RANK, f"bash {SCRIPTS}/firewall.sh")
    assert rejected == {"files": REJECTED, "metadata": REJECTED, "others": ["sent"]}


@pytest.mark.root
def test_with_the_role_of_its_node_a_rank_reaches_the_metadata_service(tmp_path: Path) -> None:
    rejected = attack(tmp_path, RANK, f"bash {SCRIPTS}/firewall.sh role")
    assert rejected == {"files": REJECTED, "metadata": ["sent"], "others": ["sent"]}


@pytest.mark.root
@pytest.mark.parametrize("uid", [0, 1000])
def test_other_users_reach_everything_and_a_second_load_changes_nothing(tmp_path: Path, uid: int) -> None:
    twice = f"bash {SCRIPTS}/firewall.sh; bash {SCRIPTS}/firewall.sh"
    assert attack(tmp_path, uid, twice) == {"files": ["sent"], "metadata": ["sent"], "others": ["sent"]}
