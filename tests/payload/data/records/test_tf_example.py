from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.records.tf_example import IMAGE, LABEL, LazyBytes, example, locate

VALUES = st.one_of(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1))


def lazy(content: bytes) -> LazyBytes:
    return LazyBytes(lambda start, size: content[start : start + size], len(content))


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=5), st.binary(max_size=9000), st.integers(-5, 2**40))
def test_image_and_label_are_found_among_other_features(
    others: dict[str, bytes | int], image: bytes, label: int
) -> None:
    content = example({**others, IMAGE: image, LABEL: label})
    found = locate(lazy(content))
    assert content[found.start : found.start + found.size] == image
    assert found.label == label


def test_image_is_located_without_reading_it() -> None:
    content = example({IMAGE: bytes(1_000_000), LABEL: 3})
    fetched = []

    def fetch(start: int, size: int) -> bytes:
        fetched.append(size)
        return content[start : start + size]

    assert locate(LazyBytes(fetch, len(content))).size == 1_000_000
    assert sum(fetched) < 20_000


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "the record has no image/encoded"),
        (example({IMAGE: b"a"}), "the record has no image/class/label"),
        (example({IMAGE: 3, LABEL: 3}), "image/encoded must have a value in bytes_list"),
        (example({IMAGE: b"a", LABEL: b"3"}), "image/class/label must have a value in int64_list"),
        (b"\x0b" + bytes(10), "wire type 3"),
        (example({IMAGE: b"abc", LABEL: 3})[:-1], "ends beyond its message"),
        (b"\xff" * 20, "no variable-length integer at byte 0"),
    ],
)
def test_invalid_example_is_reported(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        locate(lazy(content))


@given(st.binary(max_size=60))
def test_random_bytes_raise_the_documented_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        locate(lazy(content))


@pytest.mark.tensorflow
def test_tensorflow_reads_what_was_written_and_the_other_way_round() -> None:
    import tensorflow as tf

    read = tf.train.Example.FromString(example({IMAGE: b"pixels", LABEL: 7, "image/height": 20}))
    assert read.features.feature[IMAGE].bytes_list.value[0] == b"pixels"
    assert read.features.feature[LABEL].int64_list.value[0] == 7
    assert read.features.feature["image/height"].int64_list.value[0] == 20
    box = tf.train.Feature(float_list=tf.train.FloatList(value=[0.1, 0.2]))
    read.features.feature["image/object/bbox/xmin"].CopyFrom(box)
    written = read.SerializeToString()
    found = locate(lazy(written))
    assert (written[found.start : found.start + found.size], found.label) == (b"pixels", 7)


@given(st.binary(min_size=1, max_size=20_000), st.data())
def test_any_part_matches_the_whole(content: bytes, data: st.DataObject) -> None:
    lazy = LazyBytes(lambda start, size: content[start : start + size], len(content))
    for _ in range(4):
        start = data.draw(st.integers(0, len(content)))
        size = data.draw(st.integers(0, len(content) - start))
        assert lazy.part(start, size) == content[start : start + size]
    with pytest.raises(ValueError, match="but the data ends at byte"):
        lazy.part(0, len(content) + 1)


def test_short_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected 10 bytes at byte 0, but read 3"):
        LazyBytes(lambda start, size: b"abc", 10).part(0, 10)
