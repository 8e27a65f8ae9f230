"""Make batches from record files: read a step's records together, then decode, crop and resize them in parallel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from payload.data.dataset import Batch, DataError, View
from payload.data.pipeline.augmentation import flips, middle_boxes, random_boxes, transforms
from payload.data.pipeline.image_view import image_view, load
from payload.data.pipeline.sharding import Share, Shares
from payload.data.pipeline.tf_data import PREFETCHED_BATCHES, cores, options, resample
from payload.data.records.image_header import PNG
from payload.data.records.index import RecordIndex
from payload.data.records.record_split import CHANNELS, RecordReader, RecordSplit
from payload.tensorflow_errors import first_line

MCU_WIDTH: Final = 16
"""Width of the coding unit of most JPEGs (8 and 32 also occur). A window that begins at a multiple of it is
decoded in place. Otherwise, each row is copied once more."""
READS: Final = 4
"""Steps to read concurrently, to overlap the waits for a shared file system."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crops:
    """The box to crop from each image of a share, and the changes to apply."""

    boxes: npt.NDArray[np.int32]
    """[slots, 4]: top, left, height, width."""
    mirrored: npt.NDArray[np.bool_]
    """[slots]: whether the image is mirrored."""
    moves: npt.NDArray[np.float32]
    """[slots, 8], see `payload.data.pipeline.augmentation.transforms`; [slots, 0] if the view does not move images."""


def training_crops(records: RecordIndex, view: View, seed: int, epoch: int) -> Callable[[Share], Crops]:
    """Return a function that computes the crops for the images of a training step's share.

    A box is random if the view has random crops, otherwise centered. The view also decides whether images are mirrored
    and moved at random. Random numbers depend on seed, epoch and example.
    """
    table = records.table

    def crops(share: Share) -> Crops:
        examples = share.positions
        sizes = np.stack([table["height"][examples], table["width"][examples]], axis=1)
        if view.smallest_crop:
            boxes = random_boxes(sizes, examples, smallest=view.smallest_crop, seed=seed, epoch=epoch)
        else:
            boxes = middle_boxes(sizes, view.size)
        mirrored = flips(examples, seed=seed, epoch=epoch) if view.flip else np.zeros(len(examples), bool)
        moves = np.zeros((len(examples), 0), np.float32)
        if view.moves:
            whole = np.tile(np.array([0, 0, *view.size]), (len(examples), 1))
            moves = transforms(whole, np.zeros(len(examples), bool), view, examples, seed=seed, epoch=epoch)
        return Crops(boxes=boxes, mirrored=mirrored, moves=moves)

    return crops


def batches(
    split: RecordSplit,
    records: RecordIndex,
    view: View,
    shares: Shares,
    crops: Callable[[Share], Crops],
    *,
    first_step: int,
    threads: int,
) -> Iterator[Batch]:
    """Yield the batches of these shares from `first_step`, with images of `view.size`.

    `records`: the resolution of the split to read. `crops` computes the crops of a share's images. `threads`: images to
    decode concurrently; 0: one for each core of this process. Raises RecordError for a record that is damaged or cannot
    be decoded. If the split skips such records, the pipeline restarts at their step without them. Raises DataError if a
    step fails for another reason, and CustomOpError if the custom op is not installed.
    """
    load()
    reader = RecordReader(split=split, records=records)
    step = first_step
    while step < shares.steps:
        try:
            for images in _images(reader, view, shares, crops, step, threads):
                yield _batch(reader, shares[step], images)
                step += 1
        except tf.errors.OpError as error:
            if reader.error is not None:
                raise reader.error from None
            _find_damaged(reader, shares[step], error)


def _batch(reader: RecordReader, share: Share, images: Any) -> Batch:
    damaged = np.array([int(position) in reader.split.damaged for position in share.positions]) & (share.weights > 0)
    return Batch(
        images=images,
        labels=tf.constant(reader.split.labels[share.positions]),
        weights=tf.constant(share.weights * ~damaged),
        batch_size=share.batch_size,
        skipped=int(damaged.sum()),
    )


