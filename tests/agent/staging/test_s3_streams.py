from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import boto3
import pytest
from moto.server import ThreadedMotoServer

from agent.staging.s3_objects import Prefix
from agent.staging.s3_streams import BucketClient, BucketError

AWS = Path(sys.executable).with_name("aws")
PREFIX = Prefix.parse("s3://my-runs/one/checkpoints", "us-east-1")


def program(tmp_path: Path, script: str) -> str:
    """Write a fake AWS CLI."""
    path = tmp_path / "aws"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def write_some(file: IO[bytes]) -> None:
    file.write(bytes(1 << 20))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Serve S3 from this process."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def client(server: str, monkeypatch: pytest.MonkeyPatch) -> BucketClient:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.Session().client("s3", region_name="us-east-1").create_bucket(Bucket="my-runs")
    return BucketClient(PREFIX, program=str(AWS) if AWS.exists() else shutil.which("aws") or "aws")


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
def test_a_write_that_fails_half_way_leaves_no_object(client: BucketClient) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(bytes(9 << 20))
        raise KeyError("x")

    with pytest.raises(KeyError):
        client.put("a", 20 << 20, write)
    assert client.paths() == []


@pytest.mark.full
def test_a_bucket_that_is_not_there_is_told(client: BucketClient) -> None:
    absent = BucketClient(Prefix.parse("s3://absent/x", "us-east-1"), program=client._program)
    with pytest.raises(
        BucketError, match=r"cannot write s3://absent/x/a: .*NoSuchBucket.*check that the bucket exists"
    ):
        absent.put("a", 1 << 20, write_some)


def test_a_refusal_names_the_rights_that_lack(tmp_path: Path) -> None:
    said = "An error occurred (AccessDenied) when calling the PutObject operation"
    client = BucketClient(PREFIX, program=program(tmp_path, f"echo '{said}' >&2; exit 1"))
    with pytest.raises(BucketError, match=r"cannot write s3://my-runs/one/checkpoints/a: .*let this host's role use"):
        client.put("a", 1 << 20, write_some)
    with pytest.raises(BucketError, match=r"cannot list s3://my-runs/one/checkpoints: "):
        client.paths()


def test_a_program_that_ends_early_is_told_by_its_status(tmp_path: Path) -> None:
    client = BucketClient(PREFIX, program=program(tmp_path, "exit 7"))
    with pytest.raises(BucketError, match="the AWS CLI failed with exit status 7"):
        client.put("a", 1 << 20, write_some)
    with pytest.raises(BucketError, match="status 7"), client.get("a") as file:
        assert file.read() == b""
        raise ValueError("what was read makes no sense")
