"""The custom op that makes views, compared with integer arithmetic in NumPy and floating point in TensorFlow."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.environment import custom_op
from agent.environment.toolchain import installed_tensorflow
from tests.payload.data.drawings import write_records

pytestmark = pytest.mark.tensorflow

Pixels = npt.NDArray[np.uint8]
BOXES = [
    ((1, 2, 270, 280), (224, 224)),
    ((0, 0, 300, 290), (31, 33)),
    ((40, 50, 60, 7), (90, 110)),
    ((9, 9, 1, 1), (5, 3)),
]
ROOT = Path(__file__).parents[4]


def noise(height: int, width: int, seed: int = 0) -> Pixels:
    """Return an image of independent random pixels."""
    return np.random.default_rng([seed, height, width]).integers(0, 256, (height, width, 3), np.uint8)


def view(image: Any, box: Any, size: tuple[int, int], *, mirrored: Any = False) -> Pixels:
    from payload.data.pipeline.image_view import image_view

    seen: Pixels = image_view(image, box, size, mirrored=mirrored).numpy()
    return seen


def blends(length: int, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first and the second neighbor of each pixel along an axis, and the second's weight in 128ths."""
    parts = np.maximum((2 * np.arange(size) + 1) * length - size, 0)
    first = parts // (2 * size)
    second = np.minimum(first + 1, length - 1)
    weight = (parts % (2 * size) * 128 + size) // (2 * size)
    return first, second, np.where(first == second, 0, weight)


def whole_numbers(image: Pixels, box: tuple[int, int, int, int], size: tuple[int, int], mirrored: bool) -> Pixels:
    """Compute the view in NumPy: weights in 128ths along both axes, rounded once."""
    top, left, height, width = box
    part = image[top : top + height, left : left + width].astype(np.int64)
    first, second, weight = blends(width, size[1])
    if mirrored:
        first, second, weight = first[::-1], second[::-1], weight[::-1]
    across: npt.NDArray[np.int64] = (
        part[:, first] * (128 - weight)[:, np.newaxis] + part[:, second] * weight[:, np.newaxis]
    )
    first, second, weight = blends(height, size[0])
    weight = weight[:, np.newaxis, np.newaxis]
    sums: npt.NDArray[np.int64] = across[first] * (128 - weight) + across[second] * weight
    return np.right_shift(sums + (1 << 13), 14).astype(np.uint8)


@st.composite
def looks(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int, int, int], tuple[int, int], bool]:
    """Draw an image's size, a box in it, a view's size, and whether it is mirrored."""
    height, width = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    tall, wide = draw(st.integers(1, height)), draw(st.integers(1, width))
    top, left = draw(st.integers(0, height - tall)), draw(st.integers(0, width - wide))
    size = (draw(st.integers(1, 70)), draw(st.integers(1, 70)))
    return (height, width), (top, left, tall, wide), size, draw(st.booleans())


@settings(max_examples=300, deadline=None)
@given(looks(), st.integers(0, 9))
def test_view_matches_integer_reference(
    look: tuple[tuple[int, int], tuple[int, int, int, int], tuple[int, int], bool], seed: int
) -> None:
    shape, box, size, mirrored = look
    image = noise(*shape, seed)
    assert np.array_equal(view(image, box, size, mirrored=mirrored), whole_numbers(image, box, size, mirrored))


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((3, 40, 300, 310), (224, 224)),
        ((0, 0, 100, 80), (224, 224)),  # enlarged
        ((0, 0, 350, 400), (128, 160)),
        ((0, 0, 350, 400), (32, 32)),  # more than three columns apart
        ((0, 1, 350, 399), (300, 7)),
    ],
)
def test_view_differs_by_at_most_one_level_from_tensorflow(
    box: tuple[int, int, int, int], size: tuple[int, int]
) -> None:
    import tensorflow as tf

    # Smooth, as photographs are. In noise, a 256th of the neighbors' difference is a whole level.
    rows, columns = np.mgrid[0:350, 0:400]
    waves = [np.sin(rows / 9 + columns / divisor) for divisor in (7, 11, 13)]
    image = np.rint(127.5 + 127.5 * np.stack(waves, axis=2)).astype(np.uint8)
    top, left, height, width = box
    exact = tf.image.resize(image[top : top + height, left : left + width], size).numpy()
    assert abs(view(image, box, size) - exact).max() <= 1
    assert abs(view(image, box, size, mirrored=True) - exact[:, ::-1]).max() <= 1


