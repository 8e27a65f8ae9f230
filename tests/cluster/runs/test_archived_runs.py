"""The copies of runs in the bucket: found by name and tag, readable without a cluster, and fetched completely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from boto3.exceptions import Boto3Error, RetriesExceededError
from s3transfer.exceptions import S3DownloadFailedError

from cluster.aws.client import Aws
from cluster.errors import DeepcdkError
from cluster.runs.archived_runs import Archive, find
from cluster.ssh import fetch
from cluster.ssh.fetch import MARKER


def make_bucket(aws: Aws, name: str, cluster: str = "deepcdk") -> str:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=name)
    if cluster:
        s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": [{"Key": "deepcdk:cluster", "Value": cluster}]})
    return name


def record_of(run_id: str) -> dict[str, Any]:
    """Return a minimal record."""
    state = {"run_id": run_id, "state": "succeeded", "started": 1.0, "updated": 2.0, "hosts": []}
    sizes = {"checkpoints": [], "attempts": 1, "files": 0, "bytes": 0}
    return {"run_id": run_id, "directory": f"/mnt/efs/runs/{run_id}", "state": state, "spec": None, **sizes}


def put(aws: Aws, bucket: str, run_id: str, **files: str) -> None:
    """Upload a copy of a run: its record and these files (write `_` for a dot in their names)."""
    record = record_of(run_id)
    for name, text in {"record_json": json.dumps(record), **files}.items():
        key = f"runs/{run_id}/{name.replace('_', '.')}"
        aws.client("s3").put_object(Bucket=bucket, Key=key, Body=text.encode())


@pytest.fixture
def archive(aws: Aws) -> Archive:
    first, second = (make_bucket(aws, f"deepcdk-runbucket-{n}") for n in ("1", "2"))
    put(aws, first, "20261120-121314-digits-000a", launcher_log="one")
    put(aws, second, "20261121-121314-digits-000b", launcher_log="two", result_json='{"test_accuracy": 0.98}')
    found = find(aws, "deepcdk")
    assert found is not None
    return found


def test_only_buckets_of_this_cluster_are_found(aws: Aws) -> None:
    make_bucket(aws, "deepcdk-runbucket-mine")
    make_bucket(aws, "deepcdk-runbucket-others", cluster="other")
    make_bucket(aws, "deepcdk-runbucket-untagged", cluster="")
    make_bucket(aws, "deepcdk-assets")
    found = find(aws, "deepcdk")
    assert found is not None
    assert found.buckets == ("deepcdk-runbucket-mine",)
    assert find(aws, "nobody") is None


def test_runs_of_all_deployments_are_listed_oldest_first(archive: Archive) -> None:
    assert [state["run_id"] for state in archive.runs()] == [
        "20261120-121314-digits-000a",
        "20261121-121314-digits-000b",
    ]


def test_record_belongs_to_named_or_newest_run(archive: Archive) -> None:
    assert archive.record()["run_id"] == "20261121-121314-digits-000b"
    assert archive.record("20261120-121314-digits-000a")["run_id"] == "20261120-121314-digits-000a"
    with pytest.raises(DeepcdkError, match="no run x in s3://deepcdk-runbucket-1/runs/, s3://") as caught:
        archive.record("x")
    last = "20261120-121314-digits-000a, 20261121-121314-digits-000b"
    assert caught.value.remedy == f"choose one of the last runs: {last}"


def test_truncated_record_is_reported_and_its_files_can_be_fetched(aws: Aws, archive: Archive, tmp_path: Path) -> None:
    put(aws, archive.buckets[0], "20261122-121314-digits-000c", record_json="{", launcher_log="three")
    with pytest.raises(DeepcdkError, match="no complete record of run 20261122-121314-digits-000c"):
        archive.record()
    assert len(archive.runs()) == 2
    assert (archive.fetch("", tmp_path).directory / "launcher.log").read_text() == "three"


@pytest.mark.parametrize(
    "bad",
    [
        {"run_id": "20261122-121314-digits-000c"},
        [],
        {**record_of("20261122-121314-digits-000c"), "run_id": "./.."},
        record_of("20261120-121314-digits-000a"),
        {**record_of("20261122-121314-digits-000c"), "state": {"run_id": "20261120-121314-digits-000a"}},
        {**record_of("20261122-121314-digits-000c"), "spec": "none"},
    ],
    ids=["cut", "list", "path", "of another run", "state of another run", "text"],
)
def test_invalid_record_is_reported_as_truncated(aws: Aws, archive: Archive, bad: object) -> None:
    put(aws, archive.buckets[0], "20261122-121314-digits-000c", record_json=json.dumps(bad))
    with pytest.raises(DeepcdkError, match="no complete record of run 20261122-121314-digits-000c"):
        archive.record()
    assert [state["run_id"] for state in archive.runs()] == [
        "20261120-121314-digits-000a",
        "20261121-121314-digits-000b",
    ]


def test_too_large_record_is_reported_as_truncated(aws: Aws, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.runs.archived_runs.MAX_RECORD_BYTES", 20_000)
    put(aws, archive.buckets[0], "20261122-c", record_json=json.dumps(record_of("20261122-c")) + " " * 30_000)
    with pytest.raises(DeepcdkError, match="no complete record of run 20261122-c"):
        archive.record()


def test_run_is_fetched_completely_and_other_files_are_kept(archive: Archive, tmp_path: Path) -> None:
    archive.fetch("20261121-121314-digits-000b", tmp_path)
    (tmp_path / "20261121-121314-digits-000b" / "mine.txt").write_text("kept")
    fetched = archive.fetch("20261121-121314-digits-000b", tmp_path)
    assert fetched.size_bytes == sum(path.stat().st_size for path in fetched.directory.glob("*.[jl]*"))
    names = {path.name for path in fetched.directory.iterdir()}
    assert (names, fetched.files) == ({MARKER, "mine.txt", "record.json", "launcher.log", "result.json"}, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["20261121-121314-digits-000b"]


def test_invalid_run_names_are_skipped(aws: Aws, archive: Archive) -> None:
    for name in ("..", "-rf", "$(id)", ".hidden", "two\nlines"):
        aws.client("s3").put_object(Bucket=archive.buckets[1], Key=f"runs/{name}/record.json", Body=b"{}")
    assert [state["run_id"] for state in archive.runs()] == [
        "20261120-121314-digits-000a",
        "20261121-121314-digits-000b",
    ]
    with pytest.raises(DeepcdkError, match="no run -rf in"):
        archive.record("-rf")


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/../../evil"])
def test_name_outside_of_run_is_rejected_and_nothing_is_written(
    aws: Aws, archive: Archive, tmp_path: Path, name: str
) -> None:
    aws.client("s3").put_object(Bucket=archive.buckets[1], Key=f"runs/20261121-121314-digits-000b/{name}", Body=b"x")
    with pytest.raises(DeepcdkError, match="would be written outside of the run's directory"):
        archive.fetch("20261121-121314-digits-000b", tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_nothing_is_written_through_a_link(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "20261121-121314-digits-000b").symlink_to("../elsewhere")
    with pytest.raises(DeepcdkError, match="is a symbolic link"):
        archive.fetch("20261121-121314-digits-000b", tmp_path / "into")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def add(aws: Aws, archive: Archive, **bodies: bytes) -> None:
    """Add objects to the newest run's copy."""
    for name, body in bodies.items():
        key = f"runs/20261121-121314-digits-000b/{name}"
        aws.client("s3").put_object(Bucket=archive.buckets[1], Key=key, Body=body)


