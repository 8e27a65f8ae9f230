"""Make batches of test images from record files: centered crops, square or near the image's aspect ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from agent.hardware import memory
from payload.data.dataset import Batch, View
from payload.data.pipeline.augmentation import middle_boxes
from payload.data.pipeline.record_batches import Crops, batches
from payload.data.pipeline.sharding import Share, Shares
from payload.data.records.index import RecordIndex
from payload.data.records.record_split import CHANNELS, MARGIN, RecordSplit

RATIO_STEPS: Final = 4
"""Steps between a square and a shape twice as wide or high: nine shapes in all, each traced once. Neighbors differ
by a factor of 1.19, so an image's centered crop, within its margin, fits the nearest shape."""
MULTIPLE: Final = 8
"""Sides of rectangular images are multiples of this number, because networks halve them repeatedly."""
MEMORY_SHARE: Final = 4
"""Decoded images are kept only if they need at most 1 / MEMORY_SHARE of the memory."""


def record_test_batches(
    split: RecordSplit, view: View, *, slots: int, rank: int, ranks: int, threads: int, ranks_on_node: int
) -> Iterator[Batch]:
    """Yield this rank's batches of test images. Arguments and errors are those of `test_batches`.

    Decoded batches are kept in memory if the split's `cache` is `test`, or if it is `auto` and those of all ranks on
    the node fit into a quarter of the memory. The next call with the same view and shares yields them again. A call
    with another view or other shares replaces them.
    """
    key = (view.size, view.rectangular, slots, rank, ranks)
    if key in split.kept:
        yield from split.kept[key]
        return
    records = split.records_for(view)
    groups = _groups(records, view, slots=slots, rank=rank, ranks=ranks)
    keeps = split.cache == "test" or (split.cache == "auto" and _fits(groups, ranks_on_node))
    decoded: list[Batch] = []
    for size, shares in groups:
        crops = _test_crops(records, size)
        for batch in batches(split, records, View(size=size), shares, crops, first_step=0, threads=threads):
            if keeps:
                decoded.append(batch)
            yield batch
    if keeps:
        split.kept.clear()
        split.kept[key] = decoded


def shapes(sizes: npt.NDArray[np.integer], side: int) -> npt.NDArray[np.int64]:
    """Return height and width of each image's crop, int64 [N, 2]: the nearest of nine shapes.

    `sizes`: [N, 2], height and width of the images. `side`: shorter side of all nine shapes, pixels. The nine shapes
    range from twice as high as wide to twice as wide as high. A longer side is a multiple of MULTIPLE.
    """
    ratios = np.log2(sizes[:, 1] / sizes[:, 0])
    steps = np.clip(np.rint(ratios * RATIO_STEPS), -RATIO_STEPS, RATIO_STEPS)
    longer = (np.rint(side * 2 ** (abs(steps) / RATIO_STEPS) / MULTIPLE) * MULTIPLE).clip(min=side)
    height, width = np.where(steps < 0, longer, side), np.where(steps < 0, side, longer)
    return np.stack([height, width], axis=1).astype(np.int64)


def _groups(
    records: RecordIndex, view: View, *, slots: int, rank: int, ranks: int
) -> list[tuple[tuple[int, int], Shares]]:
    """Group the images by the shape of their crops; return each shape with this rank's shares of its images.

    Unless the view is rectangular, all images have the view's size.
    """
    table = records.table
    wanted = np.tile(np.array(view.size), (len(table), 1))
    if view.rectangular:
        wanted = shapes(np.stack([table["height"], table["width"]], axis=1), min(view.size))
    found, which = np.unique(wanted, axis=0, return_inverse=True)
    groups = []
    for number, (height, width) in enumerate(found):
        order = np.flatnonzero(which.ravel() == number)
        shares = Shares(order=order, global_batch=min(slots * ranks, len(order)), rank=rank, ranks=ranks)
        groups.append(((int(height), int(width)), shares))
    return groups


def _test_crops(records: RecordIndex, size: tuple[int, int]) -> Callable[[Share], Crops]:
    """Return a function that computes the crops for a share of test images: centered, with the ratio of `size`.

    They keep MARGIN of an image's shorter side. Images are neither mirrored nor moved.
    """
    table = records.table

    def crops(share: Share) -> Crops:
        sizes = np.stack([table["height"][share.positions], table["width"][share.positions]], axis=1)
        boxes = middle_boxes(sizes, size, fraction=MARGIN)
        still = np.zeros((len(boxes), 0), np.float32)
        return Crops(boxes=boxes, mirrored=np.zeros(len(boxes), bool), moves=still)

    return crops


def _fits(groups: list[tuple[tuple[int, int], Shares]], ranks_on_node: int) -> bool:
    needed = sum(height * width * CHANNELS * shares.slots * shares.steps for (height, width), shares in groups)
    return needed * ranks_on_node * MEMORY_SHARE <= memory.read_sample().size
