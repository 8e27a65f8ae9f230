"""Clouds with API faults, and clients of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from api.templates import Client, connect, served
from localcloud.api.cloud import Cloud
from localcloud.api_faults import capacity, delays, propagation, throttling


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Return a cloud with few API faults: short delays of boots and NAT gateways, and balanced zones."""
    monkeypatch.setattr(throttling, "PROBABILITY", 0.0)
    monkeypatch.setattr(propagation, "PROBABILITY", 0.0)
    monkeypatch.setattr(capacity, "SHORTAGES", 0.0)
    monkeypatch.setattr(capacity, "LACKS", 0.0)
    for name in ("BOOT_S", "SLOW_BOOT_S", "GATEWAY_S"):
        monkeypatch.setattr(delays, name, (0.5, 0.6))
    return Cloud(fault_seed=1)


@pytest.fixture
def aws(cloud: Cloud) -> Iterator[Client]:
    """Serve the cloud; return a function that creates the client of a service."""
    with served(cloud) as address:
        yield functools.partial(connect, address)
