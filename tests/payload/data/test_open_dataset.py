from __future__ import annotations

from pathlib import Path

import pytest

from payload.data.dataset import DataError
from payload.data.open_dataset import open_dataset
from payload.settings import Settings
from payload.settings.training import DATASETS_OF_FILES
from tests.payload.data.drawings import write_cifar10, write_idx, write_records


def test_digits_need_no_files() -> None:
    data = open_dataset(Settings(dataset="digits"), None)
    assert data.validation is None
    assert (data.train.examples + data.test.examples, data.train.classes, data.train.size) == (1797, 10, (28, 28))


def test_japanese_vowels_need_no_files() -> None:
    data = open_dataset(Settings(dataset="japanese-vowels"), None)
    assert (data.train.examples, data.test.examples, data.train.size) == (270, 370, (29, 12))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_make_mnist_and_fashion_mnist(tmp_path: Path, name: str) -> None:
    write_idx(tmp_path, training=8, test=4)
    data = open_dataset(Settings(dataset=name), tmp_path)
    assert (data.train.examples, data.test.examples, data.train.channels) == (8, 4, 1)


def test_cifar10_is_read_from_its_binaries(tmp_path: Path) -> None:
    write_cifar10(tmp_path, per_file=1, test=1)
    assert open_dataset(Settings(dataset="cifar10"), tmp_path).train.size == (32, 32)


@pytest.mark.parametrize("name", DATASETS_OF_FILES)
def test_data_set_without_directory_is_rejected(name: str) -> None:
    with pytest.raises(DataError, match=f"data set {name} needs --data-dir"):
        open_dataset(Settings(dataset=name), None)


def test_synthetic_images_fit_the_network_unless_a_size_is_given() -> None:
    data = open_dataset(Settings(dataset="synthetic", network="resnet50"), None)
    train, test = data.train, data.test
    assert (train.size, train.classes, train.examples, test.examples) == ((224, 224), 1000, 1_281_167, 50_000)
    small = Settings(dataset="synthetic", network="resnet50", image_size=64, classes=4, train_limit=100)
    data = open_dataset(small, None)
    train, test = data.train, data.test
    assert (train.size, train.classes, train.examples, test.examples) == ((64, 64), 4, 100, 4)
    assert train.digest() != test.digest()


def test_validation_images_come_from_limited_training_images() -> None:
    data = open_dataset(Settings(validation_fraction=0.2, train_limit=500), None)
    assert data.validation is not None
    assert data.train.examples + data.validation.examples == 500
    assert data.validation.examples == pytest.approx(100, abs=5)
    assert data.test.examples == open_dataset(Settings(), None).test.examples
    assert data.digest() != open_dataset(Settings(train_limit=500), None).digest()


def test_record_files_are_imagenet(tmp_path: Path) -> None:
    write_records(tmp_path, training=12, test=4)
    parts = open_dataset(Settings(dataset="imagenet"), tmp_path)
    assert (parts.train.examples, parts.test.examples, parts.train.channels, parts.train.size) == (12, 4, 3, None)


def test_validation_files_replace_missing_test_files(tmp_path: Path) -> None:
    write_records(tmp_path, training=20, test=4)
    held = open_dataset(Settings(dataset="imagenet", validation_fraction=0.2), tmp_path)
    assert held.validation is not None
    assert (held.train.examples, held.validation.examples, held.test.examples) == (16, 4, 4)
    for file in tmp_path.glob("validation*"):
        file.unlink()
    held = open_dataset(Settings(dataset="imagenet", validation_fraction=0.2), tmp_path)
    assert held.test is held.validation
    with pytest.raises(DataError, match=r"no record files validation-.*;.*, or hold back .* --validation-fraction"):
        open_dataset(Settings(dataset="imagenet"), tmp_path)
