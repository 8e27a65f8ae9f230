from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format  # protobuf has no types
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tensorboard.plugins.projector import ProjectorConfig

from agent.files.atomic_write import StorageError
from payload.training.reporting.projector import MAX_NUMBERS, image_count, write_projector


@given(st.integers(1, 100_000), st.integers(1, 10_000_000))
def test_number_of_points_is_limited(available: int, features: int) -> None:
    count = image_count(available, features)
    assert 1 <= count <= min(available, 1000)
    assert count == 1 or count * features <= MAX_NUMBERS


def test_projector_finds_points_labels_and_thumbnails(tmp_path: Path) -> None:
    features = np.array([[0.5, -1.25], [3, 1e-7], [7, 8], [9, 10], [11, 12]], np.float32)
    images = np.arange(5, dtype=np.uint8)[:, None, None, None].repeat(8, axis=1).repeat(8, axis=2)
    write_projector(tmp_path, features=features, truth=["a\tb", *"cccc"], recognized=["a\tb", *"cccd"], images=images)
    config = ProjectorConfig()
    text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), config)
    (embedding,) = config.embeddings
    assert np.loadtxt(tmp_path / embedding.tensor_path) == pytest.approx(features, rel=1e-3)
    lines = (tmp_path / embedding.metadata_path).read_text().splitlines()
    assert lines[0] == "class\trecognized as\tright"
    assert (lines[1], lines[5], len(lines)) == ("a b\ta b\tyes", "c\td\tno", 6)
    assert list(embedding.sprite.single_image_dim) == [8, 8]
    sprite = np.asarray(Image.open(tmp_path / embedding.sprite.image_path))
    assert sprite.shape == (24, 24), "as many columns as rows"
    assert sprite[::8, ::8].flatten().tolist() == [0, 1, 2, 3, 4, 255, 255, 255, 255]


def test_large_images_are_shrunk_for_the_sprite(tmp_path: Path) -> None:
    images = np.zeros((2, 100, 60, 3), np.uint8)
    write_projector(tmp_path, features=np.zeros((2, 3)), truth="ab", recognized="ab", images=images)
    assert Image.open(tmp_path / "embedding" / "sprite.png").size == (96, 96)


def test_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "embedding").write_text("a file in the way")
    with pytest.raises(StorageError, match="embedding"):
        write_projector(
            tmp_path, features=np.zeros((1, 1)), truth="a", recognized="a", images=np.zeros((1, 4, 4, 1), np.uint8)
        )
