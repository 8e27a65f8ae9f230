"""Time the input pipeline of `payload.train` with generated JPEGs in record files on the node's local disk."""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import storing
from payload.settings.bench import Cell

DRAWN: Final = 32
"""Number of distinct images. A pass uses each of them several times."""
HEIGHT, WIDTH = 375, 500
"""Pixels, near ImageNet's average of 469 x 387 (Russakovsky et al. 2015, as commonly quoted)."""
QUALITY: Final = 90
SMALLEST_CROP: Final = 0.08
"""Minimum fraction of the area that a random crop keeps, as for ImageNet."""


class InputBench:
    """Generate images once, and time passes over them. Call `remove` at the end."""

    def __init__(self, home: Path) -> None:
        """`home`: directory on the node's local disk. The first call of `seconds` writes the images there."""
        self._home = home
        self._folder = ""
        self._split: Any = None
        self._epoch = 0

    def seconds(self, cell: Cell) -> float:
        """Read, check, crop, decode and batch all images once on this rank; return the time in seconds.

        The first call generates `cell.batch_per_rank` images, and makes one pass before the timed one. Later calls use
        the same images, even if their cell has another number. Raises ReportedError, for example if the disk is full.
        """
        if self._split is None:
            self._split = self._draw(cell.batch_per_rank)
            self._pass(cell)
        return self._pass(cell)

    def remove(self) -> None:
        """Remove the generated files. Errors are ignored."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _pass(self, cell: Cell) -> float:
        from payload.data.dataset import View
        from payload.data.pipeline.batches import training_batches

        view = View(size=(cell.image_size, cell.image_size), smallest_crop=SMALLEST_CROP, flip=True)
        began, self._epoch = time.perf_counter(), self._epoch + 1
        batches = training_batches(
            self._split,
            view,
            seed=1,
            epoch=self._epoch,
            global_batch=min(32, cell.batch_per_rank),
            rank=0,
            ranks=1,
        )
        for _ in batches:
            pass
        return time.perf_counter() - began

    def _draw(self, count: int) -> Any:
        from payload.data.records.record_split import open_record_splits
        from payload.data.records.tf_example import IMAGE, LABEL, example
        from payload.data.records.tfrecord import framed

        records = [framed(example({IMAGE: _picture(number), LABEL: 1 + number % 2})) for number in range(DRAWN)]
        with storing(self._home):
            self._folder = tempfile.mkdtemp(prefix=".bench-input-", dir=self._home)
            with (Path(self._folder) / "train-00000-of-00001").open("wb") as file:
                for number in range(count):
                    file.write(records[number % DRAWN])
        split, _ = open_record_splits(
            Path(self._folder), name="drawn", classes=0, skip=False, cache="none", with_test=False
        )
        return split


def _picture(seed: int) -> bytes:
    """Return a JPEG of soft colors with noise. It takes as long to decode as a photograph of its size and quality."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3)).astype(np.uint8))
    soft = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), dtype=np.float64)
    noisy = np.clip(soft + random.normal(0, 12, soft.shape), 0, 255).astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(noisy).save(content, "JPEG", quality=QUALITY)
    return content.getvalue()
