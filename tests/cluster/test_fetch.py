"""Facts about fetching: all or nothing, and earlier results stay."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.connection import SilenceError
from cluster.errors import DeepcdkError, RemoteError
from cluster.fetch import BlockReader, unpack


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def blocks(data: bytes, size: int = 1000, error: Exception | None = None) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]
    if error:
        raise error


RESULT = tar_of({"result.json": b"{}", "events/one": b"x" * 5000})


def test_a_run_arrives_under_its_id(tmp_path: Path) -> None:
    fetched = unpack(blocks(RESULT), tmp_path / "runs", "one")
    assert (fetched.directory, fetched.files, fetched.size_bytes) == (tmp_path / "runs" / "one", 2, 5002)
    assert (tmp_path / "runs" / "one" / "events" / "one").read_bytes() == b"x" * 5000
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == ["one"]


@pytest.mark.parametrize(
    "error", [SilenceError("cable"), RemoteError("failed", status=1, output=""), KeyboardInterrupt()]
)
def test_what_breaks_off_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        unpack(blocks(RESULT, error=error), tmp_path, "one")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_is_cut_short_leaves_earlier_results_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "result.json").write_text("earlier")
    with pytest.raises(DeepcdkError, match="did not arrive whole"):
        unpack(blocks(RESULT[:3000]), tmp_path, "one")
    assert (tmp_path / "one" / "result.json").read_text() == "earlier"
    assert [entry.name for entry in tmp_path.iterdir()] == ["one"]


def test_a_second_fetch_brings_what_is_new_and_keeps_what_is_ones_own(tmp_path: Path) -> None:
    unpack(blocks(RESULT), tmp_path, "one")
    (tmp_path / "one" / "notes.txt").write_text("mine")
    unpack(blocks(tar_of({"result.json": b"new"})), tmp_path, "one")
    assert (tmp_path / "one" / "result.json").read_text() == "new"
    assert (tmp_path / "one" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "one" / "events" / "one").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeepcdkError, match=r"cannot be kept there: Not a directory\n  where: .*/file/runs\n  do: give"):
        unpack(blocks(RESULT), tmp_path / "file" / "runs", "one")


def test_blocks_of_any_size_read_as_one_file() -> None:
    assert io.BufferedReader(BlockReader(iter([b"ab", b"cde", b"f"]))).read() == b"abcdef"
