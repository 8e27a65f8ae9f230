"""Facts about a shelf: a file gets in whole or not at all, only what was staged is removed, room is asked for first."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.staging.dataset import SPARE, DamagedError, FullError, Shelf, ShelfError, explain
from agent.staging.manifest import Entry, Manifest


def entry(path: str, data: bytes) -> Entry:
    return Entry(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


A, B = entry("a", b"one"), entry("sub/b", b"two")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(root=tmp_path, name="set")


def fill(shelf: Shelf) -> None:
    shelf.begin(Manifest.of([A, B]))
    shelf.put(A, io.BytesIO(b"one"))
    shelf.put(B, io.BytesIO(b"two"))
    shelf.finish(Manifest.of([A, B]))


def test_what_was_put_is_there_and_listed(shelf: Shelf) -> None:
    fill(shelf)
    assert shelf.path(B).read_bytes() == b"two"
    assert shelf.manifest() == shelf.listed() == Manifest.of([A, B])
    assert {path.name for path in shelf.root.iterdir()} == {"set", "set.manifest"}


def test_it_is_not_whole_between_begin_and_finish(shelf: Shelf) -> None:
    fill(shelf)
    shelf.begin(Manifest.of([A]))
    with pytest.raises(ShelfError, match="not whole"):
        shelf.manifest()
    assert shelf.listed() == Manifest.of([A])


def test_nothing_is_known_of_a_directory_that_nobody_staged(shelf: Shelf) -> None:
    with pytest.raises(ShelfError, match="no manifest"):
        shelf.manifest()
    with pytest.raises(ShelfError, match="nothing is being staged"):
        shelf.coming()


@pytest.mark.parametrize(("data", "said"), [(b"on", "1 bytes early"), (b"onx", "other bytes")])
def test_a_file_of_other_bytes_leaves_the_old_one(shelf: Shelf, data: bytes, said: str) -> None:
    fill(shelf)
    shelf.begin(Manifest.of([A, B]))
    with pytest.raises(DamagedError, match=said):
        shelf.put(A, io.BytesIO(data))
    assert shelf.path(A).read_bytes() == b"one"
    assert not list(shelf.partial.iterdir())


def test_exactly_the_files_bytes_are_taken_from_a_stream(shelf: Shelf) -> None:
    shelf.begin(Manifest.of([A]))
    stream = io.BytesIO(b"onetwo")
    shelf.put(A, stream)
    assert stream.read() == b"two"


def test_missing_and_damaged_files_are_found_by_reading(shelf: Shelf) -> None:
    fill(shelf)
    assert [wrong for _, wrong in shelf.missing([A, B])] == [False, False]
    stamp = shelf.path(A).stat()
    shelf.path(A).write_bytes(b"onx")
    os.utime(shelf.path(A), ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    shutil.rmtree(shelf.path(B).parent)
    assert dict(shelf.missing([A, B])) == {A: True, B: True}


def test_what_an_earlier_staging_put_there_goes_and_all_else_stays(shelf: Shelf) -> None:
    fill(shelf)
    (shelf.directory / "mine").write_bytes(b"x")
    assert shelf.begin(Manifest.of([A])) == 1
    assert shelf.path(A).exists() and (shelf.directory / "mine").exists()
    assert not shelf.path(B).parent.exists()


def test_also_what_an_interrupted_staging_put_there_goes(shelf: Shelf) -> None:
    shelf.begin(Manifest.of([A, B]))
    shelf.put(B, io.BytesIO(b"two"))
    assert shelf.begin(Manifest.of([A])) == 0
    assert not shelf.path(B).exists()


def test_a_directory_can_become_a_file(shelf: Shelf) -> None:
    fill(shelf)
    flat = entry("sub", b"flat")
    shelf.begin(Manifest.of([flat]))
    shelf.put(flat, io.BytesIO(b"flat"))
    assert shelf.path(flat).read_bytes() == b"flat"


def test_room_is_asked_for_before_anything_is_sent(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=SPARE + 5, f_frsize=1))
    fill_size = Entry(path="x", size=6)
    with pytest.raises(FullError, match="needs 6 bytes more"):
        shelf.begin(Manifest.of([fill_size]))
    shelf.begin(Manifest.of([Entry(path="x", size=5)]))


def test_what_is_there_already_needs_no_room(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shelf)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    shelf.begin(Manifest.of([A, B]))


def test_a_full_disk_is_told_from_other_errors() -> None:
    assert isinstance(explain(OSError(errno.ENOSPC, "No space"), Path("x")), FullError)
    assert isinstance(explain(OSError(errno.EDQUOT, "Quota"), Path("x")), FullError)
    assert not isinstance(explain(OSError(errno.EIO, "I/O"), Path("x")), FullError)


def test_a_file_that_arrived_aside_is_taken_in_only_with_its_size(shelf: Shelf) -> None:
    shelf.begin(Manifest.of([A]))
    aside = shelf.partial / "aside"
    aside.write_bytes(b"on")
    with pytest.raises(DamagedError, match="2 bytes instead of 3"):
        shelf.adopt(A, aside)
    aside.write_bytes(b"one")
    assert shelf.adopt(Entry(path="a", size=3), aside) == A.sha256
    with pytest.raises(ShelfError, match="did not arrive"):
        shelf.adopt(A, aside)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.binary(min_size=1, max_size=60), data=st.binary(max_size=100))
def test_any_name_and_content_arrive_unchanged(shelf: Shelf, name: bytes, data: bytes) -> None:
    path = os.fsdecode(name.replace(b"/", b"_").replace(b"\0", b"_"))
    if path in (".", ".."):
        path += "x"
    held = entry(path, data)
    shelf.begin(Manifest.of([held]))
    shelf.put(held, io.BytesIO(data))
    assert (shelf.directory / path).read_bytes() == data
    assert [os.fsencode(found.name) for found in shelf.directory.iterdir()] == [os.fsencode(path)]
