"""A rank's questions to the launcher of an elastic run (`agent.spec.elastic`). Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Final

from agent.errors import ReportedError
from agent.spec.elastic import GONE, MEMBER_VARIABLE, MOST_ANSWER_BYTES, NO_CONTENT, SERVER_VARIABLE, FirstStep, Place

ANSWER_S: Final = 40.0
"""How long the launcher may take to answer, twice as long as it holds a question."""
TRIES: Final = 5
WANTED_S: Final = 1.0
"""Time between two questions of rank 0 whether the ranks are to form anew."""


class DismissedError(ReportedError):
    """Report that this rank has no place among the others any more."""

    def __init__(self) -> None:
        super().__init__("the others go on without this rank, whose host was lost, leaves, or has other data")


class LauncherLostError(ReportedError, ConnectionError):
    """Report that the launcher does not answer. Carries `address`."""

    def __init__(self, address: str, reason: object) -> None:
        self.address = address
        super().__init__(f"the launcher at {address} does not answer: {reason}")


class LauncherClient:
    """The launcher, as one rank reaches it."""

    def __init__(self, address: str, member: str, *, answer_s: float = ANSWER_S, pause_s: float = 1.0) -> None:
        """`address`: ADDRESS:PORT; `member`: the number with which this rank was started."""
        self._address, self._member, self._answer_s, self._pause_s = address, member, answer_s, pause_s
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> LauncherClient | None:
        """Return the launcher of this rank; None where the run is not elastic."""
        address = environ.get(SERVER_VARIABLE)
        return cls(address, environ.get(MEMBER_VARIABLE, "0")) if address else None

    def wait_for_place(self, data: bytes = b"") -> Place:
        """Wait until all ranks that are left have asked, and return this one's place.

        `data`: a digest of what this rank reads; one that joins with another than the others' gets no place.
        Raises DismissedError where it has none any more, LauncherLostError where nobody answers.
        """
        while True:
            status, body = self._ask("GET", f"place/{self._member}/{data.hex()}")
            if status == GONE:
                raise DismissedError
            if status != NO_CONTENT:
                return Place.from_json(body)

    def report_joined(self) -> None:
        """Report that this rank has joined the others."""
        self._ask("PUT", f"joined/{self._member}")

    def report_step(self, first: FirstStep) -> None:
        """Report the first step after the ranks have formed anew; the run goes on where nobody listens."""
        with contextlib.suppress(LauncherLostError):
            self._ask("PUT", "stepped", first.to_json().encode())

    def is_reform_wanted(self) -> bool:
        """Return whether the ranks are to form anew between two steps; False where nobody answers."""
        try:
            return self._ask("GET", "wanted", tries=1)[1] == b"1"
        except LauncherLostError:
            return False

    def _ask(self, method: str, path: str, body: bytes | None = None, *, tries: int = TRIES) -> tuple[int, bytes]:
        url = f"http://{self._address}/{path}"
        for left in range(tries - 1, -1, -1):
            request = urllib.request.Request(url, data=body or (b"" if method == "PUT" else None), method=method)
            try:
                with self._opener.open(request, timeout=self._answer_s) as answer:
                    return answer.status, answer.read(MOST_ANSWER_BYTES)
            except urllib.error.HTTPError as error:
                return error.code, b""
            except (OSError, http.client.HTTPException) as error:
                if not left:
                    raise LauncherLostError(self._address, error) from None
            time.sleep(self._pause_s)
        raise LauncherLostError(self._address, "no try is left")


class ReformWatch:
    """Ask the launcher from time to time, beside the steps, whether the ranks are to form anew."""

    def __init__(self, launcher: LauncherClient, every_s: float = WANTED_S) -> None:
        self._launcher, self._every_s = launcher, every_s
        self._ended = threading.Event()
        self._is_wanted = False

    def __call__(self) -> bool:
        """Return what was answered last."""
        return self._is_wanted

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self._is_wanted = self._launcher.is_reform_wanted()

    @contextlib.contextmanager
    def watching(self, is_wanted: bool = True) -> Iterator[ReformWatch]:
        """Watch within a block, if it is wanted at all."""
        if not is_wanted:
            yield self
            return
        threading.Thread(target=self._watch, name="reform watch", daemon=True).start()
        try:
            yield self
        finally:
            self._ended.set()
