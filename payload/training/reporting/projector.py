"""Write embeddings for TensorBoard's projector: the last features of test images, with labels and thumbnails.

events/projector_config.pbtxt     configuration
events/embedding/features.tsv     one line for each image, one column for each feature
events/embedding/labels.tsv       true and predicted class of each image
events/embedding/sprite.png       all thumbnails in a square grid
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google.protobuf import text_format
from PIL import Image
from tensorboard.plugins.projector.metadata import PROJECTOR_FILENAME
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from agent.files.atomic_write import replace_file, storing
from payload.training.reporting.image_grid import Pixels, image_grid, thumbnails

MAX_IMAGES: Final = 1000
MAX_NUMBERS: Final = 500_000
"""Maximum numbers in all points: about 4 MB of text, which a browser can still rotate smoothly."""
THUMBNAIL_SIDE: Final = 48
"""Maximum side of a thumbnail, pixels. Smaller images keep their size."""
_FOLDER: Final = "embedding"


def image_count(available: int, features: int) -> int:
    """Return how many of the `available` images to show, at least 1.

    It is at most MAX_IMAGES, and so small that all images together have at most MAX_NUMBERS values (`features` each).
    """
    return max(1, min(available, MAX_IMAGES, MAX_NUMBERS // features))


def write_projector(
    events: Path, *, features: npt.NDArray[Any], truth: Sequence[str], recognized: Sequence[str], images: Pixels
) -> None:
    """Write the points of [N, D] features with their images, [N, height, width, 1 or 3], to the directory `events`.

    `truth`, `recognized`: names of the true and predicted class of each image. The configuration is written last, so
    that TensorBoard never sees a partial embedding. Raises StorageError.
    """
    folder = events / _FOLDER
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    points = "".join("\t".join(f"{value:.4g}" for value in row) + "\n" for row in features)
    replace_file(folder / "features.tsv", points.encode())
    names = [f"{_plain(a)}\t{_plain(b)}\t{'yes' if a == b else 'no'}" for a, b in zip(truth, recognized, strict=True)]
    replace_file(folder / "labels.tsv", "\n".join(["class\trecognized as\tright", *names, ""]).encode())
    side = min(THUMBNAIL_SIDE, *images.shape[1:3])
    replace_file(folder / "sprite.png", png(_sprite(thumbnails(images, side))))
    config = ProjectorConfig()
    config.embeddings.add(
        tensor_name="features before the classifier",
        tensor_path=f"{_FOLDER}/features.tsv",
        metadata_path=f"{_FOLDER}/labels.tsv",
        sprite={"image_path": f"{_FOLDER}/sprite.png", "single_image_dim": [side, side]},
    )
    replace_file(events / PROJECTOR_FILENAME, text_format.MessageToString(config).encode())


def png(picture: Pixels) -> bytes:
    """Encode [height, width, 1 or 3] bytes as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _sprite(pictures: Pixels) -> Pixels:
    """Arrange thumbnails as the projector requires: no gaps, a square grid, the rest white."""
    across = math.ceil(math.sqrt(len(pictures)))
    rest = across * across - len(pictures)
    filled = np.concatenate([pictures, np.full((rest, *pictures.shape[1:]), 255, np.uint8)])
    return image_grid(filled, columns=across, gap=0)


def _plain(name: str) -> str:
    return " ".join(name.split())
