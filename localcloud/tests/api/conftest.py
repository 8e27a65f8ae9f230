"""A cloud that serves its API on a port of this machine, and clients of the API."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, connect, served
from localcloud.api.cloud import Cloud


@pytest.fixture(scope="module")
def cloud() -> Cloud:
    """Return a new cloud."""
    return Cloud()


@pytest.fixture(scope="module")
def endpoint(cloud: Cloud) -> Iterator[str]:
    """Serve the cloud on an ephemeral port; return its address."""
    with served(cloud) as address:
        yield address


@pytest.fixture(scope="module")
def client(endpoint: str) -> Client:
    """Return a function that creates the client of a service."""
    return functools.cache(functools.partial(connect, endpoint))


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
