"""The stream of files: any bytes pass through, and completely received files stay if it is interrupted."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.staging import upload_stream as intake
from agent.staging.errors import DamagedFileError
from agent.staging.manifest import Entry, Manifest
from agent.staging.staged_dataset import StagedDataset
from agent.staging.upload_stream import SourceChangedError, TruncatedStreamError, coalesced, framed, receive

CONTENTS = st.dictionaries(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
        lambda name: name not in (".", "..")
    ),
    st.binary(max_size=200),
    min_size=1,
    max_size=5,
)


def listed(contents: dict[str, bytes]) -> list[Entry]:
    return [Entry(path=p, size=len(d), sha256=hashlib.sha256(d).hexdigest()) for p, d in sorted(contents.items())]


def stream(entries: list[Entry], contents: dict[str, bytes]) -> bytes:
    return b"".join(framed(Path(), entries, lambda path: io.BytesIO(contents[path.removeprefix("./")])))


def shelf_for(tmp_path: Path, entries: list[Entry]) -> StagedDataset:
    dataset = StagedDataset(root=tmp_path, name="set")
    dataset.begin(Manifest.of(entries))
    return dataset


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=CONTENTS, small=st.sampled_from([0, 50, 1 << 20]))
def test_files_with_any_name_and_content_arrive(tmp_path: Path, contents: dict[str, bytes], small: int) -> None:
    entries = listed(contents)
    dataset = shelf_for(tmp_path, entries)
    stored: list[Entry] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "SMALL", small)
        patch.setattr(intake, "BATCH_FILES", 2)
        receive(dataset, io.BufferedReader(io.BytesIO(stream(entries, contents))), stored.append)
    assert sorted(stored, key=lambda e: e.path) == entries
    assert {path.name: path.read_bytes() for path in dataset.directory.iterdir()} == contents


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=CONTENTS, part=st.floats(0, 1), small=st.sampled_from([0, 1 << 20]))
def test_interrupted_stream_keeps_complete_files_only(
    tmp_path: Path, contents: dict[str, bytes], part: float, small: int
) -> None:
    entries = listed(contents)
    dataset = shelf_for(tmp_path, entries)
    whole = stream(entries, contents)
    cut = io.BufferedReader(io.BytesIO(whole[: int(part * (len(whole) - 1))]))
    stored: list[Entry] = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TruncatedStreamError) as caught:
        patch.setattr(intake, "SMALL", small)
        receive(dataset, cut, stored.append)
    assert caught.value.kind == "broken off"
    for entry in stored:
        assert dataset.path(entry).read_bytes() == contents[entry.path]
    assert not list(dataset.partial.iterdir())


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_corrupted_bytes_are_rejected(tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "SMALL", small)
    entries = listed({"a": b"right"})
    dataset = shelf_for(tmp_path, entries)
    with pytest.raises(DamagedFileError, match="'a': the size is right, but the SHA-256 differs"):
        receive(dataset, io.BufferedReader(io.BytesIO(stream(entries, {"a": b"wrong"}))), lambda _: None)
    assert not dataset.path(entries[0]).exists()


def test_changed_or_removed_file_stops_the_stream(tmp_path: Path) -> None:
    entries = listed({"a": b"as it was"})
    for now in (b"short", b"longer than it was"):
        with pytest.raises(SourceChangedError, match="size changed"):
            stream(entries, {"a": now})
    with pytest.raises(SourceChangedError, match="No such file"):
        list(framed(tmp_path, entries))


@given(blocks=st.lists(st.binary(max_size=20)), least=st.integers(1, 30))
def test_blocks_are_joined_without_a_change(blocks: list[bytes], least: int) -> None:
    joined = list(coalesced(blocks, least))
    assert b"".join(joined) == b"".join(blocks)
    assert all(len(block) >= least for block in joined[:-1])


def test_complete_files_go_out_before_the_error_of_one_that_changed() -> None:
    def blocks() -> Iterator[bytes]:
        yield from (b"ab", b"c")
        raise SourceChangedError("changed")

    sent: list[bytes] = []
    with pytest.raises(SourceChangedError, match="changed"):
        sent.extend(coalesced(blocks(), 4))
    assert sent == [b"abc"]


class Pool:
    """Replace the threads: store a batch immediately, and record how many files were stored before it."""

    def __init__(self, stored: list[Entry]) -> None:
        self.stored, self.stored_before = stored, list[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, store: Callable[[Any], None], batch: list[Any]) -> Future[None]:
        self.stored_before.append(len(self.stored))
        future: Future[None] = Future()
        store(batch)
        future.set_result(None)
        return future


def test_at_most_two_batches_per_thread_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the master would hold everything that a fast laptop sends in memory."""
    stored: list[Entry] = []
    pool = Pool(stored)
    monkeypatch.setattr(intake, "ThreadPoolExecutor", lambda *, max_workers: pool)
    monkeypatch.setattr(intake, "BATCH_FILES", 1)
    contents = {f"{number:02}": b"1" for number in range(20)}
    entries = listed(contents)
    receive(shelf_for(tmp_path, entries), io.BufferedReader(io.BytesIO(stream(entries, contents))), stored.append)
    assert pool.stored_before == [0] * 17 + [1, 2, 3]
