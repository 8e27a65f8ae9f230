from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from payload.data.dataset import DataError
from payload.data.datasets import digits


def test_split_is_80_to_20_and_the_same_every_time() -> None:
    (train, test), (again, also) = digits.load_digits(), digits.load_digits()
    assert train.examples + test.examples == 1797
    assert test.examples / 1797 == pytest.approx(0.2, abs=0.002)
    assert (train.digest(), test.digest()) == (again.digest(), also.digest())


def test_each_digit_has_its_share_in_the_test_part() -> None:
    train, test = digits.load_digits()
    for digit in range(10):
        tested, trained = (test.labels == digit).sum(), (train.labels == digit).sum()
        assert tested / (tested + trained) == pytest.approx(0.2, abs=0.005)


def test_no_image_is_in_both_parts() -> None:
    train, test = digits.load_digits()
    trained = {image.tobytes() for image in train.images}
    assert not any(image.tobytes() in trained for image in test.images)


def test_images_are_bytes_of_28_by_28() -> None:
    train, _ = digits.load_digits()
    assert (train.size, train.channels) == ((28, 28), 1)
    assert train.images.dtype == np.uint8
    assert train.images.max() == 255


def test_enlarging_keeps_flat_areas_and_mirror_symmetry() -> None:
    flat = np.full((1, 8, 8), 16, np.float32)
    assert (digits.enlarge(flat, 28) == 255).all()
    image = np.zeros((1, 8, 8), np.float32)
    image[0, 2, 3] = 16
    mirrored = digits.enlarge(image[:, :, ::-1], 28)
    assert np.array_equal(digits.enlarge(image, 28)[:, :, ::-1], mirrored)


def test_loading_does_not_import_scikit_learn() -> None:
    if "sklearn" in sys.modules:
        pytest.skip("imported already by another test of this process")
    digits.load_digits()
    assert "sklearn" not in sys.modules


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "no such file"),
        (b"no gzip", "is not a valid copy"),
        (gzip.compress(b"1,2\n", mtime=0), "columns"),
        (gzip.compress(b"a", mtime=0), "is not a valid copy"),
    ],
)
def test_missing_or_damaged_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, fault: str
) -> None:
    path = tmp_path / "digits.csv.gz"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(digits, "_digits_file", lambda: path)
    with pytest.raises(DataError, match=fault) as caught:
        digits.load_digits()
    assert str(path) in str(caught.value)
