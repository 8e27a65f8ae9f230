"""Worker processes that make the shards of record files side by side."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool

from agent.errors import ReportedError
from agent.files.atomic_write import StorageError
from payload.data.records.shards import ShardJob, ShardReport, make_shard
from payload.data.types import DataError


def made_shards(jobs: Sequence[ShardJob], workers: int) -> Iterator[tuple[ShardJob, ShardReport]]:
    """Make shards in parallel, and yield each when it is done. After a failure, shards in progress are completed."""
    if not jobs:
        return
    pool = concurrent.futures.ProcessPoolExecutor(
        max_workers=min(workers, len(jobs)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_end_with_parent,
    )
    try:
        futures = {pool.submit(_attempt, job): job for job in jobs}
        for future in concurrent.futures.as_completed(futures):
            report = future.result()
            if isinstance(report, str):
                raise DataError(report)
            yield futures[future], report
    except BrokenProcessPool:
        raise DataError("a worker was killed, perhaps for want of memory; run the same command again") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _attempt(job: ShardJob) -> ShardReport | str:
    """Make a shard in a worker; return an error as text, since not every error can be pickled."""
    try:
        return make_shard(job)
    except StorageError as error:
        text = str(error).partition("; make room")[0]
        return f"{text}; make room there and run the same command again"
    except ReportedError as error:
        return str(error)


def _end_with_parent() -> None:
    """End this worker when the maker has been killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
