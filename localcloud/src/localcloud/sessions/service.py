"""Session Manager: the connection state of agents, and streams between the laptop and a port of a host.

Both ends connect to the relay and send their token. The relay then copies the stream's bytes unchanged. The agents run
in this process, because a hundred agents on the hosts would need a hundred interpreters. Their sockets are created in
the host's network namespace, so security groups, missing routes and cut networks apply to them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from localcloud.errors import LocalCloudError, error_text
from localcloud.network.addressing import API_ADDRESS
from localcloud.network.namespaces import NetworkNamespace
from localcloud.snapshot import Instance

log = logging.getLogger("localcloud.sessions")

SESSIONS_PORT: Final = 81
"""Port of the relay, at the API's address. On AWS, data channels have a separate address."""
REQUIRED_ACTIONS: Final = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""Actions that an instance's role must allow; otherwise its agent does not connect."""
_BLOCK_BYTES: Final = 1 << 16
_TOKEN_BYTES: Final = 43
"""Length of `secrets.token_urlsafe(32)`."""
_CONNECT_TIMEOUT_S: Final = 3.0
_DIAL_TIMEOUT_S: Final = 10.0
_PAIR_TIMEOUT_S: Final = 60.0
"""Time for an end to send its token, and for the client to connect."""


class Host(Protocol):
    """The attributes of a host that sessions use."""

    instance: Instance
    network: NetworkNamespace


class NotConnectedError(LocalCloudError, ConnectionError):
    """The instance's agent is not connected. Carries `instance_id` and `reason`."""

    def __init__(self, instance_id: str, reason: str) -> None:
        self.instance_id, self.reason = instance_id, reason
        super().__init__(f"{instance_id} is not connected. (Embedded cloud: {reason})")


@dataclasses.dataclass(kw_only=True)
class Session:
    """One session: its tokens and the connected ends."""

    id: str
    client_token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(32))
    agent_token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(32))
    ends: dict[str, socket.socket] = dataclasses.field(default_factory=dict)
    """Connections by token."""
    paired: threading.Event = dataclasses.field(default_factory=threading.Event)
    """Set when both ends are connected, and when the session ends."""


class Relay:
    """Accepts both ends of sessions on a listening socket, and copies bytes between them."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        threading.Thread(target=self._accept, name="sessions", daemon=True).start()

    def open(self) -> Session:
        """Create a session, so that both ends can connect."""
        session = Session(id=f"embedded-{secrets.token_hex(8)}")
        with self._lock:
            self._sessions[session.id] = session
        return session

    def end(self, session_id: str) -> bool:
        """End a session and close its connections; return whether it existed."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        session.paired.set()
        for end in session.ends.values():
            _close(end)
        return True

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed: the cloud stops
            threading.Thread(target=self._serve, args=(connection,), name="session", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Read the token of one end's connection. The thread of the second end copies the bytes of both."""
        token = b""
        try:
            connection.settimeout(_PAIR_TIMEOUT_S)
            while len(token) < _TOKEN_BYTES and (more := connection.recv(_TOKEN_BYTES - len(token))):
                token += more
            connection.settimeout(None)
            session, is_complete = self._admit(connection, token.decode("ascii"))
        except (OSError, ValueError) as error:
            log.info("rejected a connection to the sessions' port: %s", error_text(error))
            connection.close()
            return
        if is_complete:
            session.paired.set()
            copy_both_ways(*session.ends.values())
            self.end(session.id)

    def _admit(self, connection: socket.socket, token: str) -> tuple[Session, bool]:
        """Add an end to its session; return the session and whether both ends are connected. Raises ValueError."""
        with self._lock:
            for session in self._sessions.values():
                if token in (session.client_token, session.agent_token) and token not in session.ends:
                    session.ends[token] = connection
                    return session, len(session.ends) == 2
        raise ValueError("no session waits for its token")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionService:
    """Starts sessions to hosts."""

    relay: Relay
    hosts: Mapping[str, Host]
    denied: Callable[[str, str, tuple[str, ...]], list[str]]
    """Takes a role's name, an instance's id and actions; returns the actions that the role does not allow."""

    def url(self) -> str:
        """Return the URL of the relay for clients."""
        return f"tcp://{API_ADDRESS}:{SESSIONS_PORT}"

    def reason_not_connected(self, instance_id: str) -> str:
        """Return the reason why an instance's agent is not connected, or "" if it is connected.

        Each call checks the role's permissions, and connects once from the host.
        """
        try:
            self._connect(instance_id).close()
        except NotConnectedError as error:
            return error.reason
        return ""

    def start(self, instance_id: str, port: int) -> Session:
        """Start a session to a port of an instance, and return it. Raises NotConnectedError.

        The port is contacted when the client has connected to the relay, within 60 s. An error then ends the session.
        """
        connection = self._connect(instance_id)
        session, network = self.relay.open(), self.hosts[instance_id].network

        def serve() -> None:
            try:
                connection.sendall(session.agent_token.encode())
                connection.settimeout(None)
                if not session.paired.wait(_PAIR_TIMEOUT_S):
                    self.relay.end(session.id)
                    return
                with network.enter(lambda: socket.create_connection(("127.0.0.1", port), _DIAL_TIMEOUT_S)) as host:
                    host.settimeout(None)
                    copy_both_ways(connection, host)
            except OSError as error:
                log.info("session %s to port %d of %s ended: %s", session.id, port, instance_id, error_text(error))
                if not session.paired.is_set():
                    self.relay.end(session.id)
            finally:
                connection.close()  # the relay ends the session after it has copied the rest

        threading.Thread(target=serve, name=session.id, daemon=True).start()
        return session

    def _connect(self, instance_id: str) -> socket.socket:
        """Return a connection from a host to the relay, like its agent's. Raises NotConnectedError."""
        host = self.hosts.get(instance_id)
        if host is None:
            raise NotConnectedError(instance_id, "no running instance has this id")
        role = host.instance.role_name
        if not role:
            raise NotConnectedError(instance_id, "it has no role; launch it with an instance profile")
        denied = self.denied(role, instance_id, REQUIRED_ACTIONS)
        if denied:
            raise NotConnectedError(instance_id, f"its role {role} does not allow {', '.join(denied)}")
        try:
            return host.network.enter(
                lambda: socket.create_connection((API_ADDRESS, SESSIONS_PORT), timeout=_CONNECT_TIMEOUT_S)
            )
        except OSError as error:
            raise NotConnectedError(
                instance_id,
                f"it cannot connect to Session Manager: {error_text(error)}; check its route to the internet, its "
                f"security groups' rules for outgoing traffic to port {SESSIONS_PORT}, and whether `cut` drops packets",
            ) from None


def copy_both_ways(one: socket.socket, other: socket.socket) -> None:
    """Copy bytes in both directions until both have ended; the caller closes the sockets.

    The end of one direction is passed on. An error shuts down both connections, and is not raised.
    """

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while block := source.recv(_BLOCK_BYTES):
                target.sendall(block)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=copy, args=(other, one), daemon=True)
    back.start()
    copy(one, other)
    back.join()


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads from it
    connection.close()
