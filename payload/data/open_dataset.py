"""Open the data set named in the settings."""

from __future__ import annotations

import math
from pathlib import Path

from payload.data.dataset import DataError, Dataset, Split
from payload.data.datasets.selection import held_back, limited
from payload.models.registry import network
from payload.settings import Settings
from payload.settings.training import DATASETS_OF_FILES


def open_dataset(settings: Settings, data_dir: Path | None) -> Dataset:
    """Open the splits of the data set named in the settings. `data_dir`: None for a data set without files.

    `train_limit` is applied first, then `validation_fraction` of the training images is held back. These images also
    serve as test images if record files contain none. For record files without an index, the headers of all records are
    read first, which can take minutes. Raises DataError if data are missing, damaged or too few, and CustomOpError if
    the op that decodes record files is not installed.
    """
    if settings.dataset in DATASETS_OF_FILES and data_dir is None:
        raise DataError(f"data set {settings.dataset} needs --data-dir, the directory of its files")
    train, test = _open(settings, data_dir or Path())
    train = limited(train, settings.train_limit)
    validation = None
    if settings.validation_fraction:
        train, validation = held_back(train, settings.validation_fraction)
        test = test or validation
    if test is None:
        raise DataError(f"{data_dir}: no test images; hold back training images with --validation-fraction")
    return Dataset(train=train, validation=validation, test=test)


def _open(settings: Settings, directory: Path) -> tuple[Split, Split | None]:
    match settings.dataset:
        case "digits":
            from payload.data.datasets.digits import load_digits

            return load_digits()
        case "japanese-vowels":
            from payload.data.datasets.japanese_vowels import load_japanese_vowels

            return load_japanese_vowels()
        case "mnist" | "fashion-mnist":
            from payload.data.datasets.fashion_mnist import load_fashion_mnist

            return load_fashion_mnist(directory, settings.dataset)
        case "cifar10":
            from payload.data.datasets.cifar10 import load_cifar10

            return load_cifar10(directory)
        case "synthetic":
            return _synthetic(settings)
        case _:
            from payload.data.records.record_split import open_record_splits

            return open_record_splits(
                directory,
                name=settings.dataset,
                classes=settings.classes,
                skip=settings.corrupt == "skip",
                cache=settings.cache,
                with_test=not settings.validation_fraction,
            )


def _synthetic(settings: Settings) -> tuple[Split, Split]:
    """Return random training and test images, with the size and classes in the settings, else the network's usual ones.

    There are `train_limit` training images, by default as many as in ImageNet, and 4% as many test images.
    """
    from payload.data.datasets.synthetic import TEST_IMAGES, TRAINING_IMAGES, SyntheticSplit

    published = network(settings.network)
    side = settings.image_size or published.image_size
    train, test = (
        SyntheticSplit(
            examples=examples,
            classes=settings.classes or published.classes,
            size=(side, side),
            channels=published.channels,
            seed=seed,
        )
        for seed, examples in enumerate(_counts(settings.train_limit or TRAINING_IMAGES, TEST_IMAGES / TRAINING_IMAGES))
    )
    return train, test


def _counts(training: int, share: float) -> tuple[int, int]:
    return training, max(1, math.ceil(training * share))
