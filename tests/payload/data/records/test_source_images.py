from __future__ import annotations

from pathlib import Path

import pytest

from payload.data.dataset import DataError
from payload.data.records.source_images import Source
from tests.payload.data.drawings import SHAPES, write_images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_images(tmp_path / "raw", training=12, validation=6, side=8)
    return tmp_path / "raw"


def flattened(root: Path) -> list[str]:
    """Move validation images into one folder, as in ImageNet's archive; return their classes by name."""
    images = sorted(root.glob("validation/*/*"), key=lambda path: path.name)
    classes = [path.parent.name for path in images]
    for path in images:
        path.rename(root / "validation" / path.name)
        if not list(path.parent.iterdir()):
            path.parent.rmdir()
    return classes


def test_classes_are_the_sorted_folders(root: Path) -> None:
    source = Source.scan(root)
    assert source.classes == SHAPES
    assert len(source.training) == 12
    for image in (*source.training, *source.validation):
        assert Path(image.path).parent.name == SHAPES[image.label]
        assert (root / image.path).is_file()


def test_training_images_are_shuffled_reproducibly(root: Path) -> None:
    source = Source.scan(root)
    assert source == Source.scan(root)
    assert [image.path for image in source.training] != sorted(image.path for image in source.training)


@pytest.mark.parametrize("style", ["class alone", "file and class", "with commas and a head"])
def test_list_can_name_classes_of_validation_images(root: Path, style: str) -> None:
    expected = [(image.path.rpartition("/")[2], image.label) for image in Source.scan(root).validation]
    classes = flattened(root)
    names = sorted(path.name for path in (root / "validation").iterdir())
    lines = list(classes)
    if style == "file and class":
        lines = [f"{name} {label}" for name, label in zip(names, classes, strict=True)][::-1]
    if style == "with commas and a head":
        rows = [f"{name.partition('.')[0]},{label} 1 2 3 4" for name, label in zip(names, classes, strict=True)]
        lines = ["ImageId,PredictionString", *rows]
    listing = root / "list.txt"
    listing.write_text("\n".join(lines) + "\n")
    found = Source.scan(root, listing).validation
    assert sorted((Path(image.path).name, image.label) for image in found) == sorted(expected)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["circle"] * 5, "5 lines, but 6 images"),
        (["{first} circle"] * 6, r"line 2: .*\.JPEG is in an earlier line too; list each image once"),
        (["circle"] * 5 + ["oval"], "line 6: no class oval .*; use the names of the directories, such as "),
        (["circle"] * 5 + ["12"], "line 6: no class 12 .* development kit"),
        (["absent.JPEG circle"] + ["circle"] * 5, r"line 1: no image absent\.JPEG"),
        (["ImageId,PredictionString", "", "absent.JPEG circle"] + ["circle"] * 5, r"line 3: no image absent\.JPEG"),
    ],
)
def test_invalid_list_is_rejected_with_its_line(root: Path, lines: list[str], fault: str) -> None:
    flattened(root)
    listing = root / "list.txt"
    first = min(path.name for path in (root / "validation").iterdir())
    listing.write_text("\n".join(lines).replace("{first}", first))
    with pytest.raises(DataError, match=fault):
        Source.scan(root, listing)


def test_missing_files_are_reported(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no directory train"):
        Source.scan(tmp_path)
    (root / "validation" / "oval").mkdir()
    (root / "validation" / "oval" / "a.jpg").touch()
    with pytest.raises(DataError, match="class oval is not among the training images"):
        Source.scan(root)
    (tmp_path / "train" / "circle").mkdir(parents=True)
    with pytest.raises(DataError, match="no images in directories"):
        Source.scan(tmp_path)


def test_validation_images_of_unknown_class_require_the_list(root: Path) -> None:
    flattened(root)
    with pytest.raises(DataError, match="list the classes with --validation-list"):
        Source.scan(root)
