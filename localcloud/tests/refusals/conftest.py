"""One cloud for the cases of a module, in this process: it needs neither hosts nor root."""

from __future__ import annotations

import pytest

from localcloud.api.cloud import Cloud
from refusals.templates import Client


@pytest.fixture(scope="module")
def client() -> Client:
    """Return a function that makes a boto3 client of a service in a fresh cloud."""
    return Cloud().loopback.client
