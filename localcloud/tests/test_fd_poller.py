"""One thread waits for many descriptors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from localcloud.fd_poller import FdPoller


def test_readable_descriptor_is_called_back_until_it_is_forgotten() -> None:
    poller = FdPoller()
    out, into = os.pipe()
    got = threading.Event()

    def read() -> None:
        os.read(out, 100)
        got.set()

    poller.watch(out, read)
    os.write(into, b"x")
    assert got.wait(60)
    got.clear()
    poller.forget(out)
    os.write(into, b"x")
    assert not got.wait(0.1)
    poller.close()
    os.close(out)
    os.close(into)


@pytest.fixture
def poller() -> Iterator[FdPoller]:
    poller = FdPoller()
    yield poller
    if poller._thread.is_alive():
        poller.close()


def test_descriptor_forgotten_by_another_callback_is_not_called_back(poller: FdPoller) -> None:
    pipes = [os.pipe() for _ in range(3)]
    busy, both_ready, done, called = threading.Event(), threading.Event(), threading.Event(), []

    def hold() -> None:
        os.read(pipes[0][0], 1)
        busy.set()
        assert both_ready.wait(60)

    def forget_the_other(own: int, other: int) -> None:
        called.append(own)
        poller.forget(own)
        poller.forget(other)
        done.set()

    first, second = pipes[1][0], pipes[2][0]
    poller.watch(pipes[0][0], hold)
    poller.watch(first, lambda: forget_the_other(first, second))
    poller.watch(second, lambda: forget_the_other(second, first))
    os.write(pipes[0][1], b"x")
    assert busy.wait(60)
    os.write(pipes[1][1], b"x")
    os.write(pipes[2][1], b"x")
    both_ready.set()
    assert done.wait(60)
    poller.close()
    assert len(called) == 1
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)


def test_failing_descriptor_does_not_stop_the_others() -> None:
    poller = FdPoller()
    (bad_out, bad_in), (out, into) = os.pipe(), os.pipe()
    done = threading.Event()

    def fail() -> None:
        os.read(bad_out, 100)
        raise OSError("broken")

    poller.watch(bad_out, fail)

    def read() -> None:
        os.read(out, 100)
        done.set()

    poller.watch(out, read)
    os.write(bad_in, b"x")
    os.write(into, b"x")
    assert done.wait(60)
    poller.close()
    for fd in (bad_out, bad_in, out, into):
        os.close(fd)
