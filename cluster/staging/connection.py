"""Send requests to the master while data is staged, over one connection. Its Python starts only once."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent.spec.nodes import MASTER_NAME
from agent.staging.upload_stream import SourceChangedError
from cluster.errors import DeepcdkError, RemoteError
from cluster.ssh.command_on_nodes import SILENCE_S
from cluster.ssh.master import Master, SilenceError
from cluster.ssh.stream_reader import BackgroundReader
from cluster.staging.node_reports import Reports


class StagingConnection:
    """Send requests to `agent.staging.node_commands serve` on the master, one at a time. Use it in a `with`.

    The server keeps its reservations until the end of the `with`.
    """

    def __init__(self, master: Master, command: Sequence[str], directory: str) -> None:
        """Start `command` in `directory`, a pushed tree."""
        self._master = master
        self._sent: queue.SimpleQueue[Iterable[bytes] | None] = queue.SimpleQueue()
        self._changed: SourceChangedError | None = None
        self._answers = BackgroundReader(
            master.lines(command, directory=directory, silence_s=SILENCE_S, feed=self._stream()), master.where
        )

    def __enter__(self) -> StagingConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._sent.put(None)

    def _stream(self) -> Iterator[bytes]:
        """Yield the bytes to send, until the connection is closed or a file has changed while it was read."""
        try:
            while (blocks := self._sent.get()) is not None:
                yield from blocks
        except SourceChangedError as error:
            self._changed = error

    def request(self, request: dict[str, Any], payload: Iterable[bytes] = ()) -> dict[str, Any]:
        """Send a request with its payload, wait for the answer and return its counts by name.

        The payload is read in another thread while it is sent. Raises StagingError for an error in the answer,
        SilenceError if the connection breaks, RemoteError if the server fails, DeepcdkError if a file has changed while
        it was read, or AnswerError.
        """
        self._sent.put((json.dumps(request).encode("ascii") + b"\n",))
        self._sent.put(payload)
        reports = Reports(None, self._master.where)
        try:
            while not (reports.done or reports.errors):
                line = self._answers.next(timeout_s=2 * SILENCE_S)
                if line is None:
                    raise SilenceError(
                        "the master closed the connection while data was staged",
                        where=self._master.where,
                        remedy="repeat the command; complete files are kept",
                    )
                reports.take(MASTER_NAME, line)
        except RemoteError as error:
            self._raise_changed()
            raise error.reworded("staging failed on the master") from None
        self._raise_changed()
        reports.check()
        return reports.done[MASTER_NAME]

    def _raise_changed(self) -> None:
        if self._changed:
            raise DeepcdkError(
                str(self._changed),
                remedy="repeat the command when the files are readable and no longer change; complete files are kept",
            )
