from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.records.tfrecord import FOOTER, HEADER, RecordError, framed, masked_crc, read_length, read_record


def test_checksum_matches_tfrecord() -> None:
    # The header of a record of 16 bytes, as TensorFlow writes it.
    assert masked_crc((16).to_bytes(8, "little")).to_bytes(4, "little").hex() == "95fbfe18"


@given(data=st.binary(max_size=300), before=st.binary(max_size=20))
def test_framed_records_are_read_back(tmp_path_factory: pytest.TempPathFactory, data: bytes, before: bytes) -> None:
    path = tmp_path_factory.mktemp("record") / "file"
    content = before + framed(data)
    path.write_bytes(content)
    header = content[len(before) : len(before) + HEADER]
    assert read_length(header, path, len(before), len(content)) == len(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert read_record(descriptor, path, len(before), len(data)) == data
    finally:
        os.close(descriptor)


@given(place=st.integers(0, HEADER + 99 + FOOTER), bit=st.integers(0, 7))
def test_every_flipped_bit_is_detected(tmp_path_factory: pytest.TempPathFactory, place: int, bit: int) -> None:
    path = tmp_path_factory.mktemp("record") / "file"
    content = bytearray(framed(bytes(100)))
    content[place] ^= 1 << bit
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(RecordError, match=r"record at byte 0: .*checksum") as caught:
            read_record(descriptor, path, 0, 100)
    finally:
        os.close(descriptor)
    assert (caught.value.path, caught.value.offset) == (path, 0)


def test_truncated_or_wrong_record_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(framed(bytes(100))[:-1])
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(RecordError, match="the file ends within the record"):
            read_record(descriptor, path, 0, 100)
        with pytest.raises(RecordError, match="the record differs from the index"):
            read_record(descriptor, path, 0, 90)
    finally:
        os.close(descriptor)
    with pytest.raises(RecordError, match="ends within the record's header, after 7 bytes"):
        read_length(bytes(7), path, 0, 7)
    with pytest.raises(RecordError, match="the record has 100 bytes, but the file ends after 115"):
        read_length(framed(bytes(100))[:HEADER], path, 0, 115)
    length = struct.pack("<Q", 1 << 32)
    with pytest.raises(
        RecordError, match=f"the record has {1 << 32} bytes, but 2 GiB is the limit; write smaller records"
    ):
        read_length(length + struct.pack("<I", masked_crc(length)), path, 0, 1 << 33)
