"""Where the ranks of an elastic run ask for their places, and the store at which those of each round meet."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.launch.elastic.membership import Membership
from agent.spec.elastic import GONE, NO_CONTENT, FirstStep, Place

ASK_S: Final = 20.0
"""How long an answer may take; a rank then asks again, and so notices a launcher that has gone."""
_MOST_BYTES: Final = 1 << 16
_SOCKET_S: Final = 60.0
"""How long one request may keep its thread waiting for the rest of it."""
_PLACES_SCOPE: Final = "rank_and_size"
"""Where Horovod's library asks an elastic launcher for its place (gloo_context.cc of Horovod 0.28)."""


class Answers:
    """What the server answers: the membership, behind one lock, and the places that have been given."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.changed = threading.Condition()
        self.places: dict[int, Place] = {}
        """Given, and not yet fetched."""
        self.steps: list[FirstStep] = []
        """Reported, and not yet read."""

    def place(self, member: int, data: str = "", *, wait_s: float = ASK_S) -> Place | int:
        """Wait for a rank's place; return it, or the status of an answer without one.

        `data`: the digest of what the rank reads, if it says it.
        """
        with self.changed:
            if found := self.places.pop(member, None):  # Given while it was about to ask again.
                return found
            if not self.membership.ask(member, data):
                return GONE
            self.changed.notify_all()
            self.changed.wait_for(lambda: member in self.places or not self._is_there(member), timeout=wait_s)
            if found := self.places.pop(member, None):
                return found
            return NO_CONTENT if self._is_there(member) else GONE

    def _is_there(self, member: int) -> bool:
        return self.membership.of(member) is not None and not self.membership.is_over

    def join(self, member: int) -> None:
        """Take note that a rank has joined the others."""
        with self.changed:
            self.membership.join(member)
            self.changed.notify_all()

    def is_wanted(self) -> bool:
        """Return whether the ranks are to form anew between two steps."""
        with self.changed:
            return self.membership.is_wanted

    def step(self, first: FirstStep) -> None:
        """Take note of the first step of a round."""
        with self.changed:
            if first.round == self.membership.round:
                self.steps.append(first)
            self.changed.notify_all()


def handler(answers: Answers) -> type[http.server.BaseHTTPRequestHandler]:
    """Return the class that answers requests."""

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = _SOCKET_S

        def do_GET(self) -> None:
            what, member, data = self._path()
            if what == "wanted":
                self._answer(200, b"1" if answers.is_wanted() else b"0")
            elif what == "place" and member is not None:
                found = answers.place(member, data)
                self._answer(*((200, found.to_json().encode()) if isinstance(found, Place) else (found, b"")))
            else:
                self._answer(404)

        def do_PUT(self) -> None:
            what, member, _ = self._path()
            try:
                length = int(self.headers.get("Content-Length", "0"))
                if not 0 <= length <= _MOST_BYTES:
                    raise ValueError("too long")
                body = self.rfile.read(length)
                if what == "joined" and member is not None:
                    answers.join(member)
                elif what == "stepped":
                    answers.step(FirstStep.from_json(body))
                else:
                    raise ValueError("no such path")
            except (TypeError, ValueError):
                self._answer(400)
            else:
                self._answer(200)

        def _path(self) -> tuple[str, int | None, str]:
            _, what, number, data, *_ = [*self.path.split("/"), "", "", ""]
            return what, int(number) if number.isascii() and number.isdecimal() else None, data

        def _answer(self, status: int, body: bytes = b"") -> None:
            with contextlib.suppress(ConnectionError):  # A rank that was killed while it waited.
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing: the log is the ranks'."""

    return Handler


class _HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    """All ranks ask at once."""


class Server:
    """The server, in threads of this process."""

    def __init__(self, answers: Answers) -> None:
        self._server = _HttpServer(("", 0), handler(answers))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Return the port that it listens on."""
        return int(self._server.server_port)


def open_store(places: Callable[[int], Mapping[int, Place]], names: Mapping[int, str]) -> Any:
    """Open Horovod's own store for one round, and return it; `stop` ends it.

    `places`: called with its port, returns the places of the round by member; `names`: each member's host. A store of
    its own for each round: what the ranks of an earlier one have left there would lead these astray.
    """
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousServer

    answers: dict[str, bytes] = {}

    class Handler(RendezvousHandler):  # type: ignore[misc]  # Horovod has no types
        def _get_value(self, scope: str, key: str) -> bytes | None:
            if scope == _PLACES_SCOPE:
                return answers.get(key)
            return super()._get_value(scope, key)  # type: ignore[no-any-return]  # as above

    store = RendezvousServer()
    given = places(store.start(Handler))
    # Horovod asks where it is initialised again in one process, though the variables have told it already.
    answers.update({f"{names[member]}:{place.local_rank}": place.numbers.encode() for member, place in given.items()})
    store.init([_Slot(names[member], place) for member, place in given.items()])
    return store


class _Slot:
    """What Horovod's store reads of a rank's place."""

    def __init__(self, hostname: str, place: Place) -> None:
        self.hostname, self.size, self.local_size = hostname, place.size, place.local_size
        self.local_rank, self.cross_size = place.local_rank, place.cross_size
