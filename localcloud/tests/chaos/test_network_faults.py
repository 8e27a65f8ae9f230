from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from chaos.stage import Stage, carried_out, done, inside, started_host
from localcloud.chaos.attempt import NoTargetError

SEND: Final = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as both:
    both.bind(("0.0.0.0", 0))
    both.sendto(b"x", (sys.argv[1], both.getsockname()[1]))
    if sys.argv[1] == "127.0.0.1":
        both.recv(1)
"""


def sends(host: int, address: str) -> bool:
    """Return whether a packet to an address leaves the host. If a rule drops it, the sender gets an error."""
    words = ["nsenter", "--target", str(host), "--net", sys.executable, "-c", SEND, address]
    failed = subprocess.run(words, capture_output=True, text=True, check=False).stderr
    assert not failed or "PermissionError" in failed, failed
    return not failed


@pytest.mark.parametrize("kind", ["drop", "slow"])
def test_network_faults_skip_machines(tmp_path: Path, kind: str) -> None:
    stage = Stage(tmp_path, 1)
    stage.hosts()[0]["agent"] = "/run/localcloud/x/agent.sock"
    with pytest.raises(NoTargetError, match=f"there is no running host that {kind} can affect"):
        done(stage, kind)


@pytest.mark.root
def test_sending_is_slowed_until_fault_is_undone(tmp_path: Path) -> None:
    with started_host() as host:
        slow = carried_out(Stage(tmp_path, host), "slow")
        assert slow.what == "limited the sending rate of w1 (i-1) to 1 Mbit/s" and slow.undo
        assert "tbf" in inside(host, "tc", "qdisc", "show", "dev", "eth0")
        assert "rate 1Mbit" in inside(host, "tc", "qdisc", "show", "dev", "eth0")
        slow.undo()
        assert "tbf" not in inside(host, "tc", "qdisc", "show", "dev", "eth0")


@pytest.mark.root
def test_sent_packets_are_dropped_until_fault_is_undone(tmp_path: Path) -> None:
    with started_host() as host:
        assert sends(host, "10.99.0.2")
        drop = carried_out(Stage(tmp_path, host), "drop")
        assert drop.what == "dropped the packets that w1 (i-1) sends" and drop.undo
        assert (sends(host, "10.99.0.2"), sends(host, "127.0.0.1")) == (False, True)
        drop.undo()
        assert sends(host, "10.99.0.2")
        assert inside(host, "nft", "list", "ruleset").strip() == ""


@pytest.mark.root
@pytest.mark.parametrize("kind", ["drop", "slow"])
def test_undo_succeeds_after_network_is_gone(tmp_path: Path, kind: str) -> None:
    with started_host() as host:
        found = carried_out(Stage(tmp_path, host), kind)
        inside(host, "ip", "link", "del", "eth0")
    assert found.undo
    found.undo()


@pytest.mark.root
def test_host_without_a_route_is_not_slowed(tmp_path: Path) -> None:
    with started_host() as host:
        inside(host, "ip", "route", "del", "default")
        with pytest.raises(NoTargetError, match="has no default route"):
            done(Stage(tmp_path, host), "slow")
