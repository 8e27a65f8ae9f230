"""Yield one rank's batches, from memory or record files.

The examples of a step depend on seed, epoch and step. Random changes depend on seed, epoch and example. A run can
therefore resume at any step, on any number of ranks, and sees the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from payload.data.dataset import Batch, Split, View
from payload.data.pipeline import memory_batches, record_batches
from payload.data.pipeline.evaluation_batches import record_test_batches
from payload.data.pipeline.sharding import Shares
from payload.data.records.record_split import RecordSplit


def training_batches(
    split: Split,
    view: View,
    *,
    seed: int,
    epoch: int,
    first_step: int = 0,
    global_batch: int,
    rank: int,
    ranks: int,
    threads: int = 0,
) -> Iterator[Batch]:
    """Yield this rank's batches for an epoch, from `first_step`. Epochs and steps count from 0.

    All batches have the same shape, and every rank gets the same number of batches. `threads`: threads that prepare
    images; 0: one for each core of this process. Raises DataError for a damaged record, unless the split skips such
    records, or if images cannot be prepared. Raises CustomOpError if the op for record files is not installed.
    """
    shares = Shares(
        order=split.order(seed=seed, epoch=epoch),
        global_batch=global_batch,
        rank=rank,
        ranks=ranks,
        by_place=isinstance(split, RecordSplit),
    )
    if isinstance(split, RecordSplit):
        records = split.records_for(view)
        crops = record_batches.training_crops(records, view, seed, epoch)
        return record_batches.batches(split, records, view, shares, crops, first_step=first_step, threads=threads)
    return memory_batches.batches(split, view, shares, (seed, epoch), first_step, threads)  # type: ignore[arg-type]


def test_batches(
    split: Split, view: View, *, slots: int, rank: int, ranks: int, threads: int = 0, ranks_on_node: int = 1
) -> Iterator[Batch]:
    """Yield this rank's batches of test images. Over all ranks, each image is used once.

    `slots`: maximum number of images in a batch. `threads`: as for `training_batches`. Random changes of the view are
    ignored. From record files, rectangular images are grouped by shape, and decoded images may stay in memory,
    depending on the split's `cache` and on `ranks_on_node`, the ranks that share the memory. Raises the errors of
    `training_batches`.
    """
    if isinstance(split, RecordSplit):
        return record_test_batches(
            split, view, slots=slots, rank=rank, ranks=ranks, threads=threads, ranks_on_node=ranks_on_node
        )
    shares = Shares(
        order=np.arange(split.examples), global_batch=min(slots * ranks, split.examples), rank=rank, ranks=ranks
    )
    return memory_batches.batches(split, view, shares, None, 0, threads)  # type: ignore[arg-type]
