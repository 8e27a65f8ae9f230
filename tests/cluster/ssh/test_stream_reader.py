"""Reading a blocking stream: items, end, errors and timeouts all reach the caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from cluster.ssh.master import SilenceError
from cluster.ssh.stream_reader import MAX_WAITING, BackgroundReader
from tests.waiting import eventually


def test_items_come_in_order_and_the_end_is_none() -> None:
    stream = BackgroundReader(iter(["one", "two"]))
    assert [stream.next(timeout_s=60) for _ in range(3)] == ["one", "two", None]


def test_wait_ends_at_timeout() -> None:
    gate = threading.Event()

    def slow() -> Iterator[str]:
        assert gate.wait(60)
        yield "late"

    stream = BackgroundReader(slow())
    with pytest.raises(SilenceError, match="timed out"):
        stream.next(timeout_s=0.05)
    gate.set()
    assert stream.next(timeout_s=60) == "late"


def test_stream_error_is_raised_to_caller() -> None:
    def broken() -> Iterator[str]:
        yield "one"
        raise KeyError("two")

    stream = BackgroundReader(broken())
    assert stream.next(timeout_s=60) == "one"
    with pytest.raises(KeyError):
        stream.next(timeout_s=60)


def test_endless_stream_waits_for_reader() -> None:
    sent = 0

    def endless() -> Iterator[str]:
        nonlocal sent
        while True:
            sent += 1
            yield "x"

    stream = BackgroundReader(endless())
    eventually(lambda: sent > MAX_WAITING)
    time.sleep(0.1)
    assert sent <= MAX_WAITING + 1
    assert stream.next(timeout_s=5) == "x"


@pytest.mark.parametrize("items", [1, 2 * MAX_WAITING])
def test_abandoned_stream_is_closed_at_its_next_item(items: int) -> None:
    gate, closed = threading.Event(), threading.Event()

    def heard() -> Iterator[str]:
        try:
            yield from ["x"] * items
            assert gate.wait(60)
            yield "a heartbeat"
            pytest.fail("the stream was read on after it was abandoned")
        finally:
            closed.set()

    stream = BackgroundReader(heard())
    assert stream.next(timeout_s=60) == "x"
    stream.abandon()
    gate.set()
    assert closed.wait(60)
