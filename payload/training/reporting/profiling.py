"""A profile of chosen steps, as TensorBoard's profile plugin reads it: events/plugins/profile/TIME/HOST.xplane.pb.

Only rank 0 writes one: of the others it shows how long it waits for them. Steps outside are not slowed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from agent.files.atomic_write import StorageError
from payload.settings.groups import StepSpan

T = TypeVar("T")


class Profiler:
    """Profile the steps of a span."""

    def __init__(self, events: Path, span: StepSpan | None) -> None:
        """Prepare. `events`: TensorBoard's directory of the run; `span`: None for no profile."""
        self._events, self._span = events, span
        self._running = False
        self.profiled = 0
        """Steps profiled so far."""

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Run one step within, counted from 1. A run resumed within the span is profiled from there on."""
        if self._span is None or not self._span.first <= number <= self._span.last:
            yield
            return
        import tensorflow as tf

        if not self._running:
            tf.profiler.experimental.start(str(self._events))
            self._running = True
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            yield
        self.profiled += 1

    def after(self, number: int) -> None:
        """Write the profile once its last step is done. Raises StorageError."""
        if self._span is not None and number >= self._span.last:
            self.close()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark, within a profile, the time in which the step waits for its images."""
        if not self._running:
            yield
            return
        import tensorflow as tf

        with tf.profiler.experimental.Trace("wait for images"):
            yield

    def awaited(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, with the waits for them marked within a profile."""
        source = iter(batches)
        while True:
            with self.waiting():
                batch = next(source, None)
            if batch is None:
                return
            yield batch

    def close(self) -> None:
        """Write the profile, if it is not written yet. Raises StorageError."""
        if not self._running:
            return
        import tensorflow as tf

        self._running = False
        try:
            tf.profiler.experimental.stop()
        except tf.errors.OpError as error:
            raise StorageError(self._events / "plugins" / "profile", OSError(error.message)) from error
