"""A data set: files are replaced atomically, only staged files are removed, and free space is checked first."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.staging.errors import CorruptingDiskError, DamagedFileError, DatasetError, DiskFullError, dataset_error
from agent.staging.manifest import Entry, Manifest
from agent.staging.staged_dataset import SPARE, StagedDataset
from agent.staging.verified_write import thread_token, unique_token, write_verified
from tests.nfs import nfs_client


def entry(path: str, data: bytes) -> Entry:
    return Entry(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


A, B = entry("a", b"one"), entry("sub/b", b"two")


@pytest.fixture
def dataset(tmp_path: Path) -> StagedDataset:
    return StagedDataset(root=tmp_path, name="set")


def fill(dataset: StagedDataset) -> None:
    dataset.begin(Manifest.of([A, B]))
    dataset.put(A, io.BytesIO(b"one"))
    dataset.put(B, io.BytesIO(b"two"))
    dataset.finish(Manifest.of([A, B]))


def test_stored_files_are_present_and_listed(dataset: StagedDataset) -> None:
    fill(dataset)
    assert dataset.path(B).read_bytes() == b"two"
    assert dataset.manifest() == dataset.listed() == Manifest.of([A, B])
    assert {path.name for path in dataset.root.iterdir()} == {"set", "set.manifest"}


def test_data_set_is_incomplete_between_begin_and_finish(dataset: StagedDataset) -> None:
    fill(dataset)
    dataset.begin(Manifest.of([A]))
    with pytest.raises(DatasetError, match="is incomplete"):
        dataset.manifest()
    assert dataset.listed() == Manifest.of([A])


def test_unstaged_directory_has_no_manifest(dataset: StagedDataset) -> None:
    with pytest.raises(DatasetError, match="no manifest"):
        dataset.manifest()
    with pytest.raises(DatasetError, match=r"no staging to .* is in progress"):
        dataset.pending()


@pytest.mark.parametrize(("data", "said"), [(b"on", "received 2 of 3 bytes"), (b"onx", "the SHA-256 differs")])
def test_file_with_wrong_content_does_not_replace_old_file(dataset: StagedDataset, data: bytes, said: str) -> None:
    fill(dataset)
    dataset.begin(Manifest.of([A, B]))
    with pytest.raises(DamagedFileError, match=said):
        dataset.put(A, io.BytesIO(data))
    assert dataset.path(A).read_bytes() == b"one"
    assert not list(dataset.partial.iterdir())


def test_missing_and_damaged_files_are_found_by_reading(dataset: StagedDataset) -> None:
    fill(dataset)
    assert [wrong for _, wrong in dataset.verify([A, B])] == [False, False]
    stamp = dataset.path(A).stat()
    dataset.path(A).write_bytes(b"onx")
    os.utime(dataset.path(A), ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    shutil.rmtree(dataset.path(B).parent)
    assert dict(dataset.verify([A, B])) == {A: True, B: True}


def test_files_of_earlier_staging_are_removed_and_others_kept(dataset: StagedDataset) -> None:
    fill(dataset)
    (dataset.directory / "mine").write_bytes(b"x")
    assert dataset.begin(Manifest.of([A])) == 1
    assert dataset.path(A).exists() and (dataset.directory / "mine").exists()
    assert not dataset.path(B).parent.exists()


def test_files_of_an_interrupted_staging_are_removed(dataset: StagedDataset) -> None:
    dataset.begin(Manifest.of([A, B]))
    dataset.put(B, io.BytesIO(b"two"))
    assert dataset.begin(Manifest.of([A])) == 0
    assert not dataset.path(B).exists()


def test_directory_can_become_a_file(dataset: StagedDataset) -> None:
    fill(dataset)
    flat = entry("sub", b"flat")
    dataset.begin(Manifest.of([flat]))
    dataset.put(flat, io.BytesIO(b"flat"))
    assert dataset.path(flat).read_bytes() == b"flat"


def test_free_space_is_checked_before_transfer(dataset: StagedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=SPARE + 5, f_frsize=1))
    fill_size = Entry(path="x", size=6)
    with pytest.raises(DiskFullError, match="needs 6 more bytes"):
        dataset.begin(Manifest.of([fill_size]))
    dataset.begin(Manifest.of([Entry(path="x", size=5)]))


def test_temporary_file_is_accepted_only_with_expected_size(dataset: StagedDataset) -> None:
    dataset.begin(Manifest.of([A]))
    aside = dataset.partial / "aside"
    aside.write_bytes(b"on")
    with pytest.raises(DamagedFileError, match="received 2 of 3 bytes"):
        dataset.adopt(A, aside)
    aside.write_bytes(b"one")
    assert dataset.adopt(Entry(path="a", size=3), aside) == A.sha256
    with pytest.raises(DatasetError, match="was not downloaded"):
        dataset.adopt(A, aside)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.binary(min_size=1, max_size=60), data=st.binary(max_size=100))
def test_any_name_and_content_arrive_unchanged(dataset: StagedDataset, name: bytes, data: bytes) -> None:
    path = os.fsdecode(name.replace(b"/", b"_").replace(b"\0", b"_"))
    if path in (".", ".."):
        path += "x"
    held = entry(path, data)
    dataset.begin(Manifest.of([held]))
    dataset.put(held, io.BytesIO(data))
    assert (dataset.directory / path).read_bytes() == data
    assert [os.fsencode(found.name) for found in dataset.directory.iterdir()] == [os.fsencode(path)]


@pytest.mark.root
def test_files_of_other_nodes_are_seen_after_earlier_miss(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    elsewhere = StagedDataset(root=tmp_path / "server", name="set")
    with (
        nfs_client(tmp_path / "server", tmp_path / "master") as root,
        nfs_client(tmp_path / "server", tmp_path / "worker") as other,
    ):
        master, worker = (StagedDataset(root=place, name="set") for place in (root, other))
        with pytest.raises(DatasetError, match="no manifest"):
            worker.listed()
        master.begin(Manifest.of([A, B]))
        assert master.existing_paths([A, B]) == frozenset()
        assert dict(worker.verify(worker.pending().entries)) == {A: True, B: True}
        elsewhere.put(A, io.BytesIO(b"one"))
        elsewhere.put(B, io.BytesIO(b"two"))
        assert dict(worker.verify(worker.listed().entries)) == {A: False, B: False}
        master.finish(Manifest.of([A, B]))
        assert worker.listed() == Manifest.of([A, B])


def test_file_is_created_in_new_directory_and_replaces_existing_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "deep" / "file"
    (tmp_path / "temporary").write_bytes(b"left by a killed process")
    (tmp_path / "temporary").chmod(0o600)
    for blocks in ((b"one", b"and", b"two again"), (), (b"three",)):
        write_verified(str(tmp_path / "temporary"), str(target), blocks)
        assert target.read_bytes() == b"".join(blocks)
    assert target.stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / "temporary").exists()


def test_failing_source_leaves_existing_file(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"new"
        raise ValueError("no more")

    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(ValueError, match="no more"):
        write_verified(str(tmp_path / "temporary"), str(target), failing())
    assert ([path.name for path in tmp_path.iterdir()], target.read_bytes()) == (["file"], b"old")


def test_disk_that_returns_other_bytes_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pread", lambda *_: b"other")
    with pytest.raises(CorruptingDiskError, match="the bytes read differ from the bytes written") as failed:
        write_verified(str(tmp_path / "temporary"), str(tmp_path / "file"), (b"these",))
    assert failed.value.kind == "", "the laptop would advise to repeat the command"
    assert not list(tmp_path.iterdir())


def test_full_disk_has_its_own_error_and_other_errors_keep_their_text() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):
        assert isinstance(dataset_error(OSError(number, "No space"), "/x"), DiskFullError)
    assert type(dataset_error(OSError(errno.EACCES, "Permission denied"), "/x")) is DatasetError


def test_tokens_are_unique_per_use_and_thread() -> None:
    assert unique_token() != unique_token()
    assert thread_token() == thread_token()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(thread_token).result() != thread_token()
    for token in (unique_token(), thread_token()):
        assert token.startswith(f"{os.uname().nodename}-{os.getpid()}-"), "on a shared file system, nodes differ too"


def test_directory_created_by_another_thread_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, replace = tmp_path / "new" / "file", os.replace

    def beaten(source: str, destination: str) -> None:
        if not target.parent.exists():
            target.parent.mkdir()
            raise FileNotFoundError(2, "No such file or directory")
        replace(source, destination)

    monkeypatch.setattr(os, "replace", beaten)
    write_verified(str(tmp_path / "temporary"), str(target), (b"content",))
    assert target.read_bytes() == b"content"
