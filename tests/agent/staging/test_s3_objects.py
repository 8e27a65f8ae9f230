"""S3 objects: the selected keys, patterns that match one file, and the meaning of the AWS CLI's failures."""

from __future__ import annotations

import contextlib
import fnmatch
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.staging import s3_objects
from agent.staging.errors import DatasetError, DiskFullError
from agent.staging.manifest import Entry, ManifestError
from agent.staging.s3_objects import (
    MAX_AT_ONCE,
    AccessDeniedError,
    Prefix,
    batches,
    explain,
    fetch,
    is_single,
    known_hashes,
    literal,
    parse_listing,
)
from agent.staging.staged_dataset import StagedDataset
from tests.stand_ins import served_s3
from tests.words import WORDS

PREFIX = Prefix.parse("s3://my-data/imagenet/train/", "eu-west-1")


def listing(*keys: str) -> str:
    return json.dumps({"Contents": [{"Key": key, "Size": 3, "ETag": '"d41d8"'} for key in keys]})


@pytest.mark.parametrize(
    ("address", "bucket", "key"),
    [
        ("s3://my-data", "my-data", ""),
        ("s3://my-data/", "my-data", ""),
        ("s3://my.data/a b/ü\n", "my.data", "a b/ü\n"),
        ("s3://my-data/a/", "my-data", "a"),
    ],
)
def test_address_consists_of_bucket_and_prefix(address: str, bucket: str, key: str) -> None:
    assert (Prefix.parse(address).bucket, Prefix.parse(address).key) == (bucket, key)


@pytest.mark.parametrize("address", ["my-data/a", "s3://", "s3://My/a", "s3://my-data/a*"])
def test_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(DatasetError):
        Prefix.parse(address)


def test_listing_gives_paths_below_the_prefix_without_folders() -> None:
    found = parse_listing(listing("imagenet/train/", "imagenet/train/a", "imagenet/train/n1/b c"), PREFIX)
    assert [entry.path for entry in found] == ["a", "n1/b c"]
    assert (found[0].size, found[0].etag, found[0].sha256) == (3, "d41d8", "")


def test_object_with_exact_name_is_one_file() -> None:
    prefix = Prefix.parse("s3://my-data/a/x.tar")
    found = parse_listing(listing("a/x.tar", "a/x.tar.bak"), prefix)
    assert [entry.path for entry in found] == ["x.tar"]
    assert is_single(prefix, found)
    assert prefix.fetch_words(Path("/d"), found, single=True)[2:4] == ["s3://my-data/a/x.tar", "/d/x.tar"]


@pytest.mark.parametrize("key", ["../x", "a//b"])
def test_key_outside_of_directory_is_rejected(key: str) -> None:
    with pytest.raises(ManifestError):
        parse_listing(listing(f"imagenet/train/{key}"), PREFIX)


@pytest.mark.parametrize("text", ["oops", "[]", '{"Contents": [{"Key": "a"}]}'])
def test_invalid_listing_is_reported(text: str) -> None:
    with pytest.raises(DatasetError, match="the AWS CLI printed an invalid list of s3://my-data/imagenet/train"):
        parse_listing(text, PREFIX)


@given(path=st.text(min_size=1), other=st.text(min_size=1))
def test_pattern_matches_exactly_one_file(path: str, other: str) -> None:
    assert fnmatch.fnmatchcase(path, literal(path))
    assert fnmatch.fnmatchcase(other, literal(path)) == (other == path)


@given(key=st.text(), path=WORDS)
def test_any_name_reaches_the_cli_as_data_and_never_as_a_flag_or_a_file_to_read(key: str, path: str) -> None:
    command = Prefix(bucket="my-data", key="x").list_words(key)
    assert json.loads(command[command.index("--cli-input-json") + 1]) == {"Bucket": "my-data", "Prefix": key}
    assert key in ("--output", "json") or key not in command[4:]
    with contextlib.suppress(ManifestError):
        words = PREFIX.fetch_words(Path("/d"), [Entry(path=path, size=1)])
        assert words[words.index("*") + 1] == f"--include={literal(path)}"


@pytest.mark.full
def test_cli_lists_and_downloads_names_like_flags_files_and_patterns(tmp_path: Path) -> None:
    keys = ["-x/a", "-x/-rf", "-x/ü $(id)", "-x/'q'", "-x/[a]*", "file:///etc/hostname/--include"]
    with served_s3() as s3:
        s3.create_bucket(Bucket="my-data")
        for key in keys:
            s3.put_object(Bucket="my-data", Key=key, Body=key.encode())
        found: dict[str, str] = {}
        for prefix in (
            Prefix.parse(f"s3://my-data/{folder}", "us-east-1") for folder in ("-x", "file:///etc/hostname")
        ):
            entries = s3_objects.listing(prefix)
            dataset = StagedDataset(root=tmp_path / str(len(entries)), name="set")
            brought = list(fetch(prefix, dataset, entries, single=is_single(prefix, entries), at=lambda _: None))
            found |= {f"{prefix.folder}{each.path}": dataset.path(each).read_bytes().decode() for each in brought}
        assert found == {key: key for key in keys}


@given(sizes=st.lists(st.integers(0, 5 << 30), max_size=50))
def test_calls_include_every_file_once_within_size_limit(sizes: list[int]) -> None:
    entries = [Entry(path=str(number), size=size) for number, size in enumerate(sizes)]
    found = list(batches(entries))
    assert [entry for batch in found for entry in batch] == entries
    assert all(0 < len(batch) <= MAX_AT_ONCE for batch in found)


@pytest.mark.parametrize(
    ("stderr", "kind", "said"),
    [
        (
            "An error occurred (AccessDenied) when calling the ListObjectsV2 operation",
            AccessDeniedError,
            "s3:ListBucket",
        ),
        ("Unable to locate credentials. You can configure", AccessDeniedError, "without AWS credentials"),
        ("User is not authorized to perform: kms:Decrypt: AccessDenied", DatasetError, "kms:Decrypt in the policy"),
        ("download failed: [Errno 28] No space left on device", DiskFullError, "No space left"),
        ("An error occurred (NoSuchBucket)", DatasetError, "NoSuchBucket"),
        ("", DatasetError, "status 255"),
    ],
)
def test_cli_failures_are_explained(stderr: str, kind: type[DatasetError], said: str) -> None:
    error = explain(PREFIX, stderr, 255)
    assert type(error) is kind and said in str(error)


def test_damaged_lines_of_a_journal_are_skipped(tmp_path: Path) -> None:
    entry = Entry(path="a", size=3, sha256="0" * 64, etag="d41d8")
    (tmp_path / ".set.fetched-worker1").write_bytes(b"\xff\n" + entry.to_line().encode() + b'\n{"pa')
    assert known_hashes(StagedDataset(root=tmp_path, name="set")) == {("a", 3, "d41d8"): entry}
