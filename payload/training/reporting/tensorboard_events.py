"""Write a run's TensorBoard events: curves, histograms, pictures and text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorboard.plugins.histogram import metadata as histogram_metadata

from agent.files.atomic_write import StorageError, storing
from payload.tensorflow_errors import first_line

EVENTS_DIRECTORY: Final = "events"
BUCKETS: Final = 30
"""Number of buckets in a histogram, the same as TensorBoard's."""
FLUSH_MS: Final = 10_000
"""Maximum time until TensorBoard can see a new point."""


class Events:
    """Write the TensorBoard events of a run."""

    def __init__(self, run_dir: Path) -> None:
        """Open a new event file. A resumed run adds another one to the directory. Raises StorageError."""
        self.directory = run_dir / EVENTS_DIRECTORY
        with storing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        with self._storing():
            self._writer = tf.summary.create_file_writer(str(self.directory), flush_millis=FLUSH_MS)

    def scalars(self, step: int, values: Mapping[str, float], *, flush: bool = True) -> None:
        """Add a point at `step` to each curve. `values` are keyed by the curve's name.

        Raises StorageError; without `flush`, possibly at a later call.
        """
        with self._writing(flush=flush):
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)

    def histograms(self, step: int, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add a histogram of each array's finite numbers. Raises StorageError.

        `tf.summary.histogram` is not used, because it needs 240 bytes of memory for each number.
        """
        with self._writing():
            for name, array in arrays.items():
                tf.summary.write(
                    tag=name,
                    tensor=tf.constant(buckets(array)),
                    step=step,
                    metadata=histogram_metadata.create_summary_metadata(display_name=None, description=""),
                )

    def pictures(self, step: int, name: str, pictures: npt.NDArray[np.uint8]) -> None:
        """Add pictures, [N, height, width, 1 or 3], under one name. Raises StorageError."""
        with self._writing():
            tf.summary.image(name, pictures, step=step, max_outputs=len(pictures))

    def text(self, name: str, markdown: str, *, step: int = 0) -> None:
        """Add a text in Markdown. Raises StorageError."""
        with self._writing():
            tf.summary.text(name, markdown, step=step)

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()

    @contextlib.contextmanager
    def _writing(self, *, flush: bool = True) -> Iterator[None]:
        with self._storing(), self._writer.as_default():
            yield
            if flush:
                self._writer.flush()

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            raise StorageError(self.directory, OSError(first_line(error))) from error


def buckets(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Count an array's finite numbers in BUCKETS buckets of equal width.

    Return float64 [BUCKETS, 3], with left edge, right edge and count in each row.
    """
    numbers = np.asarray(array, np.float32).ravel()
    counts, edges = np.histogram(numbers[np.isfinite(numbers)], bins=BUCKETS)
    return np.stack([edges[:-1], edges[1:], counts], axis=1).astype(np.float64)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a table as Markdown, with escaped cells."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
