"""Facts about reading a blocking stream: items, end, errors and time-outs all reach the caller."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from cluster.ssh.stream_reader import BackgroundReader


def test_items_come_in_order_and_the_end_is_none() -> None:
    stream = BackgroundReader(iter(["one", "two"]))
    assert [stream.next(timeout_s=60) for _ in range(3)] == ["one", "two", None]


def test_a_wait_ends_in_time() -> None:
    gate = threading.Event()

    def slow() -> Iterator[str]:
        assert gate.wait(60)
        yield "late"

    stream = BackgroundReader(slow())
    with pytest.raises(queue.Empty):
        stream.next(timeout_s=0.05)
    gate.set()
    assert stream.next(timeout_s=60) == "late"


def test_an_error_of_the_stream_is_the_callers() -> None:
    def broken() -> Iterator[str]:
        yield "one"
        raise KeyError("two")

    stream = BackgroundReader(broken())
    assert stream.next(timeout_s=60) == "one"
    with pytest.raises(KeyError):
        stream.next(timeout_s=60)
