from __future__ import annotations

import hashlib
import io
import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from payload.training.safetensors_io import HashingFile, TensorFileError, read_tensors, size_of, write_tensors

KINDS = np_st.boolean_dtypes() | np_st.integer_dtypes(endianness="<") | np_st.floating_dtypes(endianness="<")
ARRAYS = st.dictionaries(st.text(max_size=9), np_st.arrays(KINDS, np_st.array_shapes(min_dims=0, min_side=0)))


def written(arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    write_tensors(HashingFile(file), arrays)
    return file.getvalue()


def read(content: bytes) -> dict[str, npt.NDArray[Any]]:
    return read_tensors(HashingFile(io.BytesIO(content)), len(content))


@given(arrays=ARRAYS)
def test_arrays_are_read_back_bit_for_bit(arrays: dict[str, npt.NDArray[Any]]) -> None:
    content = written(arrays)
    assert len(content) == size_of(arrays)
    found = read(content)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_array_with_gaps_in_memory_is_written_in_order() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    assert (read(written({"a": array}))["a"] == array).all()


def test_bfloat16_is_kept() -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    found = read(written({"a": array}))["a"]
    assert found.dtype == array.dtype and (found == array).all()


def test_unsupported_type_is_rejected() -> None:
    with pytest.raises(TypeError, match="a: the safetensors format has no type for arrays of complex128"):
        written({"a": np.zeros(1, np.complex128)})


def test_file_matches_the_format() -> None:
    content = written({"a": np.array([[1, 2]], np.int32)})
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {"a": {"dtype": "I32", "shape": [1, 2], "data_offsets": [0, 8]}}
    assert content[8 + length :] == struct.pack("<2i", 1, 2)


def test_all_bytes_are_hashed_and_counted() -> None:
    content = written({"a": np.arange(10.0)})
    hashed = HashingFile(io.BytesIO(content))
    read_tensors(hashed, len(content))
    assert (hashed.bytes, hashed.sha256) == (len(content), hashlib.sha256(content).hexdigest())


@given(data=st.data())
def test_truncated_file_is_always_detected(data: st.DataObject) -> None:
    content = written({"a": np.arange(5.0), "b": np.zeros((2, 2), np.int8)})
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    with pytest.raises(TensorFileError):
        read_tensors(HashingFile(io.BytesIO(cut)), len(content))
    with pytest.raises(TensorFileError):
        read(cut)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (b"{", "header is malformed: Expecting"),
        (b"[]     ", "header is malformed: a value has the wrong type"),
        (b'{"a":1}', "header is malformed: a value has the wrong type"),
        (b'{"a":{"dtype":"F99","shape":[],"data_offsets":[0,4]}}', "type: 'F99'"),
        (b'{"a":{"dtype":"F32","shape":[],"data_offsets":[4,8]}}', "bytes 4 to 8"),
        (b'{"a":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}}', "shape"),
        (b'{"a":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,39999999996]}}', "39999999996 bytes"),
    ],
)
def test_invalid_header_is_rejected_before_memory_is_allocated(header: bytes, fault: str) -> None:
    with pytest.raises(TensorFileError, match=fault):
        read(struct.pack("<Q", len(header)) + header + bytes(4))


def test_writing_and_reading_need_no_second_copy(tmp_path: Path) -> None:
    size = 1 << 25
    arrays = {"a": np.ones(size // 2, np.uint8), "b": np.ones(size // 2, np.uint8)}
    path = tmp_path / "file"
    tracemalloc.start()
    try:
        with path.open("wb") as file:
            write_tensors(HashingFile(file), arrays)
        _, most_to_write = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        with path.open("rb") as file:
            found = read_tensors(HashingFile(file), path.stat().st_size)
        _, most_to_read = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.keys() == arrays.keys()
    assert most_to_write < size / 16
    assert most_to_read < size * 17 / 16
