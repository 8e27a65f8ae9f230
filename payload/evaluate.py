"""Evaluate a trained network on the test images: `python -m payload.evaluate --run-dir DIR`.

Images and their crops are the same as at the end of the run, and so are the results. Exit status: 0: done; 1: failed,
with a one-line reason; 2: invalid arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.errors import ReportedError
from agent.files.atomic_write import storing
from payload.model_arguments import EXIT_FAILED, Parser, add_model_arguments, quiet_tensorflow, report_error
from payload.settings.parser import integer, path_argument
from payload.training.export.model_card import (
    DESCRIPTION_FILE,
    EXPORT_AGAIN,
    KERAS_FILE,
    ModelCard,
    ModelError,
    locate,
    read_card,
)

COMMAND = "payload.evaluate"


def main(argv: Sequence[str]) -> int:
    """Measure a trained network on the test images and print the result; return the exit status.

    After an error, which is printed, the status is EXIT_FAILED. For invalid arguments, SystemExit is raised.
    """
    parser = Parser(prog=f"python -m {COMMAND}", description="Measure a trained network on the test images.")
    add_model_arguments(parser)
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="directory of the data set, or s3://BUCKET/PREFIX; default: the run's, unless it is in a bucket",
    )
    parser.add_argument(
        "--batch", type=integer, default=0, help="images per batch; default: up to 512, fewer for large images"
    )
    parser.add_argument(
        "--confusion", type=path_argument, metavar="DIR", help="directory for confusion.json and mistakes.json"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(list(argv))
    if given.batch < 0:
        parser.error(f"argument --batch: must be at least 1, not {given.batch}")
    quiet_tensorflow()
    try:
        found = _evaluate(given)
    except ReportedError as error:
        return report_error(COMMAND, error, EXIT_FAILED)
    print(json.dumps(found, indent=1) if given.json else "\n".join(_lines(found)))
    return 0


def _evaluate(given: argparse.Namespace) -> dict[str, Any]:
    from payload.data.bucket_download import SCHEME, local_directory
    from payload.data.open_dataset import open_dataset
    from payload.training.export.settings_file import settings_from

    path, folder = locate(given.model or given.run_dir)
    card = read_card(folder)
    if card is None:
        missing = f"{folder}: {DESCRIPTION_FILE} is missing"
        raise ModelError(f"{missing}, so the images that {path.name} was trained on are unknown; {EXPORT_AGAIN}")
    settings = settings_from(card.settings, folder / DESCRIPTION_FILE)
    if card.data_dir and not given.data_dir:  # not trusted, because the ranks wrote it, like all files of a run
        address = str(card.data_dir)
        if address.startswith(SCHEME):
            raise ModelError(
                f"{folder / DESCRIPTION_FILE}: the model's run read {address!a}. An address that a run has written is "
                "not trusted. To copy the data with your AWS credentials, pass this address as --data-dir"
            )
        where = f"{address!a}, as the model's run did"
        print(f"{COMMAND}: reading data from {where}; to use other data: --data-dir", file=sys.stderr)
    data_dir = given.data_dir or card.data_dir
    split = open_dataset(settings, local_directory(str(data_dir)) if data_dir else None).test
    return {"model": str(path), "network": card.network, "dataset": card.dataset, **_measure(given, path, card, split)}


def _measure(given: argparse.Namespace, path: Path, card: ModelCard, split: Any) -> dict[str, Any]:
    """Return loss, accuracies, number of images and duration (seconds) of an evaluation on all images of a split.

    With --confusion, also write the confusion matrix and the mistakes. Raises ModelError for a model without logits or
    with another number of classes.
    """
    import numpy as np

    from payload.data.dataset import View
    from payload.data.pipeline.batches import test_batches
    from payload.training.evaluation_step import evaluation_slots, make_evaluation_step
    from payload.training.export.classifier import load
    from payload.training.reporting.confusion_matrix import (
        Confusion,
        Mistake,
        mistakes_of,
        surest,
        write_confusion,
        write_mistakes,
    )

    if path.suffix != ".keras" or path.is_dir():
        raise ModelError(f"{path}: returns no logits, which are needed here; pass the {KERAS_FILE} of the same export")
    classifier = load(path, trust_model=given.trust_model)
    if len(classifier.labels) != split.classes:
        raise ModelError(
            f"{path}: the model has {len(classifier.labels)} classes, but the data have {split.classes}; "
            "pass the directory of the model's own data set as --data-dir"
        )
    step = make_evaluation_step(classifier.network, confusion=True)
    view = View(size=card.size, rectangular=card.rectangular)
    slots = given.batch or evaluation_slots(view)
    sums, counts, images = np.zeros(3), np.zeros((split.classes, split.classes), np.int64), 0.0
    mistakes: list[Mistake] = []
    began = time.monotonic()
    for batch in test_batches(split, view, slots=slots, rank=0, ranks=1):
        measured, confused, *guesses = step(batch.images, batch.labels, batch.weights)
        sums, counts = sums + measured.numpy(), counts + confused.numpy()
        arrays = (each.numpy() for each in (batch.images, batch.labels, batch.weights, *guesses))
        mistakes = surest([*mistakes, *mistakes_of(*arrays)])
        images += float(np.sum(batch.weights))
    seconds = time.monotonic() - began
    if given.confusion:
        with storing(given.confusion):
            given.confusion.mkdir(parents=True, exist_ok=True)
        write_confusion(given.confusion, Confusion(labels=classifier.labels, counts=counts))
        write_mistakes(given.confusion, mistakes, classifier.labels)
    loss, first, five = (float(value) / max(images, 1) for value in sums)
    return {
        **dict(zip(("test_loss", "test_accuracy", "test_top5_accuracy"), (loss, first, five), strict=True)),
        "images": int(images),
        "seconds": round(seconds, 3),
    }


def _lines(found: dict[str, Any]) -> list[str]:
    return [
        f"{found['network']} on {found['images']:,} test images of {found['dataset']}, {found['seconds']:.1f} s",
        f"accuracy        {found['test_accuracy']:.2%}",
        f"top-5 accuracy  {found['test_top5_accuracy']:.2%}",
        f"loss            {found['test_loss']:.4f}",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
