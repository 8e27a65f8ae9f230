"""Checkpoints in a bucket: for each a folder with the arrays, written first, and the manifest, written last.

A checkpoint exists when its manifest does, which is one object and so written atomically.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final, Protocol

from agent.staging.s3_streams import BucketError
from payload.training.checkpoints.storage import ARRAYS, MANIFEST, NAME, WRITER, Fill

ATTEMPTS: Final = 3
"""Of an upload; the client below repeats single requests by itself."""
RETRY_DELAY_S: Final = 2.0
"""Before the second attempt; twice as long before the third."""


class Objects(Protocol):
    """The objects below a prefix, as `agent.staging.s3_streams.BucketClient` has them."""

    def address(self, path: str = "") -> str:
        """Return the address of an object."""

    def paths(self) -> list[str]:
        """List the objects. Raises BucketError."""

    def put(self, path: str, size: int, write: Callable[[IO[bytes]], None]) -> None:
        """Write an object. Raises BucketError."""

    def get(self, path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Read an object. Raises FileNotFoundError, BucketError."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects. Raises BucketError."""


class S3Storage:
    """Checkpoints below a prefix of a bucket."""

    def __init__(self, objects: Objects, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Set the prefix, without a request to it."""
        self._objects, self._sleep = objects, sleep

    def address(self, name: str = "") -> str:
        """Return its address."""
        return self._objects.address(name)

    def names(self) -> list[str]:
        """List the complete checkpoints, the newest first. Raises BucketError."""
        return sorted((name for name, files in self._folders().items() if MANIFEST in files), reverse=True)

    def put(self, name: str, size: int, fill: Fill) -> None:
        """Upload a checkpoint, with retries. Raises BucketError."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._put(name, size, fill)
            except BucketError:
                if attempt == ATTEMPTS:
                    raise
                self._sleep(RETRY_DELAY_S * attempt)
            else:
                return

    def _put(self, name: str, size: int, fill: Fill) -> None:
        manifest = b""

        def write(file: IO[bytes]) -> None:
            nonlocal manifest
            manifest = fill(file)

        # Until the new manifest is there, an old one contradicts the new arrays, and the checkpoint is found damaged.
        self._objects.put(f"{name}/{ARRAYS}", size, write)
        self._objects.put(f"{name}/{MANIFEST}", len(manifest), lambda file: _write(file, manifest))

    def manifest(self, name: str) -> bytes:
        """Fetch a manifest. Raises FileNotFoundError, BucketError."""
        with self._objects.get(f"{name}/{MANIFEST}") as file:
            return file.read()

    @contextlib.contextmanager
    def arrays(self, name: str) -> Iterator[IO[bytes]]:
        """Stream the large file. Raises FileNotFoundError, BucketError."""
        with self._objects.get(f"{name}/{ARRAYS}") as file:
            yield file

    def remove(self, name: str) -> None:
        """Remove a checkpoint's objects by one request; what fails is left for `tidy`."""
        with contextlib.suppress(BucketError):
            self._objects.delete([f"{name}/{file}" for file in (MANIFEST, ARRAYS)])

    def tidy(self) -> None:
        """Remove files without a manifest. Raises BucketError."""
        folders = self._folders()
        self._objects.delete(
            [f"{name}/{file}" for name, files in folders.items() if MANIFEST not in files for file in files]
        )

    def set_writer(self, writer: bytes) -> None:
        """Record who writes here from now on. Raises BucketError."""
        self._objects.put(WRITER, len(writer), lambda file: _write(file, writer))

    def writer(self) -> bytes | None:
        """Fetch what was recorded last. Raises BucketError."""
        try:
            with self._objects.get(WRITER) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _folders(self) -> dict[str, list[str]]:
        """List the files of each checkpoint."""
        folders: dict[str, list[str]] = {}
        for path in self._objects.paths():
            name, _, file = path.partition("/")
            if NAME.fullmatch(name) and file:
                folders.setdefault(name, []).append(file)
        return folders


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)
