"""One embedded cloud for the cases of a module, in this process: neither hosts nor root."""

from __future__ import annotations

import pytest

from localcloud.api.cloud import Cloud
from tests.refusals.case import Client


@pytest.fixture(scope="module")
def client() -> Client:
    """Return a maker of clients by service, of a fresh cloud."""
    return Cloud().loopback.client
