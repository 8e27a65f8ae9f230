"""Do something that is soon wanted while something else is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Call a function in a thread of its own, which holds nobody up who ends without its result."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        """Return what the function returned, waiting for it. Raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result[0]
