from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from payload.data.datasets import japanese_vowels
from payload.data.datasets.idx import IdxError
from payload.data.datasets.japanese_vowels import bytes_of, load_japanese_vowels


def test_data_set_has_published_utterances_of_each_speaker() -> None:
    train, test = load_japanese_vowels()
    assert np.bincount(train.labels).tolist() == [30] * 9
    # UCI's size_ae.test
    assert np.bincount(test.labels).tolist() == [31, 35, 88, 44, 29, 24, 40, 50, 29]
    assert (train.size, train.channels, train.classes) == ((29, 12), 1, 9)


def test_sequences_have_7_to_29_frames_and_nothing_but_zeros_after_them() -> None:
    for part in load_japanese_vowels():
        frames = (part.images[..., 0] > 0).any(axis=2)
        lengths = frames.sum(axis=1)
        assert (lengths.min(), lengths.max()) in ((7, 26), (7, 29))
        assert (frames == (np.arange(29) < lengths[:, None])).all()
        assert (part.images[frames] > 0).all()  # no value within a sequence looks like its end


def test_bytes_are_the_published_coefficients_within_half_a_step() -> None:
    """The first frame of the first utterance of ae.train."""
    published = np.array(
        [
            *(1.860936, -0.207383, 0.261557, -0.214562, -0.171253, -0.118167),
            *(-0.277557, 0.025668, 0.126701, -0.306756, -0.213076, 0.088728),
        ]
    )
    train, _ = load_japanese_vowels()
    first = train.images[0, 0, :, 0]
    assert (first == bytes_of(published)).all()
    assert np.abs((first - 1.0) / japanese_vowels.STEPS + japanese_vowels.LOWEST - published).max() <= 0.5 / 60


def test_coefficients_out_of_range_are_not_padding() -> None:
    assert bytes_of(np.array([-9.0, -2.0, 9.0])).tolist() == [1, 1, 255]


def test_no_sequence_is_in_both_parts() -> None:
    train, test = (
        {hashlib.sha256(image.tobytes()).digest() for image in part.images} for part in load_japanese_vowels()
    )
    assert not train & test


def test_missing_or_damaged_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(japanese_vowels.DIRECTORY, tmp_path / "data")
    monkeypatch.setattr(japanese_vowels, "DIRECTORY", tmp_path / "data")
    path = tmp_path / "data" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(IdxError, match=r"t10k-images-idx3-ubyte\.gz: truncated: .*; install deepcdk again"):
        load_japanese_vowels()
    path.unlink()
    with pytest.raises(IdxError, match=r"t10k-images-idx3-ubyte: no such file, .*; install deepcdk again"):
        load_japanese_vowels()