def _images(
    reader: RecordReader, view: View, shares: Shares, crops: Callable[[Share], Crops], first_step: int, threads: int
) -> Iterator[Any]:
    """Yield the images of each step, [slots, height, width, 3]: float32 if the view moves them, otherwise uint8.

    Unused slots and damaged images are black.
    """
    with_png = bool((reader.records.table["kind"] == PNG).any())
    at_once = threads or cores()
    columns = 5 if view.moves else 4
    black = tf.io.encode_jpeg(tf.zeros([1, 1, CHANNELS], tf.uint8)).numpy()

    def read(step: int) -> tuple[npt.NDArray[Any], ...]:
        share = shares[int(step)]
        chosen = crops(share)
        images = np.full(len(share.positions), black, object)
        boxes = np.tile(np.array([0, 0, 1, 1], np.int32), (len(images), 1))
        used = share.positions[: share.used]
        for slot, (position, image) in enumerate(zip(used, reader.read(used), strict=True)):
            if image and int(position) not in reader.split.damaged:
                images[slot], boxes[slot] = image, chosen.boxes[slot]
        return (images, *windows(boxes), chosen.mirrored, chosen.moves)[:columns]

    def records(step: Any) -> Any:
        types = (tf.string, tf.int32, tf.int32, tf.bool, tf.float32)
        shapes: tuple[list[int], ...] = ([], [4], [4], [], [8])
        found = tf.numpy_function(read, [step], types[:columns])
        for each, shape in zip(found, shapes, strict=False):
            each.set_shape([shares.slots, *shape])
        return tuple(found)

    def image(encoded: Any, window: Any, box: Any, mirrored: Any, *moves: Any) -> Any:
        return decoded(encoded, window, box, view.size, with_png=with_png, mirrored=mirrored), *moves

    dataset = tf.data.Dataset.range(first_step, shares.steps)
    dataset = dataset.map(records, num_parallel_calls=READS).unbatch()
    dataset = dataset.map(image, num_parallel_calls=at_once).batch(shares.slots, drop_remainder=True)
    if view.moves:
        dataset = dataset.map(lambda images, moves: (resample(images, moves, view.size),), num_parallel_calls=at_once)
    return (images for (images,) in dataset.prefetch(PREFETCHED_BATCHES).with_options(options(at_once)))


def windows(boxes: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the part of each image to decode (its window), and the box within the window; [N, 4] each.

    The left side of a window is at a multiple of MCU_WIDTH.
    """
    window, box = boxes.copy(), boxes.copy()
    box[:, 0], box[:, 1] = 0, boxes[:, 1] % MCU_WIDTH
    window[:, 1] -= box[:, 1]
    window[:, 3] += box[:, 1]
    return window, box


def decoded(
    encoded: Any, window: Any, box: Any, size: tuple[int, int], *, with_png: bool, mirrored: Any = False
) -> Any:
    """Decode only a window of an image, and return the box in it, resized, as uint8 [*size, 3].

    `encoded`: a JPEG, or if `with_png`, a JPEG or PNG. `window`, relative to the image, and `box`, relative to the
    window: int32 [4]. `mirrored`: bool, or a bool tensor.
    """
    if with_png:
        is_png = tf.equal(tf.strings.substr(encoded, 0, 4), b"\x89PNG")
        pixels = tf.cond(is_png, lambda: _png(encoded, window), lambda: _jpeg(encoded, window))
    else:
        pixels = _jpeg(encoded, window)
    return image_view(pixels, box, size, mirrored=mirrored)


def _jpeg(encoded: Any, window: Any) -> Any:
    return tf.io.decode_and_crop_jpeg(encoded, window, channels=CHANNELS)


def _png(encoded: Any, window: Any) -> Any:
    image = tf.io.decode_png(encoded, channels=CHANNELS)
    top, left, height, width = tf.unstack(window)
    return image[top : top + height, left : left + width]


def _find_damaged(reader: RecordReader, share: Share, error: Exception) -> None:
    """Find the images of a step that cannot be decoded, after TensorFlow failed with `error`.

    If the split skips damaged records, mark these images as damaged. Otherwise, raise RecordError for the first. Raises
    DataError if all images can be decoded.
    """
    found = False
    used = share.positions[: share.used]
    for position, encoded in zip(used, reader.read(used), strict=True):
        if int(position) in reader.split.damaged:
            continue
        row = reader.records.table[position]
        whole = tf.constant([0, 0, int(row["height"]), int(row["width"])])
        try:
            decoded(tf.constant(encoded), whole, whole, (8, 8), with_png=bool(row["kind"] == PNG))
        except tf.errors.OpError as fault:
            fix = "" if reader.split.skip else "; copy the file again, or skip such records with --corrupt skip"
            damage = reader.fault(int(position), f"its image cannot be decoded: {first_line(fault)}{fix}")
            if not reader.split.skip:
                raise damage from None
            reader.leave_out(np.array([position]), str(damage))
            found = True
    if not found:
        raise DataError(
            f"the {reader.split.name} could not be prepared, although each image can be decoded: "
            f"{first_line(error)}; if memory ran out, use a smaller batch: in training --batch-per-rank or "
            "--global-batch, in payload.evaluate --batch"
        ) from error
