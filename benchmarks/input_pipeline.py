"""Set the input pipeline beside bare JPEG decode-and-crop of the same images: python -m benchmarks.input_pipeline.

The images are drawn: 256 JPEG of 400 x 350, shapes on soft colours and noise, about 60 KB each, 16 times over in 8
record files, so that an epoch is long beside its start. The view is ImageNet's: random crops of 8% to all of the area,
to 224 x 224, mirrored. Three programs run in turn, on the same cores, over the same images and as many crops of the
same kind; each figure is a median, each ratio one of runs side by side:

- bare: a tf.data `map` of `decode_and_crop_jpeg` over JPEG in memory. Its crops keep their sizes.
- resized: the same, and `resize` to 224 x 224, which a batch needs, and the batch.
- pipeline: `training_batches` from the files: shuffled, read, checked, decoded, mirrored, resized, batched.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from agent.hardware.machine import this_machine

DRAWN: Final = 256
TIMES: Final = 16
IMAGES: Final = DRAWN * TIMES
FILES: Final = 8
HEIGHT, WIDTH = 350, 400
SIZE: Final = 224
BATCH: Final = 128
SMALLEST_CROP: Final = 0.08
AIM: Final = 0.9


def picture(label: int, seed: int) -> bytes:
    """Draw a shape on soft colours with some noise, as JPEG; about as many bytes as a photograph of its size."""
    from tests.payload.data.drawings import drawing

    random = np.random.default_rng(seed)
    soft = Image.fromarray(random.integers(0, 256, (12, 14, 3)).astype(np.uint8)).resize(
        (WIDTH, HEIGHT), Image.Resampling.BICUBIC
    )
    shape = drawing(label, height=HEIGHT, width=WIDTH, seed=seed)
    mixed = np.where(shape.max(axis=2, keepdims=True) > 130, shape, np.asarray(soft)).astype(np.float64)
    noisy = np.clip(mixed + random.normal(0, 12, mixed.shape), 0, 255).astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(noisy).save(content, "JPEG", quality=90)
    return content.getvalue()


def write(directory: Path) -> list[bytes]:
    """Write the record files; return the images."""
    from tests.payload.data.drawings import record

    contents = [picture(n % 4, n) for n in range(DRAWN)]
    for number in range(FILES):
        with (directory / f"train-{number:05d}-of-{FILES:05d}").open("wb") as file:
            for n in range(number * IMAGES // FILES, (number + 1) * IMAGES // FILES):
                file.write(record(contents[n % DRAWN], n % 4))
    return contents


def bare(contents: Sequence[bytes], boxes: npt.NDArray[np.int32], cores: int, *, resized: bool) -> Callable[[], None]:
    """Return a program that decodes all images once, and no more, or resizes and batches them too."""
    import tensorflow as tf

    def decode(content: Any, box: Any) -> Any:
        crop = tf.io.decode_and_crop_jpeg(content, box, channels=3)
        return tf.image.resize(crop, [SIZE, SIZE]) if resized else crop

    dataset = tf.data.Dataset.from_tensor_slices((list(contents) * TIMES, boxes))
    dataset = dataset.map(decode, num_parallel_calls=cores, deterministic=True)
    if resized:
        dataset = dataset.batch(BATCH, drop_remainder=True)
    options = tf.data.Options()
    options.threading.private_threadpool_size = cores
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    dataset = dataset.prefetch(2 if resized else 2 * BATCH).with_options(options)

    def run() -> None:
        dataset.reduce(np.int64(0), lambda count, _: count + 1).numpy()

    return run


def pipeline(part: Any, cores: int) -> Callable[[int], None]:
    """Return a program that takes all batches of an epoch from the pipeline."""
    from payload.data.pipeline.batches import training_batches
    from payload.data.types import View

    view = View(size=(SIZE, SIZE), smallest_crop=SMALLEST_CROP, flip=True)

    def run(epoch: int) -> None:
        for _ in training_batches(part, view, seed=1, epoch=epoch, global_batch=BATCH, rank=0, ranks=1, threads=cores):
            pass

    return run


@dataclasses.dataclass(kw_only=True)
class Rates:
    """What one program reached, by repeat."""

    by_clock: list[float] = dataclasses.field(default_factory=list)
    """Images a second."""
    by_processor: list[float] = dataclasses.field(default_factory=list)
    """Images a second of processor time, which other work on the machine hardly changes."""


def measure(repeats: int) -> tuple[dict[str, Rates], float]:
    """Return what each program reached, and the mean bytes of an image."""
    from payload.data.pipeline.crops import random_boxes
    from payload.data.records.record_split import open_record_splits

    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        contents = write(Path(name))
        part, _ = open_record_splits(Path(name), name="drawings", classes=0, skip=False, cache="none", with_test=False)
        sizes = np.tile([HEIGHT, WIDTH], (IMAGES, 1))
        boxes = random_boxes(sizes, np.arange(IMAGES), smallest=SMALLEST_CROP, seed=1, epoch=0)
        whole = pipeline(part, cores)
        programs: dict[str, Callable[[], None]] = {
            "bare": bare(contents, boxes, cores, resized=False),
            "resized": bare(contents, boxes, cores, resized=True),
            "pipeline": lambda: whole(0),
        }
        for program in programs.values():
            program()
        rates = {kind: Rates() for kind in programs}
        for repeat in range(repeats):
            turn = list(programs.items())
            for kind, program in turn[repeat % 3 :] + turn[: repeat % 3]:
                began, used = time.perf_counter(), time.process_time()
                program()
                rates[kind].by_clock.append(IMAGES / (time.perf_counter() - began))
                rates[kind].by_processor.append(IMAGES / (time.process_time() - used))
    return rates, statistics.mean(map(len, contents))


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 where the aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input_pipeline", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="times that each program runs (15)")
    repeats = parser.parse_args(list(argv)).repeats
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    machine = this_machine()
    rates, size = measure(repeats)
    print(f"{machine}; {IMAGES} JPEG of {WIDTH} x {HEIGHT}, {size / 1024:.0f} KiB each; {repeats} repeats in turn")
    columns = ("images/s", "ratio", "images/s of processor", "ratio")
    print(f"{'program':10}" + "".join(f"{column:>{len(column) + 3}}" for column in columns))
    ratios = {}
    for name, found in rates.items():
        ours = rates["pipeline"]
        by_clock, by_processor = _ratio(ours.by_clock, found.by_clock), _ratio(ours.by_processor, found.by_processor)
        figures = f"{statistics.median(found.by_clock):11.0f}{by_clock:8.3f}"
        print(f"{name:10}{figures}{statistics.median(found.by_processor):24.0f}{by_processor:8.3f}")
        ratios[name] = by_clock
    reached = ratios["bare"] >= AIM
    print(f"aimed at: {AIM} of bare decode-and-crop: {'reached' if reached else 'not reached'}")
    return 0 if reached else 1


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return how many times as quick the pipeline is: the median over runs side by side."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
