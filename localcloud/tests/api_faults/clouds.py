"""Clouds with API faults, served on a port of this machine, and clients of them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from localcloud.api.cloud import REGION, Cloud
from localcloud.api_faults import capacity, delays, propagation, throttling
from localcloud.laptop import ACCESS_KEY_ID

Clients = Callable[[str], Any]


def quiet_cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Return a cloud with few API faults: short delays of boots and NAT gateways, and balanced zones."""
    monkeypatch.setattr(throttling, "PROBABILITY", 0.0)
    monkeypatch.setattr(propagation, "PROBABILITY", 0.0)
    monkeypatch.setattr(capacity, "SHORTAGES", 0.0)
    monkeypatch.setattr(capacity, "LACKS", 0.0)
    for name in ("BOOT_S", "SLOW_BOOT_S", "GATEWAY_S"):
        monkeypatch.setattr(delays, name, (0.5, 0.6))
    return Cloud(fault_seed=1)


@contextlib.contextmanager
def served(cloud: Cloud) -> Iterator[str]:
    """Serve a cloud's API within a block; yield its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        cloud.serve(listener)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            cloud.close()


def client(endpoint: str, service: str, attempts: int = 1) -> Any:
    """Return a client that makes this number of attempts for a call."""
    session: Any = boto3.Session()
    return session.client(
        service,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY_ID,
        aws_secret_access_key="secret",
        config=Config(retries={"mode": "standard", "total_max_attempts": attempts}),
    )
