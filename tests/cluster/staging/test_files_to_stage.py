"""Staging from the laptop: plain files with any name, links only on request, and never any special files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.staging.manifest import check_name
from cluster.errors import DeepcdkError, UsageError
from cluster.staging.files_to_stage import BackgroundManifest, UnsupportedFilesError, is_bucket, parse_name, survey
from tests.words import LONG, WORDS

NAMES = st.binary(min_size=1, max_size=40).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    (root / "sub").mkdir(parents=True)
    (root / "a").write_bytes(b"one")
    (root / "sub" / ".hidden").write_bytes(b"two")
    return root


def paths(root: Path, *, follow: bool = False) -> list[str]:
    return [path for path, _ in survey(str(root), follow_links=follow).files]


def test_hidden_files_are_included(folder: Path) -> None:
    found = survey(str(folder), follow_links=False)
    assert found.files == (("a", 3), ("sub/.hidden", 3))
    ticks: list[tuple[int, int]] = []
    manifest = found.manifest(lambda files, size: ticks.append((files, size)))
    assert [entry.sha256 for entry in manifest.entries] == [
        hashlib.sha256(data).hexdigest() for data in (b"one", b"two")
    ]
    assert ticks[-1] == (2, 6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES.filter(lambda name: name not in (b".", b"..")))
def test_any_file_name_is_kept(tmp_path_factory: pytest.TempPathFactory, name: bytes) -> None:
    root = tmp_path_factory.mktemp("names")
    (root / os.fsdecode(name)).write_bytes(b"x")
    (found,) = paths(root)
    assert os.fsencode(found) == name


@given(text=WORDS | st.just(LONG))
def test_any_text_is_a_data_set_name_or_rejected(text: str) -> None:
    for source in (text, f"~{text}", f"/nowhere/{text}", f"s3://{text}", f"s3://my-data/{text}"):
        with contextlib.suppress(UsageError):
            assert check_name(parse_name("", source)) in source or not is_bucket(source)


def test_invalid_source_is_rejected_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    for source in ("x" * 5000, "~no-such-user/x", "-rf", "a\nb", "\udcff", "circle", "x/" * 3000):
        with pytest.raises(UsageError, match=r"SOURCE = .*is neither a directory nor a file here") as caught:
            survey(source, follow_links=False)
        assert len(str(caught.value)) < 500


def test_one_file_is_a_data_set_too(folder: Path) -> None:
    found = survey(str(folder / "a"), follow_links=False)
    assert (found.root, found.files) == (folder, (("a", 3),))


def test_links_are_rejected_with_their_names(folder: Path) -> None:
    (folder / "sub" / "link").symlink_to("/etc/hostname")
    with pytest.raises(UnsupportedFilesError, match=r"SOURCE contains symbolic links: 'sub/link'") as caught:
        paths(folder)
    assert "--follow-links" in caught.value.remedy


def test_links_are_followed_by_choice_to_files_and_directories(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "c").write_bytes(b"three")
    (folder / "far").symlink_to(tmp_path / "other")
    (folder / "near").symlink_to("a")
    assert paths(folder, follow=True) == ["a", "far/c", "near", "sub/.hidden"]


@pytest.mark.parametrize("target", ["nowhere", ".."])
def test_broken_or_circular_link_is_rejected_even_if_followed(folder: Path, target: str) -> None:
    (folder / "sub" / "link").symlink_to(target)
    with pytest.raises(UnsupportedFilesError, match="without a target or in a loop: 'sub/link'") as caught:
        paths(folder, follow=True)
    assert "--follow-links" not in caught.value.remedy


@pytest.mark.parametrize("follow", [False, True])
def test_pipes_and_sockets_are_rejected(folder: Path, follow: bool) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s"))
        with pytest.raises(UnsupportedFilesError, match="SOURCE contains sockets, pipes or devices: 'pipe', 's'"):
            paths(folder, follow=follow)


def test_missing_and_empty_directories_are_rejected(tmp_path: Path) -> None:
    for source in (tmp_path / "absent", tmp_path):
        with pytest.raises(UsageError, match="SOURCE"):
            survey(str(source), follow_links=False)


def test_file_removed_while_reading_is_reported(folder: Path) -> None:
    found = survey(str(folder), follow_links=False)
    (folder / "a").unlink()
    with pytest.raises(DeepcdkError, match="cannot be read") as caught:
        found.manifest(lambda *_: None)
    assert "set/a" in caught.value.where


def test_data_set_has_name_of_source_by_default() -> None:
    assert parse_name("", "s3://my-data/imagenet/train/") == "train"
    assert parse_name("", "s3://my-data") == "my-data"
    assert parse_name("", "/home/me/fashion-mnist/") == "fashion-mnist"
    assert parse_name("mine", "/home/me/with blank") == "mine"
    for source, last in (("/home/me/b c", "b c"), ("/", "")):
        with pytest.raises(
            UsageError, match=f"--name = '{last}': the last part of SOURCE is not a valid name; give --"
        ):
            parse_name("", source)
    for name in ("../x", "a.manifest"):
        with pytest.raises(UsageError, match=rf"--name = '{name}': must be"):
            parse_name(name, "/a")


def test_bucket_address_is_distinguished_from_a_directory() -> None:
    assert is_bucket("s3://my-data/a b")
    assert not is_bucket("s3")
    for wrong in ("s3://", "s3://My", "s3://my-data/a*"):
        with pytest.raises(UsageError, match="SOURCE"):
            is_bucket(wrong)


def test_source_is_read_in_the_background_and_its_errors_are_reported(folder: Path) -> None:
    found = survey(str(folder), follow_links=False)
    with BackgroundManifest(found, lambda *_: None) as reading:
        assert reading.result() == found.manifest(lambda *_: None)
    (folder / "a").unlink()
    with BackgroundManifest(found, lambda *_: None) as reading, pytest.raises(DeepcdkError, match="cannot be read"):
        reading.result()


def test_leaving_the_block_stops_reading(folder: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    found = survey(str(folder), follow_links=False)

    def tick(*_: int) -> None:
        begun.set()
        go_on.wait(60)

    with BackgroundManifest(dataclasses.replace(found, files=found.files * 40), tick) as reading:
        begun.wait(60)
    go_on.set()
    with pytest.raises(InterruptedError):
        reading.result()
