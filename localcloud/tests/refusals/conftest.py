"""One cloud for the cases of a module, in this process, without hosts and without root."""

from __future__ import annotations

import pytest

from api.conftest import stacks
from localcloud.api.cloud import Cloud
from refusals.templates import Client

__all__ = ["stacks"]  # a fixture


@pytest.fixture(scope="module")
def client() -> Client:
    """Return a function that creates a boto3 client of a service in a new cloud."""
    return Cloud().loopback.client
