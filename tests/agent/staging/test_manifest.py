"""Manifests: any name round-trips, no name leads out of the data set, and shards are complete and disjoint."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.staging.manifest import (
    Entry,
    Manifest,
    ManifestError,
    check_name,
    is_as_listed,
    shard,
)

PARTS = st.binary(min_size=1, max_size=20).map(os.fsdecode).filter(lambda part: part not in (".", ".."))
PATHS = st.lists(PARTS.filter(lambda part: "/" not in part and "\0" not in part), min_size=1, max_size=3).map("/".join)
ENTRIES = st.lists(
    st.builds(
        Entry,
        path=PATHS,
        size=st.integers(0, 1 << 50),
        sha256=st.binary(max_size=8).map(lambda data: hashlib.sha256(data).hexdigest()),
        etag=st.sampled_from(["", "d41d8", "d41d8-2"]),
    ),
    max_size=12,
    unique_by=lambda entry: entry.path.split("/")[0],
)


@settings(max_examples=40)
@given(entries=ENTRIES, source=st.text())
def test_manifest_with_any_names_is_parsed_unchanged(entries: list[Entry], source: str) -> None:
    manifest = Manifest.of(entries, source)
    text = manifest.to_text()
    assert Manifest.from_text(text) == manifest
    assert text.isascii() and text.count("\n") == len(entries) + 1


@settings(max_examples=40)
@given(entries=ENTRIES)
def test_order_of_the_files_changes_nothing(entries: list[Entry]) -> None:
    turned = list(reversed(entries))
    assert Manifest.of(entries) == Manifest.of(turned)
    assert Manifest.of(entries).digest == Manifest.of(turned).digest
    assert shard(entries, 0, 3) == shard(turned, 0, 3)


@settings(max_examples=40)
@given(entries=ENTRIES, count=st.integers(1, 9))
def test_every_file_is_in_one_shard_and_the_shards_are_even(entries: list[Entry], count: int) -> None:
    shards = [shard(entries, index, count) for index in range(count)]
    assert sorted(entry.path for part in shards for entry in part) == sorted(entry.path for entry in entries)

    loads = [sum(entry.size + 1 for entry in part) for part in shards]
    assert max(loads) - min(loads) <= max((entry.size + 1 for entry in entries), default=0)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a/", "a\0b", "."])
def test_path_outside_of_directory_is_rejected(path: str) -> None:
    with pytest.raises(ManifestError, match="path"):
        Entry(path=path, size=0)


@pytest.mark.parametrize("name", ["", "-x", "a/b", "..", "x.manifest", "é", "x" * 101, "a\n"])
def test_name_with_a_path_is_rejected(name: str) -> None:
    with pytest.raises(ManifestError, match="name"):
        check_name(name)


HEAD = '{"format": 1, "files": 1, "source": ""}\n'


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("", "the manifest is incomplete: it is empty"),
        ("{}\n", "line 1 of a manifest: 'format' is missing"),
        ('{"format": 2, "files": 0, "source": ""}\n', "has the format 2, but this version reads only 1"),
        (HEAD.replace('1, "source', '2, "source') + '{"path": "a", "size": 1}\n', "incomplete: 1 of 2 files"),
        (HEAD + '{"path": "../a", "size": 1}\n', "line 2 of a manifest: path '../a': must be within"),
        (HEAD + '{"path": "a", "size": -1}\n', "line 2 of a manifest: size of 'a': -1 is not a number of bytes"),
        (
            HEAD + '{"path": "a", "size": 1, "mode": 1}\n',
            "must be an object with path and size, and",
        ),
        (HEAD + '{"path": "a", "size": 1, "sha256": "short"}\n', "sha256 of 'a': not 64 hexadecimal digits"),
        (HEAD.replace('1, "source', '2, "source') + '{"path": "a", "size": 1}\n' * 2, "path 'a': listed twice"),
        (HEAD + '{"path": "a", "si', "incomplete: 0 of 1 files"),
        ("\xff\n", "line 1 of a manifest: Expecting value"),
    ],
)
def test_incomplete_manifest_is_rejected(text: str, trouble: str) -> None:
    with pytest.raises(ManifestError, match=re.escape(trouble)):
        Manifest.from_text(text)


def test_name_cannot_be_a_file_and_a_directory_at_once() -> None:
    with pytest.raises(ManifestError, match=r"'a/b': a file and also a directory .*; rename or delete one"):
        Manifest.of([Entry(path="a/b", size=1), Entry(path="a/b/c", size=1)])


def test_digest_depends_on_name_size_and_content() -> None:
    one, two = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"2").hexdigest()
    kinds = [("a", 1, one), ("b", 1, one), ("a", 2, one), ("a", 1, two)]
    digests = {Manifest.of([Entry(path=p, size=s, sha256=h)]).digest for p, s, h in kinds}
    assert len(digests) == 4


def test_file_matches_manifest_only_with_same_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    entry = Entry(path="a", size=3, sha256=hashlib.sha256(b"abc").hexdigest())
    assert not is_as_listed(path, entry)
    path.write_bytes(b"abc")
    assert is_as_listed(path, entry)
    path.write_bytes(b"abd")
    assert not is_as_listed(path, entry)
    path.write_bytes(b"abcd")
    assert not is_as_listed(path, entry)
    assert not is_as_listed(path / "below", entry)
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert not is_as_listed(path, entry)
