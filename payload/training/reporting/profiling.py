"""Profile selected steps for TensorBoard's profile plugin: events/plugins/profile/TIME/HOST.xplane.pb.

Only rank 0 writes a profile. It shows how long rank 0 waits for other ranks. Steps outside the span are not slowed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from agent.files.atomic_write import StorageError
from payload.settings.training import StepSpan
from payload.tensorflow_errors import first_line

T = TypeVar("T")


class Profiler:
    """Profile the steps in a span."""

    def __init__(self, events: Path, span: StepSpan | None) -> None:
        """`events`: the run's directory for TensorBoard. `span`: the steps to profile; None: none."""
        self._events, self._span = events, span
        self._running = False
        self.profiled = 0
        """Number of steps profiled so far."""

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Profile the block if `number`, the step that it runs, is in the span. Steps count from 1.

        The first step in the span starts the profile, also if the run was resumed within the span.
        """
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
        """Write the profile if step `number`, which is done, is the last in the span or later. Raises StorageError."""
        if self._span is not None and number >= self._span.last:
            self.close()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark a wait for images in the profile."""
        if not self._running:
            yield
            return
        import tensorflow as tf

        with tf.profiler.experimental.Trace("wait for images"):
            yield

    def awaited(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, and mark the wait for each in the profile."""
        source = iter(batches)
        while True:
            with self.waiting():
                batch = next(source, None)
            if batch is None:
                return
            yield batch

    def close(self) -> None:
        """Write the profile if one is in progress. Raises StorageError."""
        if not self._running:
            return
        import tensorflow as tf

        self._running = False
        try:
            tf.profiler.experimental.stop()
        except tf.errors.OpError as error:
            raise StorageError(self._events / "plugins" / "profile", OSError(first_line(error))) from error
