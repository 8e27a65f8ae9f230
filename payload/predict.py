"""Recognise images with a trained network: `python -m payload.predict --run-dir DIR IMAGE...`.

Takes JPEG and PNG files of any size. Exit status: 0 all were recognised; 1 failed, with one line that says why; 2 wrong
arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError
from payload.command_line import EXIT_FAILED, Parser, add_model_arguments, quiet_tensorflow, report_error

BATCH: Final = 64
"""Images recognised at a time: bounds the memory."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="python -m payload.predict", description="Recognise images with a trained network.")
    add_model_arguments(parser)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="JPEG or PNG file")
    parser.add_argument("--top", type=int, default=5, help="likeliest classes to show for each image; default: 5")
    parser.add_argument("--size", type=int, help="pixels a side, for a network that takes any size and names none")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(list(argv))
    if given.top < 1:
        parser.error(f"argument --top: must be at least 1, not {given.top}")
    quiet_tensorflow()
    try:
        found = _predict(given)
    except ReportedError as error:
        return report_error("payload.predict", error, EXIT_FAILED)
    print(json.dumps(found, indent=1) if given.json else "\n".join(_lines(found)))
    return 0


def _predict(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return for each image its path and the likeliest classes, the likeliest first."""
    from payload.data.image_files import read_images
    from payload.training.export.classifier import likeliest, load

    for path in given.images:  # fails before TensorFlow takes seconds to import
        read_images([path], size=(1, 1), channels=1)
    classifier = load(given.model or given.run_dir, (given.size, given.size) if given.size else None)
    margin = classifier.card.margin if classifier.card else 1.0
    found: list[dict[str, Any]] = []
    for first in range(0, len(given.images), BATCH):
        paths = given.images[first : first + BATCH]
        images = read_images(paths, size=classifier.size, channels=classifier.channels, fraction=margin)
        for path, row in zip(paths, classifier.probabilities(images), strict=True):
            classes = [
                {"class": each.label, "number": each.number, "probability": each.probability}
                for each in likeliest(row, classifier.labels, given.top)
            ]
            found.append({"image": str(path), "classes": classes})
    return found


def _lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table: a line for each image and class, the image's name on its first."""
    rows = [
        (each["image"] if place == 0 else "", f"{guess['probability']:.2%}", guess["class"])
        for each in found
        for place, guess in enumerate(each["classes"])
    ]
    width = max(len(row[0]) for row in rows)
    return [f"{image:<{width}}  {likely:>7}  {name}" for image, likely, name in rows]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