def test_objects_with_dangerous_names_are_renamed(
    aws: Aws, archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = (".hg/hgrc", "work/\u200c.ENVRC", "work/CLAUDE.md", "HEAD", ".git", "fetched-.git", MARKER, "folder/", "")
    add(aws, archive, **{name: name.encode() for name in names})
    directory = archive.fetch("", tmp_path).directory
    for path in directory.rglob("*"):
        assert path.name == MARKER or not path.name.lstrip("\u200c").startswith((".", "CLAUDE", "HEAD"))
    assert (directory / "fetched-.hg" / "hgrc").read_text() == ".hg/hgrc"
    stored = [path.read_text() for path in directory.rglob("*") if path.is_file()]
    assert {".git", "fetched-.git"} <= set(stored)
    assert "warning: 7 of the files in" in capsys.readouterr().err


def test_too_many_objects_are_rejected(
    aws: Aws, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MAX_ENTRIES", 10)
    add(aws, archive, **{f"x{n}{'/' * (n % 2)}": b"" for n in range(8)})
    with pytest.raises(DeepcdkError, match="more than 10 files and directories"):
        archive.fetch("", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_large_object_leaves_room_on_the_disk(
    aws: Aws, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CHECKED_EVERY", 1 << 20)
    monkeypatch.setattr(fetch, "KEPT_FREE", 1 << 60)
    add(aws, archive, large=bytes(2 << 20))
    with pytest.raises(DeepcdkError, match=r"of the disk are free, but .* stay free"):
        archive.fetch("", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RetriesExceededError(Boto3Error("reset")), r"reset\n.*\n.*do: check your network, then repeat `fab fetch`"),
        (S3DownloadFailedError("it has changed"), r"it has changed\n.*\n.*do: repeat `fab fetch`"),
    ],
)
def test_failed_download_is_reported_by_its_cause(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(archive.aws.client("s3"), "download_file", fail)
    with pytest.raises(DeepcdkError, match=rf"downloading 'runs/.*' failed: {told}"):
        archive.fetch("", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_many_small_objects_leave_room_on_the_disk_too(
    aws: Aws, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CHECKED_EVERY", 10 * fetch.DISK_BLOCK)
    monkeypatch.setattr(fetch, "KEPT_FREE", 1 << 60)
    add(aws, archive, **{f"x{n}": b"x" for n in range(10)})
    with pytest.raises(DeepcdkError, match="of the disk are free"):
        archive.fetch("", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_directory_not_created_by_fetch_is_unchanged(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "20261121-121314-digits-000b").mkdir()
    (tmp_path / "20261121-121314-digits-000b" / "result.json").write_text("mine")
    with pytest.raises(DeepcdkError, match="was not created by a fetch of this run"):
        archive.fetch("", tmp_path)
    assert (tmp_path / "20261121-121314-digits-000b" / "result.json").read_text() == "mine"


def test_run_of_the_bucket_cannot_have_the_name_of_a_package(aws: Aws, archive: Archive, tmp_path: Path) -> None:
    put(aws, archive.buckets[1], "cluster", session_py="theirs")
    (tmp_path / "cluster").mkdir()
    with pytest.raises(DeepcdkError, match="'cluster' is not the id of a run that deepcdk started"):
        archive.fetch("", tmp_path)
    assert list((tmp_path / "cluster").iterdir()) == []
