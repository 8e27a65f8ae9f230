"""The way from StartSession to a host: whose agent is connected, and the agent's end of each session.

The agents are part of this process, and not of the hosts: a hundred hosts would cost a hundred interpreters. What they
send and get takes a host's own way all the same: their sockets are made in the host's network namespace, so a security
group, a missing route or a cut network holds for them as for the host.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from localcloud.errors import LocalCloudError
from localcloud.network.namespaces import NetworkNamespace
from localcloud.network.nftables import API_ADDRESS
from localcloud.sessions import agent, messages
from localcloud.sessions.broker import PATH, Broker, Session
from localcloud.sessions.websocket import TEXT, WebSocket, connect
from localcloud.snapshot import Instance

log = logging.getLogger("localcloud.sessions")

SESSIONS_PORT: Final = 81
"""Beside the API; on AWS data channels go to an address of their own."""
NEEDED: Final = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""What an agent asks of AWS with its instance's role before anybody reaches it."""
_REACH_S: Final = 3.0
_DIAL_S: Final = 10.0


class Host(Protocol):
    """What is asked of a host."""

    instance: Instance
    network: NetworkNamespace


class NotConnectedError(LocalCloudError, ConnectionError):
    """Report an instance whose agent the service does not hear. Carries `instance_id` and `reason`."""

    def __init__(self, instance_id: str, reason: str) -> None:
        self.instance_id, self.reason = instance_id, reason
        super().__init__(f"{instance_id} is not connected. (Embedded cloud: {reason})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """Start sessions to hosts."""

    broker: Broker
    hosts: Mapping[str, Host]
    allows: Callable[[str, tuple[str, ...]], list[str]]
    """Takes a role's name and actions; returns those that the role may not do."""

    def url(self, session: Session) -> str:
        """Return where a session's client connects."""
        return f"ws://{API_ADDRESS}:{SESSIONS_PORT}{PATH}{session.id}?role=publish_subscribe"

    def reason_against(self, instance_id: str) -> str:
        """Say why an instance is not connected; empty where it is."""
        try:
            self._reach(instance_id).close()
        except NotConnectedError as error:
            return error.reason
        return ""

    def start(self, instance_id: str, port: int) -> Session:
        """Start a session to a port of an instance. Raises NotConnectedError."""
        connection = self._reach(instance_id)
        session = self.broker.open(instance_id)
        host = self.hosts[instance_id]

        def dial() -> socket.socket:
            opened = host.network.enter(lambda: socket.create_connection(("127.0.0.1", port), timeout=_DIAL_S))
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
                self.broker.end(session.id)

        threading.Thread(target=serve, name=session.id, daemon=True).start()
        return session

    def _open(self, connection: socket.socket, session: Session) -> WebSocket:
        channel = connect(connection, API_ADDRESS, f"{PATH}{session.id}?role=subscribe")
        channel.send(messages.opening(session.agent_token, str(uuid.uuid4()), "3.3.0.0"), TEXT)
        connection.settimeout(None)
        return channel

    def _reach(self, instance_id: str) -> socket.socket:
        """Connect from a host to the service, as its agent must."""
        host = self.hosts.get(instance_id)
        if host is None:
            raise NotConnectedError(instance_id, "there is no such running instance")
        role = host.instance.role_name
        if not role:
            raise NotConnectedError(instance_id, "it has no instance role")
        denied = self.allows(role, NEEDED)
        if denied:
            raise NotConnectedError(instance_id, f"its role {role} does not allow {', '.join(denied)}")
        try:
            return host.network.enter(lambda: socket.create_connection((API_ADDRESS, SESSIONS_PORT), timeout=_REACH_S))
        except OSError as error:
            raise NotConnectedError(instance_id, f"it does not reach the service: {error}") from None
