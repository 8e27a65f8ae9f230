"""The claim of one process to write checkpoints at a place: the last that claims it may, and all before stop.

A run that was restarted elsewhere may have left a process behind that was only frozen, or cut off, and goes on. A lock
would not tell: its holder may be on a host that nobody reaches. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid

from agent.errors import ReportedError
from payload.training.checkpoints.storage import CheckpointStorage


class SupersededError(ReportedError, RuntimeError):
    """Report that another process has begun to write checkpoints at the same place. Carries `address`."""

    def __init__(self, address: str, writer: str) -> None:
        self.address = address
        super().__init__(
            f"{writer} has begun to write checkpoints to {address}: this process, which wrote them before, ends; "
            "where both were started on purpose, give each run a --checkpoint-dir of its own"
        )


class Claim:
    """The claim of this process on a storage."""

    def __init__(self, storage: CheckpointStorage) -> None:
        """Claim nothing yet, as a process that only reads."""
        self._storage = storage
        self._own = b""

    def take(self) -> None:
        """Record this process as the one that writes. Raises ReportedError where the storage cannot be written."""
        fields = {
            "id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "time": round(time.time(), 3),
        }
        own = json.dumps(fields).encode()
        self._storage.set_writer(own)
        self._own = own

    def check(self) -> None:
        """Raise SupersededError where another process has recorded itself since; ReportedError for a failed read."""
        found = self._storage.writer() if self._own else None
        if found is not None and found != self._own:
            raise SupersededError(self._storage.address(), _described(found))


def _described(writer: bytes) -> str:
    """Return a writer in words: its own record is a file that anyone may have written."""
    try:
        fields = json.loads(writer)
        return f"process {int(fields['pid'])} on {str(fields['host'])[:64]!r}"
    except (ValueError, KeyError, TypeError):
        return "another process"
