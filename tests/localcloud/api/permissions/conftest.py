"""Identities on the cloud of the API's tests."""

from __future__ import annotations

import pytest

from localcloud.api.cloud import Cloud
from tests.localcloud.api.permissions.identities import Identities
from tests.localcloud.api.templates import Client


@pytest.fixture
def identities(cloud: Cloud, endpoint: str, client: Client) -> Identities:
    """Return a maker of identities."""
    return Identities(cloud, endpoint, client)
