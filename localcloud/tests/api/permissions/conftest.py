"""Users and roles on the cloud of the API's tests."""

from __future__ import annotations

import pytest

from api.permissions.identities import Identities
from api.templates import Client
from localcloud.api.cloud import Cloud


@pytest.fixture
def identities(cloud: Cloud, endpoint: str, client: Client) -> Identities:
    """Return a factory of users and roles."""
    return Identities(cloud, endpoint, client)
