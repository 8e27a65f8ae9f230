from __future__ import annotations

from pathlib import Path

import pytest

from payload.data.class_names import NAMES, class_names
from payload.data.dataset import DataError


def test_known_data_sets_have_their_published_names() -> None:
    assert class_names("fashion-mnist", 10, "/absent")[9] == "Ankle boot"
    assert class_names("cifar10", 10, None)[0] == "airplane"
    assert {name: len(set(names)) for name, names in NAMES.items()} == {
        **dict.fromkeys(NAMES, 10),
        "japanese-vowels": 9,
    }


def test_other_classes_are_numbered() -> None:
    assert class_names("synthetic", 3, None) == ("0", "1", "2")
    assert class_names("imagenet", 2, "s3://bucket/imagenet") == ("0", "1")


def test_file_next_to_data_names_the_classes(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("Zürich\n\n tench, Tinca tinca \n", encoding="utf-8")
    assert class_names("imagenet", 2, None, "s3://bucket/imagenet", tmp_path / "160", tmp_path) == (
        "Zürich",
        "tench, Tinca tinca",
    )


@pytest.mark.parametrize("content", [b"one\n", b"\xff\xfe\n\n"])
def test_incomplete_class_names_are_reported_with_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "labels.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"labels\.txt: .*(it must be a readable text|the file must have one name)"):
        class_names("imagenet", 2, tmp_path)
