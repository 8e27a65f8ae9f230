"""The pipeline over record files, on files that the tests write."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from payload.data.dataset import View
from payload.data.records.record_split import RecordSplit, open_record_splits
from payload.data.records.tf_example import IMAGE, LABEL, example
from payload.data.records.tfrecord import RecordError, framed
from tests.payload.data.drawings import drawing, encoded, record, write_records

pytestmark = pytest.mark.tensorflow

COUNT = 23
RANDOM = View(size=(24, 24), smallest_crop=0.3, flip=True)


def opened(directory: Path, *, skip: bool = False) -> RecordSplit:
    part, _ = open_record_splits(directory, name="drawings", classes=0, skip=skip, cache="none", with_test=False)
    # Each record has a separate class, which identifies it.
    return dataclasses.replace(part, labels=np.arange(part.examples, dtype=np.int32), classes=part.examples)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records")
    write_records(path, training=COUNT, test=1, files=3)
    return path


def training(part: RecordSplit, view: View, *, ranks: int = 1, **values: Any) -> list[list[Any]]:
    """Return the batches of each rank."""
    from payload.data.pipeline.batches import training_batches

    given = {"seed": 1, "epoch": 0, "global_batch": 8, "threads": 2, **values}
    return [list(training_batches(part, view, rank=rank, ranks=ranks, **given)) for rank in range(ranks)]


def seen(batches: list[Any]) -> dict[int, npt.NDArray[Any]]:
    """Map each example to its image."""
    return {
        int(label): image
        for batch in batches
        for label, image, weight in zip(batch.labels.numpy(), batch.images.numpy(), batch.weights.numpy(), strict=True)
        if weight
    }


def test_view_in_original_size_is_the_decoded_image(tmp_path: Path) -> None:
    import tensorflow as tf

    picture = encoded(drawing(2, height=40, width=40, seed=1))
    (tmp_path / "train-00000-of-00001").write_bytes(record(picture, 0))
    (batch,) = training(opened(tmp_path), View(size=(40, 40)), global_batch=1)[0]
    assert np.array_equal(batch.images[0], tf.io.decode_jpeg(picture))
    assert batch.images.dtype == tf.uint8


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_steps_and_images_are_the_same_on_any_number_of_ranks(directory: Path, ranks: int) -> None:
    part = opened(directory)
    view = dataclasses.replace(RANDOM, rotation_deg=10.0)
    (alone,) = training(part, view)
    shared = training(part, view, ranks=ranks)
    assert seen(alone).keys() == set(range(COUNT))
    assert {len(batches) for batches in shared} == {len(alone)}
    for step, whole in enumerate(alone):
        parts = [seen([batches[step]]) for batches in shared]
        together = {label: image for one in parts for label, image in one.items()}
        assert sum(map(len, parts)) == len(together) == whole.batch_size
        expected = seen([whole])
        assert all(np.array_equal(together[label], expected[label]) for label in expected)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_windows_start_at_a_coding_unit_and_contain_their_boxes() -> None:
    from payload.data.pipeline.record_batches import windows

    boxes = np.array([[0, 0, 5, 7], [3, 16, 9, 4], [2, 15, 6, 1], [8, 37, 10, 20]], np.int32)
    whole, within = windows(boxes)
    assert whole.tolist() == [[0, 0, 5, 7], [3, 16, 9, 4], [2, 0, 6, 16], [8, 32, 10, 25]]
    assert within.tolist() == [[0, 0, 5, 7], [0, 0, 9, 4], [0, 15, 6, 1], [0, 5, 10, 20]]


def test_box_has_same_pixels_as_decoded_alone(tmp_path: Path) -> None:
    """This holds for every start position within a JPEG unit and for all kinds of chroma subsampling."""
    import io

    import tensorflow as tf
    from PIL import Image

    from payload.data.pipeline.record_batches import decoded, windows

    image = drawing(3, height=70, width=90, seed=4)
    for subsampling in (0, 1, 2):
        content = io.BytesIO()
        Image.fromarray(image).save(content, "JPEG", subsampling=subsampling)
        for left in range(0, 50, 3):
            box = np.array([[11, left, 30, 40]], np.int32)
            (window,), (within,) = windows(box)
            alone = tf.io.decode_and_crop_jpeg(content.getvalue(), box[0], channels=3)
            assert np.array_equal(decoded(content.getvalue(), window, within, (30, 40), with_png=False), alone)


def test_rank_reads_from_few_files(directory: Path) -> None:
    part = opened(directory)
    file_of = part.sets[0].table["file"]
    first = [batches[0] for batches in training(part, RANDOM, ranks=3, global_batch=COUNT)]
    files = [set(file_of[list(seen([batch]))]) for batch in first]
    assert all(len(names) <= 2 for names in files)


def test_epoch_resumed_at_a_step_continues_identically(directory: Path) -> None:
    part = opened(directory)
    (whole,), (rest,) = training(part, RANDOM), training(part, RANDOM, first_step=1)
    assert len(rest) == 2
    for one, other in zip(whole[1:], rest, strict=True):
        assert np.array_equal(one.images, other.images)
        assert np.array_equal(one.labels, other.labels)


def test_mirrored_images_are_originals_read_backwards(directory: Path) -> None:
    part = opened(directory)
    plain = seen(training(part, View(size=(24, 24)))[0])
    flipped = seen(training(part, View(size=(24, 24), flip=True))[0])
    same = [label for label in plain if abs(plain[label] - flipped[label]).max() <= 0.51]  # bytes are rounded
    mirrored = [label for label in plain if abs(plain[label][:, ::-1] - flipped[label]).max() <= 0.51]
    assert same and mirrored
    assert len(same) + len(mirrored) == COUNT


def test_png_and_gray_images_are_read_beside_jpeg(tmp_path: Path) -> None:
    image = drawing(1, height=30, width=30, seed=5)
    kinds = [encoded(image), encoded(image, "PNG"), encoded(image[..., 0]), encoded(image[..., 0], "PNG")]
    (tmp_path / "train-00000-of-00001").write_bytes(b"".join(record(picture, 0) for picture in kinds))
    found = seen(training(opened(tmp_path), View(size=(30, 30)))[0])
    assert np.array_equal(found[1], image)
    assert abs(found[0].astype(int) - image).mean() < 20
    for gray in (found[2], found[3]):
        assert np.array_equal(gray[..., 0], gray[..., 2])


def flip_byte(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def cut_image(path: Path) -> None:
    """Put a truncated JPEG, as from a damaged source, into a valid record."""
    picture = encoded(drawing(0, height=64, width=64, seed=3))
    broken = framed(example({IMAGE: picture[: len(picture) // 2], LABEL: 1}))
    path.write_bytes(broken + path.read_bytes())


@pytest.mark.parametrize(
    ("damage", "when", "fault", "lost"),
    [
        (lambda path: flip_byte(path, 500), "after", "record at byte 0: the checksum of the record's data", 1),
        (lambda path: flip_byte(path, 2), "after", "record at byte 0: the checksum of the record's length", 1),
        (lambda path: path.write_bytes(path.read_bytes()[:-10]), "after", "the file ends within the record", 1),
        (Path.unlink, "after", "cannot be opened: No such file", 8),
        (cut_image, "before", "record at byte 0: its image cannot be decoded", 1),
    ],
)
def test_damaged_record_is_reported_or_skipped_on_request(
    tmp_path: Path, damage: Callable[[Path], None], when: str, fault: str, lost: int, capfd: pytest.CaptureFixture[str]
) -> None:
    write_records(tmp_path, training=24, test=1, files=3)
    victim = tmp_path / "train-00001-of-00003"
    if when == "before":
        damage(victim)
    strict, lenient = opened(tmp_path), opened(tmp_path, skip=True)
    if when == "after":
        damage(victim)
    with pytest.raises(RecordError, match=fault) as caught:
        training(strict, RANDOM)
    assert caught.value.path == victim
    (batches,) = training(lenient, RANDOM)
    assert sum(batch.skipped for batch in batches) == lost
    assert len(seen(batches)) == strict.examples - lost
    assert [batch.batch_size for batch in batches] == [
        8, 8, 8, *([1] if strict.examples == 25 else [])
    ]  # fmt: skip
    said = capfd.readouterr().err
    assert f"skipped: {victim}" in said
    shared = training(lenient, RANDOM, ranks=2)
    assert sum(batch.skipped for batches in shared for batch in batches) == lost
    for label, image in seen(batches).items():
        others = [seen(theirs) for theirs in shared]
        assert any(np.array_equal(found[label], image) for found in others if label in found)
