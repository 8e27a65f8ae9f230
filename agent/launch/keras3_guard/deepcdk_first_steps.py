"""Measure a program's first steps: the time between the calls of the `tf.function` that adds up gradients.

Python finds this module beside `sitecustomize`, which imports it. That a function adds up gradients is seen while it is
traced, when it calls Horovod. Horovod makes such a function of its own for gradients that a program adds up outside of
any. Where several functions do, the one that is first called often enough is the step. After that everything is as it
was before.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import threading
import time
import weakref
from pathlib import Path
from typing import Any

REDUCTIONS = ("_allreduce", "_grouped_allreduce")
"""Functions of `horovod.tensorflow` through which its allreduce, tape and optimizers all go."""
SKIPPED = 5
"""Steps before those that are measured: the first is traced, and pools of memory fill in the next."""
MEASURED = 20


class FirstSteps:
    """The steps of one program, until enough of them are measured."""

    def __init__(self, path: str) -> None:
        """Write to `path` when enough steps are measured."""
        self._path = Path(path)
        self._thread = threading.get_ident()
        self._running: list[object] = []
        """Functions under way, the outermost first."""
        self._began: weakref.WeakKeyDictionary[object, list[float]] = weakref.WeakKeyDictionary()
        """When each function that adds up gradients was called."""
        self._replaced: list[tuple[Any, str, Any]] = []

    def watch(self, horovod: Any, function: Any) -> None:
        """Watch calls from now on: of Horovod's reductions, and of `function`, the class of TensorFlow's functions."""
        for name in REDUCTIONS:
            self._replace(horovod, name, self._reducing(getattr(horovod, name)))
        self._replace(function, "__call__", self._calling(function.__call__))

    def _replace(self, owner: Any, name: str, by: Any) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, by)

    def _reducing(self, original: Any) -> Any:
        def reduce(*args: Any, **kwargs: Any) -> Any:
            if self._running and threading.get_ident() == self._thread:
                self._began.setdefault(self._running[0], [])
            return original(*args, **kwargs)

        return reduce

    def _calling(self, original: Any) -> Any:
        def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(function, *args, **kwargs)
            if not self._running and (began := self._began.get(function)) is not None:
                self._note(began, time.perf_counter())
            self._running.append(function)
            try:
                return original(function, *args, **kwargs)
            finally:
                self._running.pop()

        return call

    def _note(self, began: list[float], now: float) -> None:
        began.append(now)
        if len(began) == SKIPPED + MEASURED + 1:
            for owner, name, original in self._replaced:
                setattr(owner, name, original)
            self._began.clear()
            self._write(statistics.median(after - before for before, after in itertools.pairwise(began[SKIPPED:])))

    def _write(self, seconds: float) -> None:
        """Write a step's time at once or not at all; a file system that refuses costs the next run its cycle alone."""
        document = {"step_ms": round(seconds * 1e3, 3), "run": os.environ.get("DEEPCDK_RUN", "")}
        written = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(json.dumps(document), encoding="utf-8")
            written.replace(self._path)


def watch(path: str, horovod: Any) -> None:
    """Measure the first steps of a program that has just imported `horovod.tensorflow`, as far as it is as expected."""
    import tensorflow as tf

    if all(hasattr(horovod, name) for name in REDUCTIONS):
        FirstSteps(path).watch(horovod, type(tf.function(lambda: None)))