def test_box_at_its_own_size_is_unchanged() -> None:
    image = noise(60, 50)
    assert np.array_equal(view(image, (7, 5, 40, 33), (40, 33)), image[7:47, 5:38])


def test_views_are_made_within_a_pipeline_with_a_known_shape() -> None:
    import tensorflow as tf

    from payload.data.pipeline.image_view import image_view

    images = tf.data.Dataset.from_tensors((noise(30, 20), [0, 0, 30, 20], True)).repeat(5)
    views = images.map(lambda image, box, mirrored: image_view(image, box, (16, 12), mirrored=mirrored)).batch(5)
    assert views.element_spec.shape.as_list() == [None, 16, 12, 3]
    (batch,) = views
    assert np.array_equal(batch[4], whole_numbers(noise(30, 20), (0, 0, 30, 20), (16, 12), True))


@pytest.mark.parametrize(
    ("image", "box", "mirrored", "said"),
    [
        (noise(30, 20), [0, 0, 31, 20], False, "box is 31 high at top 0: must be 1 to 65535 pixels within .* 30"),
        (noise(30, 20), [0, 15, 30, 6], False, "box is 6 wide at left 15: .* within the image's 20"),
        (noise(30, 20), [0, -1, 30, 6], False, "box is 6 wide at left -1"),
        (noise(30, 20), [0, 0, 0, 6], False, "box is 0 high at top 0"),
        (noise(30, 20), [2147483647, 0, 2147483647, 6], False, "box is 2147483647 high"),
        (noise(30, 20), [0, 0, 30], False, r"box has the shape \[3\]: must be \[4\]"),
        (noise(30, 20)[..., :1], [0, 0, 30, 20], False, r"image has the shape \[30, 20, 1\]: must be"),
        (noise(30, 20)[0], [0, 0, 1, 20], False, r"image has the shape \[20, 3\]"),
        (noise(30, 20), [0, 0, 30, 20], [False], r"mirrored has the shape \[1\]: must be \[\]"),
    ],
)
def test_invalid_box_is_rejected(image: Pixels, box: list[int], mirrored: Any, said: str) -> None:
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError, match=f"DeepcdkImageView: {said}"):
        view(image, box, (8, 8), mirrored=mirrored)


@pytest.mark.parametrize("size", [(0, 8), (8, -1), (8, 16385)])
def test_empty_or_huge_view_is_rejected(size: tuple[int, int]) -> None:
    import tensorflow as tf

    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        view(noise(9, 9), (0, 0, 9, 9), size)


def test_library_that_cannot_be_loaded_is_reported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is not a damaged image, which would be left out on request."""
    from payload.data.pipeline import image_view as module
    from tests.payload.data.pipeline.test_record_batches import RANDOM, opened, training

    junk = tmp_path / "op.so"
    junk.write_bytes(b"junk")
    monkeypatch.setattr(custom_op, "installed_path", lambda: junk)
    module._library.cache_clear()
    write_records(tmp_path / "records", training=4, test=1, files=1)
    part = opened(tmp_path / "records", skip=True)
    try:
        with pytest.raises(custom_op.CustomOpError, match=r"cannot load .*op\.so .*agent\.environment\.custom_op"):
            training(part, RANDOM)
    finally:
        module._library.cache_clear()
    assert not part.damaged


@pytest.mark.full
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only on x86_64 are there two ways")
def test_processor_without_avx2_gives_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other code path is compiled alone, as for another processor, and run in a separate process."""
    source = tmp_path / "portable.cc"
    text = custom_op.SOURCE.read_text()
    assert "#if defined(__x86_64__)" in text
    source.write_text(text.replace("#if defined(__x86_64__)", "#if 0"))
    monkeypatch.setattr(custom_op, "SOURCE", source)
    library = custom_op.build(*installed_tensorflow(), cache=tmp_path, search_path=os.defpath, report=lambda line: None)
    program = (
        "import sys, numpy as np; from pathlib import Path; from agent.environment import custom_op;"
        "custom_op.installed_path = lambda: Path(sys.argv[1]);"
        "from tests.payload.data.pipeline.test_image_view import BOXES, noise, view;"
        "np.savez(sys.argv[2], *(view(noise(300, 290), box, size, mirrored=True) for box, size in BOXES))"
    )
    subprocess.run([sys.executable, "-c", program, str(library), str(tmp_path / "views.npz")], cwd=ROOT, check=True)
    views = np.load(tmp_path / "views.npz")
    assert len(views) == len(BOXES)
    for made, (box, size) in zip(views.values(), BOXES, strict=True):
        assert np.array_equal(made, whole_numbers(noise(300, 290), box, size, True))
