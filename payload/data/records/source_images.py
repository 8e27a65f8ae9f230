"""List raw images in the layout of ImageNet: train/CLASS/*.JPEG, and validation images in class folders or with a list.

Each folder of training images is a class. Labels follow the sorted folder names.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from agent.errors import unreadable
from payload.data.dataset import DataError

SUFFIXES: Final = frozenset({".jpeg", ".jpg", ".png"})
TRAINING: Final = ("train", "training")
VALIDATION: Final = ("validation", "val")
ORDER_SEED: Final = 0
"""Seed for shuffling training images, so that a record file has images of many classes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceImage:
    """One raw image."""

    path: str
    """Path relative to the source directory."""
    label: int
    """Number of the class. The first class is 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """The raw images of a data set."""

    root: Path
    classes: tuple[str, ...]
    training: tuple[SourceImage, ...]
    """Training images, in the order of the record files."""
    validation: tuple[SourceImage, ...]
    """Validation images, sorted by path; may be empty."""

    @classmethod
    def scan(cls, root: Path, validation_list: Path | None = None) -> Source:
        """List the images below a directory: training images in a fixed random order, validation images by path.

        `validation_list`: file with the class of each validation image, if they are all in one folder. Each line is
        `FILE CLASS`, or only a class for each file in sorted order. Raises DataError if there are no images, a class is
        unknown, or the list does not match the images. Without a folder of validation images, there are none.
        """
        folder = _folder(root, TRAINING)
        if folder is None:
            raise DataError(f"{root}: no directory train; pass the directory that contains train/CLASS/*.JPEG")
        classes = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))
        training = _in_folders(root, folder, classes)
        if not training:
            raise DataError(
                f"{folder}: no images in directories of their classes; the layout must be {folder.name}/CLASS/*.JPEG"
            )
        order = np.random.default_rng(ORDER_SEED).permutation(len(training))
        held = _folder(root, VALIDATION)
        validation: list[SourceImage] = []
        if held is not None:
            listed = validation_list is not None
            validation = _listed(root, held, classes, validation_list) if listed else _in_folders(root, held, classes)
            if not validation:
                rule = "move the images into directories of their classes, or list the classes with --validation-list"
                raise DataError(f"{held}: no images with a known class; {rule}")
        elif validation_list is not None:
            raise DataError(
                f"{root}: no directory {' or '.join(VALIDATION)} for the images in {validation_list}; move the images "
                "there, or omit --validation-list"
            )
        return cls(
            root=root,
            classes=classes,
            training=tuple(training[position] for position in order),
            validation=tuple(validation),
        )


def _folder(root: Path, names: Sequence[str]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _in_folders(root: Path, folder: Path, classes: tuple[str, ...]) -> list[SourceImage]:
    labels = {name: label for label, name in enumerate(classes)}
    found = []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        images = _images(path)
        if path.name not in labels and images:
            raise DataError(
                f"{path}: class {path.name} is not among the training images; add training images of "
                "it, or remove this directory"
            )
        found += [SourceImage(path=str(each.relative_to(root)), label=labels[path.name]) for each in images]
    return found


def _listed(root: Path, folder: Path, classes: tuple[str, ...], listing: Path | None) -> list[SourceImage]:
    if listing is None:
        return []
    try:
        text = listing.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{listing}: cannot be read: {unreadable(error)}; pass a readable text file in UTF-8"
        ) from error
    images = _images(folder)
    named = {path.stem: path for path in images}
    labels = {name: label for label, name in enumerate(classes)}
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if lines and lines[0][1].startswith("ImageId,"):  # the header of Kaggle's table
        lines = lines[1:]
    if len(lines) != len(images):
        raise DataError(
            f"{listing}: {len(lines)} lines, but {len(images)} images are in {folder}; list each image once"
        )
    found: dict[Path, SourceImage] = {}
    for (number, line), image in zip(lines, images, strict=True):
        given = re.split(r"[\s,]+", line)
        path = image if len(given) == 1 else named.get(Path(given[0]).stem)
        name = given[0] if len(given) == 1 else given[1]
        if path is None:
            raise DataError(f"{listing}, line {number}: no image {given[0]} in {folder}; correct the name")
        if name not in labels:
            hint = (
                ". The numbers in ImageNet's development kit have another order than the directories"
                if name.isdecimal()
                else ""
            )
            raise DataError(
                f"{listing}, line {number}: no class {name} among the training images; use the names of the "
                f"directories, such as {classes[0]}{hint}"
            )
        if path in found:
            raise DataError(f"{listing}, line {number}: {path.name} is in an earlier line too; list each image once")
        found[path] = SourceImage(path=str(path.relative_to(root)), label=labels[name])
    return sorted(found.values(), key=lambda image: image.path)
