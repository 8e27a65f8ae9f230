"""Classify images with a trained network: `python -m payload.predict --run-dir DIR IMAGE...`, or from a program:

    from payload.predict import predict, predict_files
    predict(Path("runs/ID/export/model.onnx"), images)      # float32 [N, classes]
    predict_files(Path("runs/ID"), [Path("photo.jpg")])     # the most likely classes of each file

The command accepts JPEG and PNG files of any size. Exit status: 0: done; 1: failed, with a one-line reason; 2: invalid
arguments.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.errors import ReportedError
from payload.data.image_files import read_images
from payload.model_arguments import EXIT_FAILED, Parser, add_model_arguments, quiet_tensorflow, report_error
from payload.settings.parser import integer, path_argument
from payload.training.export.classifier import Prediction, likeliest, load

BATCH: Final = 64
"""Maximum number of images to classify at a time. It limits the memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilePrediction:
    """The most likely classes of one image file, most likely first."""

    image: Path
    classes: tuple[Prediction, ...]


def predict(model: Path, images: npt.NDArray[np.uint8], *, trust_model: bool = False) -> npt.NDArray[np.float32]:
    """Return the probability of each class: uint8 [N, height, width, channels] to float32 [N, classes].

    `model`: an export, a run's directory with an export, a .keras file, a SavedModel or an .onnx file. Only .onnx files
    do not need TensorFlow. `images`: pixels 0 to 255, with the image size of the network. `trust_model`: also load a
    SavedModel, or a .keras file with unknown classes, which can read and write your files. Each call loads the model.
    To load it once, use `payload.training.export.classifier.load`. Raises ModelError if the model cannot be loaded or
    does not take these images.
    """
    return load(model, trust_model=trust_model).probabilities(images)


def predict_files(
    model: Path,
    files: Sequence[Path],
    *,
    top: int = 5,
    size: tuple[int, int] | None = None,
    trust_model: bool = False,
) -> list[FilePrediction]:
    """Return the `top` most likely classes of each image file, in the order of `files`.

    Images are cropped and resized like test images. `model`, `trust_model`: as for `predict`. `size`: height and width,
    for a network that accepts any size; None: as in model.json. Raises DataError for an unreadable image, ModelError
    if the model cannot be loaded.
    """
    for path in files:  # fail before the slow import of TensorFlow
        read_images([path], size=(1, 1), channels=1)
    classifier = load(model, size, trust_model=trust_model)
    margin = classifier.card.margin if classifier.card else 1.0
    found: list[FilePrediction] = []
    for first in range(0, len(files), BATCH):
        paths = files[first : first + BATCH]
        images = read_images(paths, size=classifier.size, channels=classifier.channels, fraction=margin)
        for path, row in zip(paths, classifier.probabilities(images), strict=True):
            found.append(FilePrediction(image=path, classes=tuple(likeliest(row, classifier.labels, top))))
    return found


def main(argv: Sequence[str]) -> int:
    """Classify images with a trained network and print their classes; return the exit status.

    The status is 0, or EXIT_FAILED after an error, which is printed. For invalid arguments, SystemExit is raised.
    """
    parser = Parser(prog="python -m payload.predict", description="Classify images with a trained network.")
    add_model_arguments(parser)
    parser.add_argument("images", nargs="+", type=path_argument, metavar="IMAGE", help="JPEG or PNG file")
    parser.add_argument(
        "--top", type=integer, default=5, help="number of most likely classes to show for each image; default: 5"
    )
    parser.add_argument(
        "--size", type=integer, help="image size, pixels, for a network that takes any size and has no default"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(list(argv))
    if given.top < 1:
        parser.error(f"argument --top: must be at least 1, not {given.top}")
    if given.size is not None and given.size < 1:
        parser.error(f"argument --size: must be at least 1, not {given.size}")
    quiet_tensorflow()
    size = (given.size, given.size) if given.size else None
    try:
        found = predict_files(
            given.model or given.run_dir,
            given.images,
            top=given.top,
            size=size,
            trust_model=given.trust_model,
        )
    except ReportedError as error:
        return report_error("payload.predict", error, EXIT_FAILED)
    print(json.dumps([_values(each) for each in found], indent=1) if given.json else "\n".join(_lines(found)))
    return 0


def _values(found: FilePrediction) -> dict[str, Any]:
    """Return a prediction as JSON values."""
    classes = [{"class": each.label, "number": each.number, "probability": each.probability} for each in found.classes]
    return {"image": str(found.image), "classes": classes}


def _lines(found: Sequence[FilePrediction]) -> list[str]:
    """Format predictions as a table with a line for each image and class."""
    rows = [
        (str(each.image) if place == 0 else "", f"{guess.probability:.2%}", guess.label)
        for each in found
        for place, guess in enumerate(each.classes)
    ]
    width = max(len(row[0]) for row in rows)
    return [f"{image:<{width}}  {likely:>7}  {name}" for image, likely, name in rows]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
