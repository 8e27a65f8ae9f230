from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from payload.data.bucket_download import FRESH_S, local_directory
from payload.data.dataset import DataError

CONTENTS = {"train-00000-of-00001": b"records" * 1000, "sub/train.index": b"index"}
ADDRESS = "s3://my-data/imagenet"
AWS = """#!/bin/sh
# Stands in for the AWS CLI: lists and copies the directory $BUCKET, and counts.
case "$*" in
*list-objects-v2*) echo list >>"$BUCKET.calls"; cat "$BUCKET.json";;
*) echo copy >>"$BUCKET.calls"; [ -e "$BUCKET.denied" ] && { echo "(AccessDenied)" >&2; exit 1; }
   sleep "${SLEEP:-0}"; for to in "$@"; do case "$to" in /*) cp -r "$BUCKET/." "$to";; esac; done;;
esac
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a bucket, and an `aws` that reads it."""
    folder = tmp_path / "bucket"
    for path, data in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    listed = [
        {"Key": f"imagenet/{path}", "Size": len(data), "ETag": f'"{len(data)}"'} for path, data in CONTENTS.items()
    ]
    Path(f"{folder}.json").write_text(json.dumps({"Contents": listed}))
    program = tmp_path / "bin" / "aws"
    program.parent.mkdir()
    program.write_text(AWS)
    program.chmod(0o755)
    monkeypatch.setenv("BUCKET", str(folder))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return folder


def calls(bucket: Path) -> list[str]:
    file = Path(f"{bucket}.calls")
    return file.read_text().split() if file.exists() else []


def held(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_directory_is_used_in_place(tmp_path: Path) -> None:
    assert local_directory(tmp_path) == tmp_path
    assert local_directory("/mnt/efs/data") == Path("/mnt/efs/data")


def test_bucket_is_fetched_to_the_disk(bucket: Path, tmp_path: Path) -> None:
    directory = local_directory(ADDRESS, root=tmp_path / "disk")
    assert directory.parent == tmp_path / "disk"
    assert held(directory) == CONTENTS


def _rank(root: str, answers: multiprocessing.Queue[str]) -> None:
    answers.put(str(local_directory(ADDRESS, root=Path(root))))


def test_concurrent_ranks_download_once(bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLEEP", "0.3")
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = context.Queue()
    ranks = [context.Process(target=_rank, args=(str(tmp_path / "disk"), answers)) for _ in range(3)]
    for rank in ranks:
        rank.start()
    (directory,) = {answers.get(timeout=60) for _ in ranks}
    for rank in ranks:
        rank.join()
    assert held(Path(directory)) == CONTENTS
    assert calls(bucket) == ["list", "copy"]


def test_later_run_verifies_files_and_downloads_damaged_ones(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = local_directory(ADDRESS, root=tmp_path / "disk")
    victim = directory / "train-00000-of-00001"
    victim.write_bytes(b"X" * victim.stat().st_size)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + FRESH_S + 1)
    local_directory(ADDRESS, root=tmp_path / "disk")
    assert held(directory) == CONTENTS
    assert calls(bucket) == ["list", "copy"] * 2


def test_removed_file_is_noticed_immediately(bucket: Path, tmp_path: Path) -> None:
    directory = local_directory(ADDRESS, root=tmp_path / "disk")
    (directory / "sub" / "train.index").unlink()
    local_directory(ADDRESS, root=tmp_path / "disk")
    assert held(directory) == CONTENTS


def test_data_staged_from_same_bucket_is_used(bucket: Path, tmp_path: Path) -> None:
    from agent.staging.s3_objects import Prefix, fetch_to_disk
    from agent.staging.staged_dataset import StagedDataset

    dataset = StagedDataset(root=tmp_path / "disk", name="imagenet")
    fetch_to_disk(Prefix.parse(ADDRESS), dataset, lambda entries: entries, lambda message: None)
    assert local_directory(ADDRESS, root=tmp_path / "disk") == dataset.directory
    assert calls(bucket).count("copy") == 1


@pytest.mark.parametrize("address", ["s3://", "s3://Not-A-Bucket/x"])
def test_invalid_address_is_rejected(address: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"--data-dir {address}: .* must be s3://BUCKET/PREFIX"):
        local_directory(address, root=tmp_path)


def test_forbidden_bucket_is_reported_with_fix(bucket: Path, tmp_path: Path) -> None:
    Path(f"{bucket}.denied").touch()
    with pytest.raises(DataError, match=f"(?s)--data-dir {ADDRESS}: the nodes may not read.*data_buckets in cdk.json"):
        local_directory(ADDRESS, root=tmp_path / "disk")


def test_unwritable_disk_is_reported(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot be copied to .*file: /.*: (Not a directory|File exists); "):
        local_directory(ADDRESS, root=tmp_path / "file")
