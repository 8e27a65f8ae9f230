"""TensorBoard events of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import tensorflow as tf

from payload.durable import StorageError, storing

EVENTS_DIRECTORY: Final = "events"


class Events:
    """Write scalars by step, as TensorBoard reads them."""

    def __init__(self, run_dir: Path) -> None:
        """Open an event file of its own; a resumed run adds another beside it. Raises StorageError."""
        self._path = run_dir / EVENTS_DIRECTORY
        with storing(self._path):
            self._path.mkdir(parents=True, exist_ok=True)
        try:
            self._writer = tf.summary.create_file_writer(str(self._path))
        except tf.errors.OpError as error:
            raise StorageError(self._path, OSError(error.message)) from error

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Add one point to each curve and flush it. Raises StorageError."""
        try:
            with self._writer.as_default():
                for name, value in values.items():
                    tf.summary.scalar(name, value, step=step)
            self._writer.flush()
        except tf.errors.OpError as error:
            raise StorageError(self._path, OSError(error.message)) from error

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
