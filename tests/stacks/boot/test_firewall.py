"""The firewall of the ranks, loaded into a separate network namespace and attacked as the ranks' user."""

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
    """Carry out all attacks as a user; `firewall` is a shell command that runs first."""
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
def test_rank_reaches_file_servers_and_metadata_service_without_firewall(tmp_path: Path) -> None:
    assert attack(tmp_path, RANK, "") == {"files": ["sent"], "metadata": ["sent"], "others": ["sent"]}


@pytest.mark.root
def test_firewall_rejects_only_these_connections_of_ranks(tmp_path: Path) -> None:
    rejected = attack(tmp_path, RANK, f"bash {SCRIPTS}/firewall.sh")
    assert rejected == {"files": REJECTED, "metadata": REJECTED, "others": ["sent"]}


@pytest.mark.root
def test_rank_with_role_of_node_reaches_metadata_service(tmp_path: Path) -> None:
    rejected = attack(tmp_path, RANK, f"bash {SCRIPTS}/firewall.sh role")
    assert rejected == {"files": REJECTED, "metadata": ["sent"], "others": ["sent"]}


@pytest.mark.root
@pytest.mark.parametrize("uid", [0, 1000])
def test_other_users_reach_everything_also_after_reload(tmp_path: Path, uid: int) -> None:
    twice = f"bash {SCRIPTS}/firewall.sh; bash {SCRIPTS}/firewall.sh"
    assert attack(tmp_path, uid, twice) == {"files": ["sent"], "metadata": ["sent"], "others": ["sent"]}


TWO_NODES = """
set -e
mount -t tmpfs none /run && mount -t tmpfs none /mnt
cp -r /etc /mnt/etc && mount --bind /mnt/etc /etc
mkdir -p /run/netns
for node in one two three; do
  ip netns add $node && ip -n $node link set lo up
done
# `two` is a switch too.
for node in one three; do
  ip link add $node netns $node type veth peer name $node netns two
  ip -n two link set $node up && ip -n $node link set $node up
  ip netns exec $node sh -c "echo 0 >/proc/sys/net/ipv6/conf/$node/accept_dad"
done
ip -n two link add bridge type bridge && ip -n two link set bridge up
ip -n two link set one master bridge && ip -n two link set three master bridge
ip -n one address add 10.8.0.1/24 dev one && ip -n two address add 10.8.0.2/24 dev bridge
ip -n three address add 10.8.0.3/24 dev three
ip -n one address add fd00:8::1/64 dev one nodad && ip -n two address add fd00:8::2/64 dev bridge nodad
for node in one two three; do DEEPCDK_ROOT=/run ip netns exec $node bash SCRIPTS/firewall.sh; done
ip netns exec two setpriv --reuid 60900 --regid 60900 --clear-groups PYTHON -c '
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    server = socket.socket(family)
    if family == socket.AF_INET6: server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind(("", 3000))
    server.listen(99)
    globals()[f"kept{family}"] = server
import time; time.sleep(60)' &
sleep 1
reach() {
  for address in 10.8.0.2 ::ffff:10.8.0.2 fd00:8::2; do
    ip netns exec $1 setpriv --reuid $2 --regid $2 --clear-groups timeout 2 PYTHON -c "
import socket, sys
family = socket.AF_INET6 if ':' in '$address' else socket.AF_INET
client = socket.socket(family)
client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)
client.connect(('$address', 3000))
client.send(b'x')" 2>/dev/null && printf 'yes ' || printf 'no '
  done
}
admit() { SSH_ORIGINAL_COMMAND="$1" ip netns exec two bash SCRIPTS/rank_leftovers.sh; }
"""


def on_two_nodes(*commands: str) -> str:
    """Run commands next to a node `two`, which serves port 3000, and nodes `one` and `three`; return their output."""
    script = TWO_NODES.replace("SCRIPTS", str(SCRIPTS)).replace("PYTHON", sys.executable)
    words = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "bash",
        "-c",
        "\n".join([script, *commands]),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.root
def test_node_accepts_only_ranks_of_nodes_of_its_run() -> None:
    """Over IPv4, IPv4 through an IPv6 socket, and IPv6, which no run uses between its nodes.

    The listening rank answers the other users of all nodes.
    """
    admission = "run 60907 10.8.0.1,10.8.0.2"
    told = on_two_nodes(
        "reach one 60900; echo",
        f"admit '{admission}'; grep ^deepcdk-run: /etc/group",
        "reach one 60900; reach three 60900; reach two 60900; echo",
        "admit 'run 60908 10.8.0.3'; grep ^deepcdk-run: /etc/group",
        "reach one 60900; reach three 60900; reach one 1000; reach one 0; echo",
    )
    assert told.splitlines() == [
        "no no no ",
        admission,
        "deepcdk-run:*:60907:deepcdk-rank",
        "yes yes no no no no yes yes yes ",
        "run 60908 10.8.0.3",
        "deepcdk-run:*:60908:deepcdk-rank",
        "no no no yes yes no yes yes yes yes yes yes ",
    ]


@pytest.mark.root
def test_node_without_firewall_accepts_no_run() -> None:
    assert (
        on_two_nodes("ip netns exec two nft delete table inet deepcdk", "admit 'run 60907 10.8.0.1' || echo no")
        == "no\n"
    )
