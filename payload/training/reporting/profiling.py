"""A profile of chosen steps, as TensorBoard's profile plugin reads it: events/plugins/profile/TIME/HOST.xplane.pb.

Only rank 0 writes one: of the others it shows how long it waits for them. Steps outside are not slowed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from agent.files.atomic_write import StorageError
from payload.settings import SettingError

T = TypeVar("T")

_SPAN: Final = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """Name the steps to profile, counted from 1 since the beginning of the run, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Span | None:
        """Read FIRST-LAST or one number; None for "". Raises SettingError."""
        if not text:
            return None
        found = _SPAN.fullmatch(text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last:
            rule = "must be FIRST-LAST, steps counted from 1, as 20-25"
            raise SettingError("--profile-steps", text, rule)
        return cls(first=first, last=last)


class Profiler:
    """Profile the steps of a span, and do nothing around others."""

    def __init__(self, events: Path, span: Span | None) -> None:
        """Prepare. `events`: TensorBoard's directory of the run; `span`: None for no profile."""
        self._events, self._span = events, span
        self._running = False
        self.profiled = 0
        """Steps profiled so far."""

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Take one step within, counted from 1. Where a resumed run begins within the span, so does the profile."""
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
        """Write what has been profiled, where that is not done yet. Raises StorageError."""
        if not self._running:
            return
        import tensorflow as tf

        self._running = False
        try:
            tf.profiler.experimental.stop()
        except tf.errors.OpError as error:
            raise StorageError(self._events / "plugins" / "profile", OSError(error.message)) from error
