"""The data channels of sessions: client and agent are paired by their tokens, and their messages forwarded unread."""

from __future__ import annotations

import dataclasses
import json
import logging
import secrets
import socket
import threading
from typing import Final
from urllib.parse import urlsplit

from localcloud.errors import LocalCloudError
from localcloud.sessions.websocket import WebSocket, accept

log = logging.getLogger("localcloud.sessions")

PATH: Final = "/v1/data-channel/"
_TIMEOUT_S: Final = 60.0
"""For an end to open its data channel, and then for the other end."""


@dataclasses.dataclass(kw_only=True)
class Session:
    """One session: who may open which end of it, and the ends that are open."""

    id: str
    target: str
    client_token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(32))
    agent_token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(32))
    ends: dict[str, WebSocket] = dataclasses.field(default_factory=dict)
    paired: threading.Event = dataclasses.field(default_factory=threading.Event)


class Relay:
    """Accept data channels on a listening socket, each in a thread.

    Threads and not asyncio: agents block on sockets made in the hosts' network namespaces, and a namespace belongs to a
    thread; an event loop would come on top of these threads, not in their place.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        threading.Thread(target=self._accept, name="sessions", daemon=True).start()

    def open(self, target: str) -> Session:
        """Create a session, to which both ends may now connect."""
        session = Session(id=f"embedded-{secrets.token_hex(8)}", target=target)
        with self._lock:
            self._sessions[session.id] = session
        return session

    def end(self, session_id: str) -> bool:
        """End a session; return whether there was one."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        session.paired.set()
        for end in list(session.ends.values()):
            end.close()
        return True

    def close(self) -> None:
        """Stop accepting data channels."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed: the cloud stops
            threading.Thread(target=self._serve, args=(connection,), name="session", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(_TIMEOUT_S)
            end, path = accept(connection)
            session, peer = self._admit(end, urlsplit(path).path.removeprefix(PATH))
        except (LocalCloudError, OSError, ValueError) as error:
            log.info("a data channel was refused: %s", error)
            connection.close()
            return
        connection.settimeout(None)
        try:
            if session.paired.wait(_TIMEOUT_S) and peer in session.ends:
                while (message := end.receive()) is not None:
                    session.ends[peer].send(message)
        except (LocalCloudError, OSError) as error:
            log.info("session %s: %s", session.id, error)
        finally:
            self.end(session.id)

    def _admit(self, end: WebSocket, session_id: str) -> tuple[Session, str]:
        """Check the token of an end; return its session and the name of the other end. Raises ValueError."""
        first = end.receive()
        if not isinstance(first, str):
            raise ValueError("the first message is not a token")
        token = str(json.loads(first).get("TokenValue"))
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                raise ValueError(f"there is no session {session_id[:80]!r}")
            tokens = {session.client_token: "client", session.agent_token: "agent"}
            if token not in tokens or tokens[token] in session.ends:
                raise ValueError(f"the token opens no end of session {session_id}")
            name = tokens[token]
            session.ends[name] = end
            if len(session.ends) == 2:
                session.paired.set()
        return session, "agent" if name == "client" else "client"
