from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from agent.staging.s3_objects import Prefix
from agent.staging.s3_streams import BucketClient, BucketError
from tests.stand_ins import served_s3, write_program

PREFIX = Prefix.parse("s3://my-runs/one/checkpoints", "us-east-1")


def write_some(file: IO[bytes]) -> None:
    file.write(bytes(1 << 20))


@pytest.fixture
def client() -> Iterator[BucketClient]:
    with served_s3() as s3:
        s3.create_bucket(Bucket="my-runs")
        yield BucketClient(PREFIX)


def test_objects_are_written_listed_read_and_deleted(client: BucketClient) -> None:
    content = os.urandom(9 << 20)  # more than one part of a multipart upload

    def write(file: IO[bytes]) -> None:
        for start in range(0, len(content), 1 << 20):
            file.write(content[start : start + (1 << 20)])

    client.put("step 1/ä", len(content), write)
    assert client.paths() == ["step 1/ä"]
    with client.get("step 1/ä") as file:
        assert file.read() == content
    with client.get("step 1/ä") as file:
        file.read(1)  # a reader may stop early
    client.delete(["step 1/ä", "not there"])
    assert client.paths() == []
    with pytest.raises(FileNotFoundError) as caught, client.get("step 1/ä") as file:
        file.read()
    assert caught.value.filename == "s3://my-runs/one/checkpoints/step 1/ä"


@pytest.mark.full
def test_interrupted_write_leaves_no_object(client: BucketClient) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(bytes(9 << 20))
        raise KeyError("x")

    with pytest.raises(KeyError):
        client.put("a", 20 << 20, write)
    assert client.paths() == []


@pytest.mark.full
def test_missing_bucket_is_reported(client: BucketClient) -> None:
    absent = BucketClient(Prefix.parse("s3://absent/x", "us-east-1"))
    with pytest.raises(
        BucketError, match=r"cannot write s3://absent/x/a: .*NoSuchBucket.*check that the bucket exists"
    ):
        absent.put("a", 1 << 20, write_some)


def test_denied_call_names_missing_permissions(tmp_path: Path) -> None:
    said = "An error occurred (AccessDenied) when calling the PutObject operation"
    client = BucketClient(PREFIX, program=write_program(tmp_path / "aws", f"echo '{said}' >&2; exit 1"))
    with pytest.raises(BucketError, match=r"cannot write s3://my-runs/one/checkpoints/a: .*let this host's role use"):
        client.put("a", 1 << 20, write_some)
    with pytest.raises(BucketError, match=r"cannot list s3://my-runs/one/checkpoints: "):
        client.paths()


def test_object_that_s3_does_not_delete_is_reported(tmp_path: Path) -> None:
    """The request itself succeeds."""
    answer = '{"Errors": [{"Key": "one/checkpoints/a", "Code": "AccessDenied", "Message": "Access Denied"}]}'
    client = BucketClient(PREFIX, program=write_program(tmp_path / "aws", f"echo '{answer}'"))
    message = r"cannot delete from s3://my-runs/one/checkpoints: AccessDenied for one/checkpoints/a; .*s3:DeleteObject"
    with pytest.raises(BucketError, match=message):
        client.delete(["a"])
    client = BucketClient(PREFIX, program=write_program(tmp_path / "aws", "echo '[]'"))
    with pytest.raises(BucketError, match="printed an invalid answer"):
        client.delete(["a"])


def test_missing_cli_is_reported_with_one_remedy(tmp_path: Path) -> None:
    client = BucketClient(PREFIX, program=str(tmp_path / "aws"))
    with pytest.raises(BucketError, match="not installed on this host; install it") as caught:
        client.paths()
    assert "check that the bucket exists" not in str(caught.value)


def test_program_that_exits_early_is_reported_with_its_status(tmp_path: Path) -> None:
    client = BucketClient(PREFIX, program=write_program(tmp_path / "aws", "exit 7"))
    with pytest.raises(BucketError, match="the AWS CLI failed with exit status 7"):
        client.put("a", 1 << 20, write_some)
    with pytest.raises(BucketError, match="status 7"), client.get("a") as file:
        assert file.read() == b""
        raise ValueError("what was read makes no sense")
