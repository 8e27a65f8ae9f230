"""Whose agent is connected, and why another one's is not."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable
from typing import Any

import pytest

from localcloud.sessions.relay import Relay
from localcloud.sessions.service import REQUIRED_ACTIONS, NotConnectedError, SessionService
from testbed import MASTER


class CutNetwork:
    """Stand in for a host's network from which nothing is reached."""

    def enter(self, action: Callable[[], Any]) -> Any:
        raise TimeoutError("timed out")


@dataclasses.dataclass
class FakeHost:
    instance: Any
    network: Any


def service(role: str, allowed: tuple[str, ...]) -> SessionService:
    host = FakeHost(instance=dataclasses.replace(MASTER, role_name=role), network=CutNetwork())
    return SessionService(
        relay=Relay(socket.create_server(("127.0.0.1", 0))),
        hosts={MASTER.id: host},
        denied=lambda name, instance, actions: [action for action in actions if action not in allowed],
    )


@pytest.mark.parametrize(
    ("role", "allowed", "said"),
    [
        ("", REQUIRED_ACTIONS, "it has no instance role"),
        ("node", REQUIRED_ACTIONS[:-1], "its role node does not allow ssmmessages:OpenDataChannel"),
        ("node", REQUIRED_ACTIONS, "it does not reach the service: timed out"),
    ],
)
def test_an_agent_is_connected_only_with_a_role_its_rights_and_a_way_out(
    role: str, allowed: tuple[str, ...], said: str
) -> None:
    found = service(role, allowed)
    assert found.reason_not_connected(MASTER.id) == said
    with pytest.raises(NotConnectedError, match=f"{MASTER.id} is not connected"):
        found.start(MASTER.id, 22)
    found.relay.close()


def test_an_instance_that_is_not_there_is_not_connected() -> None:
    found = service("node", REQUIRED_ACTIONS)
    assert found.reason_not_connected("i-0123456789abcdef0") == "there is no such running instance"
    found.relay.close()
