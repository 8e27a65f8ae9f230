from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from agent.files.atomic_write import StorageError
from payload.data.dataset import DataError
from payload.data.records.index import scan
from payload.data.records.shards import (
    LARGEST_PIXELS,
    MAKING,
    DamagedImageError,
    ShardJob,
    ShardReport,
    make_shard,
    resized_versions,
    split,
)
from payload.data.records.source_images import Source, SourceImage
from tests.payload.data.drawings import drawing, encoded, write_images


@pytest.fixture
def job(tmp_path: Path) -> ShardJob:
    write_images(tmp_path / "raw", training=8, validation=0)
    for folder in (MAKING, "original", "16"):
        (tmp_path / "made" / folder).mkdir(parents=True)
    return ShardJob(
        root=tmp_path / "raw",
        destination=tmp_path / "made",
        name="train-00000-of-00001",
        images=Source.scan(tmp_path / "raw").training,
        sizes=(0, 16),
        quality=90,
        skip=False,
    )


@given(st.integers(1, 300), st.integers(1, 40))
def test_split_loses_nothing_and_is_even(count: int, shards: int) -> None:
    images = [SourceImage(path=str(n), label=0) for n in range(count)]
    parts = split(images, shards)
    assert [image for part in parts for image in part] == images
    assert len(parts) == min(count, shards)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_shard_holds_the_same_images_in_each_size(job: ShardJob) -> None:
    report = make_shard(job)
    original, small = (scan(job.file(size))[0] for size in job.sizes)
    assert original["label"].tolist() == small["label"].tolist() == [image.label + 1 for image in job.images]
    assert (original["height"] >= 48).all()
    assert {min(row["height"], row["width"]) for row in small} == {16}
    assert report.records == 8
    for path, facts in report.files.items():
        content = (job.destination / path).read_bytes()
        assert facts == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert ShardReport.read(job) == report
    assert make_shard(job) == report, "the same images make the same bytes"


def test_files_are_on_disk_before_they_get_their_names(job: ShardJob, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def recorded_replace(path: Path, target: Path) -> Path:
        if path.suffix == ".partial":
            assert str(path) in done
            assert path.stat().st_size > 0
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    make_shard(job)
    assert sum(name.endswith(".partial") for name in done) >= len(job.sizes)


def test_shard_with_missing_or_truncated_file_is_incomplete(job: ShardJob) -> None:
    assert ShardReport.read(job) is None
    make_shard(job)
    content = job.file(16).read_bytes()
    job.file(16).write_bytes(content[:-1])
    assert ShardReport.read(job) is None
    job.file(16).write_bytes(content)
    assert ShardReport.read(job) is not None
    job.note.write_text("{")
    assert ShardReport.read(job) is None


def damage(job: ShardJob) -> Path:
    victim = job.root / job.images[3].path
    victim.write_bytes(victim.read_bytes()[:300])
    return victim


def test_damaged_image_is_reported_and_nothing_left(job: ShardJob) -> None:
    victim = damage(job)
    with pytest.raises(DataError, match=r"damaged: .*--corrupt skip") as caught:
        make_shard(job)
    assert str(victim) in str(caught.value)
    assert not [path for path in job.destination.rglob("*") if path.is_file()]


def test_damaged_image_is_skipped_on_request(job: ShardJob) -> None:
    damage(job)
    report = make_shard(dataclasses.replace(job, skip=True))
    assert report.records == 7
    assert [line.partition(":")[0] for line in report.skipped] == [job.images[3].path]
    assert len(scan(job.file(0))[0]) == len(scan(job.file(16))[0]) == 7


def test_missing_image_is_reported(job: ShardJob) -> None:
    (job.root / job.images[0].path).unlink()
    with pytest.raises(DataError, match=f"{job.images[0].path}: cannot be read"):
        make_shard(dataclasses.replace(job, skip=True))


def test_full_disk_is_reported_and_leaves_no_files(job: ShardJob) -> None:
    job.file(16).with_name(f".{job.name}.partial").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left on device"):
        make_shard(job)
    assert not [path for path in job.destination.rglob("*") if path.is_file() or path.is_symlink()]


def opened(content: bytes) -> Any:
    return Image.open(io.BytesIO(content))


@given(st.integers(20, 90), st.integers(20, 90), st.integers(1, 100))
def test_shorter_side_is_reduced_to_requested_size(height: int, width: int, size: int) -> None:
    (content,) = resized_versions(encoded(drawing(0, height=height, width=width, seed=1)), [size], quality=90)
    made = opened(content)
    assert min(made.size) == min(size, height, width)
    assert made.width / made.height == pytest.approx(width / height, rel=1.0 / min(made.size))


def test_unchanged_image_keeps_its_bytes() -> None:
    content = encoded(drawing(0, height=40, width=50, seed=1))
    assert resized_versions(content, [0, 40, 60], quality=90) == [content] * 3


def test_other_formats_become_color_jpeg() -> None:
    image = Image.fromarray(drawing(0, height=40, width=50, seed=1))
    for mode, kind in (("RGB", "PNG"), ("P", "PNG"), ("RGBA", "PNG"), ("CMYK", "JPEG")):
        content = io.BytesIO()
        image.convert(mode).save(content, kind)
        (made,) = resized_versions(content.getvalue(), [0], quality=90)
        assert (opened(made).format, opened(made).mode) == ("JPEG", "RGB")
    (gray,) = resized_versions(encoded(np.zeros((30, 30), np.uint8)), [10], quality=90)
    assert opened(gray).mode == "L"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no image",
        encoded(drawing(0, height=40, width=50, seed=1))[:-200],
        encoded(drawing(0, height=40, width=50, seed=1), "PNG")[:-200],
    ],
)
def test_damaged_images_are_reported(content: bytes) -> None:
    with pytest.raises(DamagedImageError):
        resized_versions(content, [0], quality=90)


def test_images_that_pillow_does_not_open_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Image.MAX_IMAGE_PIXELS and 2 * Image.MAX_IMAGE_PIXELS > LARGEST_PIXELS
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 900)
    with pytest.raises(DamagedImageError, match="more than 134,217,728 pixels"):
        resized_versions(encoded(drawing(0, height=40, width=50, seed=1)), [0], quality=90)
