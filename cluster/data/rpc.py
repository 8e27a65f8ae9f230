"""One conversation with the master while data are staged: each question with what it brings, and its answer.

The master's Python starts once for all of it.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent.spec.nodes import MASTER_NAME
from agent.staging.stream import SourceChangedError
from cluster.data.report import Reports
from cluster.errors import DeepcdkError, RemoteError
from cluster.ssh.connection import Master, SilenceError
from cluster.ssh.fanout import SILENCE_S
from cluster.ssh.stream_reader import BackgroundReader


class Dialogue:
    """Ask the master's `agent.staging.server serve`. Close it, or use it in a `with`."""

    def __init__(self, master: Master, command: Sequence[str], directory: str) -> None:
        """`directory` is the pushed tree in which the command runs."""
        self._master = master
        self._sent: queue.SimpleQueue[Iterable[bytes] | None] = queue.SimpleQueue()
        self._changed: SourceChangedError | None = None
        self._answers = BackgroundReader(
            master.lines(command, directory=directory, silence_s=SILENCE_S, feed=self._stream())
        )

    def __enter__(self) -> Dialogue:
        return self

    def __exit__(self, *_: object) -> None:
        self._sent.put(None)

    def _stream(self) -> Iterator[bytes]:
        """Yield what is to be sent, until the end of the conversation or a file that changed on the way."""
        try:
            while (blocks := self._sent.get()) is not None:
                yield from blocks
        except SourceChangedError as error:
            self._changed = error

    def ask(self, question: dict[str, Any], brings: Iterable[bytes] = ()) -> dict[str, Any]:
        """Ask, and return the answer. Raises what the master says was wrong, SilenceError where it says no more."""
        self._sent.put((json.dumps(question).encode("ascii") + b"\n",))
        self._sent.put(brings)
        reports = Reports(None, self._master.where)
        try:
            while not (reports.done or reports.errors):
                line = self._answers.next(timeout_s=2 * SILENCE_S)
                if line is None:
                    raise SilenceError("the master ended the conversation", where=self._master.where)
                reports.take(MASTER_NAME, line)
        except queue.Empty:
            raise SilenceError("the connection to the master fell silent", where=self._master.where) from None
        except RemoteError as error:
            self._raise_changed()
            raise RemoteError(
                "staging failed on the master", status=error.status, output=error.output, where=self._master.where
            ) from None
        self._raise_changed()
        reports.check()
        return reports.done[MASTER_NAME]

    def _raise_changed(self) -> None:
        if self._changed:
            raise DeepcdkError(
                str(self._changed), remedy="repeat the command once nobody writes there: what has arrived whole stays"
            )
