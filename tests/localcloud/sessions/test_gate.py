"""Whose agent is connected, and why another one's is not."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable
from typing import Any

import pytest

from localcloud.sessions.broker import Broker
from localcloud.sessions.gate import NEEDED, Gate, NotConnectedError
from tests.localcloud.world import MASTER


class CutNetwork:
    """Stand in for a host's network from which nothing is reached."""

    def enter(self, action: Callable[[], Any]) -> Any:
        raise TimeoutError("timed out")


@dataclasses.dataclass
class FakeHost:
    instance: Any
    network: Any


def gate(role: str, allowed: tuple[str, ...]) -> Gate:
    host = FakeHost(instance=dataclasses.replace(MASTER, role_name=role), network=CutNetwork())
    return Gate(
        broker=Broker(socket.create_server(("127.0.0.1", 0))),
        hosts={MASTER.id: host},
        allows=lambda name, actions: [action for action in actions if action not in allowed],
    )


@pytest.mark.parametrize(
    ("role", "allowed", "said"),
    [
        ("", NEEDED, "it has no instance role"),
        ("node", NEEDED[:-1], "its role node does not allow ssmmessages:OpenDataChannel"),
        ("node", NEEDED, "it does not reach the service: timed out"),
    ],
)
def test_an_agent_is_connected_only_with_a_role_its_rights_and_a_way_out(
    role: str, allowed: tuple[str, ...], said: str
) -> None:
    found = gate(role, allowed)
    assert found.reason_against(MASTER.id) == said
    with pytest.raises(NotConnectedError, match=f"{MASTER.id} is not connected"):
        found.start(MASTER.id, 22)
    found.broker.close()


def test_an_instance_that_is_not_there_is_not_connected() -> None:
    found = gate("node", NEEDED)
    assert found.reason_against("i-0123456789abcdef0") == "there is no such running instance"
    found.broker.close()
