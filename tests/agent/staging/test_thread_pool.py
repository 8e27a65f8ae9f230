"""Work on several files concurrently."""

from __future__ import annotations

import threading

import pytest

from agent.staging.thread_pool import map_unordered


def test_every_result_comes_once() -> None:
    assert sorted(map_unordered(lambda number: number * 2, range(100))) == list(range(0, 200, 2))
    assert list(map_unordered(str, [])) == []


def test_eight_daemon_threads_by_default() -> None:
    meeting, workers = threading.Barrier(8, timeout=60), set[threading.Thread]()

    def work(_: int) -> None:
        workers.add(threading.current_thread())
        meeting.wait()

    assert len(list(map_unordered(work, range(16)))) == 16
    assert len(workers) == 8
    assert all(worker.daemon for worker in workers)


def test_first_error_is_raised_and_pending_work_is_skipped() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        list(map_unordered(work, range(10_000), workers=2))
    assert len(begun) < 10_000


def test_stopping_early_leaves_no_running_threads() -> None:
    workers: set[threading.Thread] = set()
    found = map_unordered(lambda _: workers.add(threading.current_thread()), range(10_000), workers=2)
    next(found)
    found.close()  # type: ignore[attr-defined]  # it is a generator
    assert workers and not any(worker.is_alive() for worker in workers)
