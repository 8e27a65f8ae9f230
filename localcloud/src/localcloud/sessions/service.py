"""Sessions of Session Manager: which agents are connected, and the agent's end of each session.

The agents run in this process and not on the hosts, where a hundred hosts would cost a hundred interpreters. Their
sockets are made in the host's network namespace, so security groups, missing routes and cut networks apply to them.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from localcloud.errors import LocalCloudError
from localcloud.network.addressing import API_ADDRESS
from localcloud.network.namespaces import NetworkNamespace
from localcloud.sessions import agent, messages
from localcloud.sessions.relay import PATH, Relay, Session
from localcloud.sessions.websocket import WebSocket, connect
from localcloud.snapshot import Instance

log = logging.getLogger("localcloud.sessions")

SESSIONS_PORT: Final = 81
"""Beside the API; on AWS data channels go to an address of their own."""
REQUIRED_ACTIONS: Final = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""What the role of an instance must allow, or its agent does not connect."""
_CONNECT_TIMEOUT_S: Final = 3.0
_DIAL_TIMEOUT_S: Final = 10.0


class Host(Protocol):
    """What a session needs of a host."""

    instance: Instance
    network: NetworkNamespace


class NotConnectedError(LocalCloudError, ConnectionError):
    """Report an instance whose agent is not connected. Carries `instance_id` and `reason`."""

    def __init__(self, instance_id: str, reason: str) -> None:
        self.instance_id, self.reason = instance_id, reason
        super().__init__(f"{instance_id} is not connected. (Embedded cloud: {reason})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionService:
    """Start sessions to hosts."""

    relay: Relay
    hosts: Mapping[str, Host]
    denied: Callable[[str, str, tuple[str, ...]], list[str]]
    """Takes the name of a role, an instance's id and actions; returns the actions that the role does not allow."""

    def url(self, session: Session) -> str:
        """Return the URL for the client of a session."""
        return f"ws://{API_ADDRESS}:{SESSIONS_PORT}{PATH}{session.id}?role=publish_subscribe"

    def reason_not_connected(self, instance_id: str) -> str:
        """Return why an instance is not connected; empty where it is."""
        try:
            self._connect(instance_id).close()
        except NotConnectedError as error:
            return error.reason
        return ""

    def start(self, instance_id: str, port: int) -> Session:
        """Start a session to a port of an instance. Raises NotConnectedError."""
        connection = self._connect(instance_id)
        session = self.relay.open(instance_id)
        host = self.hosts[instance_id]

        def dial() -> socket.socket:
            opened = host.network.enter(lambda: socket.create_connection(("127.0.0.1", port), timeout=_DIAL_TIMEOUT_S))
            opened.settimeout(None)
            return opened

        def serve() -> None:
            try:
                channel = self._open(connection, session)
                agent.serve(channel, session_id=session.id, target=instance_id, port=port, dial=dial)
            except (LocalCloudError, OSError) as error:
                log.info("session %s: %s", session.id, error)
            finally:
                connection.close()
                self.relay.end(session.id)

        threading.Thread(target=serve, name=session.id, daemon=True).start()
        return session

    def _open(self, connection: socket.socket, session: Session) -> WebSocket:
        channel = connect(connection, API_ADDRESS, f"{PATH}{session.id}?role=subscribe")
        channel.send(messages.open_data_channel(session.agent_token, "3.3.0.0"))
        connection.settimeout(None)
        return channel

    def _connect(self, instance_id: str) -> socket.socket:
        """Connect from a host to the service, as its agent must."""
        host = self.hosts.get(instance_id)
        if host is None:
            raise NotConnectedError(instance_id, "there is no such running instance")
        role = host.instance.role_name
        if not role:
            raise NotConnectedError(instance_id, "it has no instance role")
        denied = self.denied(role, instance_id, REQUIRED_ACTIONS)
        if denied:
            raise NotConnectedError(instance_id, f"its role {role} does not allow {', '.join(denied)}")
        try:
            return host.network.enter(
                lambda: socket.create_connection((API_ADDRESS, SESSIONS_PORT), timeout=_CONNECT_TIMEOUT_S)
            )
        except OSError as error:
            raise NotConnectedError(instance_id, f"it does not reach the service: {error}") from None
