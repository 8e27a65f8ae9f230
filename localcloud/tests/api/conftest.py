"""A cloud that serves its API on a port of this machine, and clients of the API."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from api.templates import Client, Stacks
from localcloud.api.cloud import REGION, Cloud
from localcloud.laptop import ACCESS_KEY_ID


@pytest.fixture(scope="module")
def cloud() -> Cloud:
    """Return a new cloud."""
    return Cloud()


@pytest.fixture(scope="module")
def endpoint(cloud: Cloud) -> Iterator[str]:
    """Serve the cloud on an ephemeral port; return its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        cloud.serve(listener)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        cloud.close()


@pytest.fixture(scope="module")
def client(endpoint: str) -> Client:
    """Return a function that creates the client of a service."""
    made: dict[str, Any] = {}

    def of(service: str) -> Any:
        if service not in made:
            session: Any = boto3.Session()
            made[service] = session.client(
                service,
                region_name=REGION,
                endpoint_url=endpoint,
                aws_access_key_id=ACCESS_KEY_ID,
                aws_secret_access_key="secret",
                config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
            )
        return made[service]

    return of


@pytest.fixture
def stacks(client: Client) -> Iterator[Stacks]:
    """Return a driver of stacks; delete its stacks after the test."""
    stacks = Stacks(client)
    yield stacks
    for name in reversed(stacks.names):
        try:
            stacks.delete(name)
        except ClientError:
            continue  # the test deleted it
