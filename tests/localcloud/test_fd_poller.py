"""One thread that waits on many descriptors."""

from __future__ import annotations

import os
import threading

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


def test_a_failing_descriptor_does_not_stop_the_others() -> None:
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


def test_the_thread_is_gone_once_it_is_closed() -> None:
    before = set(threading.enumerate())
    poller = FdPoller()
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon, "a process that ends in an error does not wait for it"
    poller.close()
    assert not thread.is_alive()
