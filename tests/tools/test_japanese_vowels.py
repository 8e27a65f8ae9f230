from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from payload.data.datasets.idx import read_idx
from payload.data.datasets.japanese_vowels import bytes_of
from tools import japanese_vowels


def series(speaker: int, frames: int) -> tuple[np.ndarray, str]:
    values = np.random.default_rng(speaker).uniform(-1, 1, (frames, 12)).round(6)
    return values, ":".join([",".join(map(str, values[:, each])) for each in range(12)] + [str(speaker)])


def test_series_of_any_length_are_padded_with_zeros(tmp_path: Path) -> None:
    (first, one), (second, two) = series(1, 7), series(9, 29)
    path = tmp_path / "a.ts"
    path.write_text(f"# about\n@dimensions 12\n@data\n{one}\n{two}\n")
    sequences, speakers = japanese_vowels.read_ts(path)
    assert speakers.tolist() == [0, 8]
    assert (sequences[0, :7] == bytes_of(first)).all() and not sequences[0, 7:].any()
    assert (sequences[1] == bytes_of(second)).all()


def test_written_files_are_readable_and_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, speaker in zip(japanese_vowels.FILES.values(), (2, 3), strict=True):
        (tmp_path / name).write_text(series(speaker, 8)[1] + "\n")
    monkeypatch.setattr(japanese_vowels, "DIRECTORY", tmp_path)
    assert japanese_vowels.main([str(tmp_path)]) == 0
    written = {path.name: path.read_bytes() for path in sorted(tmp_path.glob("*.gz"))}
    assert len(written) == 4
    assert read_idx(tmp_path / "t10k-labels-idx1-ubyte.gz").tolist() == [2]
    assert read_idx(tmp_path / "train-images-idx3-ubyte.gz").shape == (1, 29, 12)
    assert japanese_vowels.main([str(tmp_path)]) == 0
    assert {path.name: path.read_bytes() for path in sorted(tmp_path.glob("*.gz"))} == written
    assert all(gzip.decompress(content)[:3] == b"\0\0\x08" for content in written.values())


def test_missing_directory_prints_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert japanese_vowels.main([]) == 2
    assert "usage: python -m tools.japanese_vowels" in capsys.readouterr().err
