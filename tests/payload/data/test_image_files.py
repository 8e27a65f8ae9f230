from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from payload.data.dataset import DataError
from payload.data.image_files import read_images


def test_image_of_the_networks_size_is_read_byte_by_byte(tmp_path: Path) -> None:
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert (read_images([tmp_path / "a.png"], size=(4, 6), channels=3)[0] == pixels).all()


def test_center_is_used_and_colors_become_gray_for_gray_network(tmp_path: Path) -> None:
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = 90
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    found = read_images([tmp_path / "wide.png"], size=(10, 10), channels=1)
    assert found.shape == (1, 10, 10, 1)
    assert (found == 90).all()


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "RGBA", "CMYK", "I;16"])
def test_images_of_any_mode_become_three_channels(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    Image.new(mode, (5, 5)).save(path)
    assert read_images([path, path], size=(3, 3), channels=3).shape == (2, 3, 3, 3)


def test_photo_is_rotated_by_its_orientation(tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 20))
    image.paste((255, 0, 0), (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: left is up
    image.save(tmp_path / "a.jpg", exif=exif, quality=95)
    found = read_images([tmp_path / "a.jpg"], size=(40, 20), channels=3)[0]
    assert found[:15, :, 0].min() > 200
    assert found[25:, :, 0].max() < 60


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent.jpg", "no such file"),
        ("text.jpg", "is not an image"),
        (".", "is a directory"),
        ("cut.jpg", "cannot be read"),
    ],
)
def test_invalid_image_is_reported_by_name(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    Image.effect_noise((64, 64), 50).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:600])
    with pytest.raises(DataError, match=says):
        read_images([tmp_path / name], size=(8, 8), channels=3)
