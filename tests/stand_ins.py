"""Fake programs, and an S3 that this process serves to the AWS CLI and to boto3."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def served_s3() -> Iterator[Any]:
    """Set the variables of an AWS account with empty S3; yield a client of it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        for name, value in {
            "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_SESSION_TOKEN": "",
            "AWS_MAX_ATTEMPTS": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }.items():
            patch.setenv(name, value)
        try:
            yield boto3.Session().client("s3", region_name="us-east-1")
        finally:
            server.stop()


def write_program(path: Path, script: str) -> str:
    """Write a shell script that can be executed; return its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)
