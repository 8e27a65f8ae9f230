"""Clouds with manners, served on a port of this machine, and clients of them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.config import Config

from localcloud.api.cloud import REGION, Cloud
from localcloud.laptop import ACCESS_KEY_ID


@contextlib.contextmanager
def served(cloud: Cloud) -> Iterator[str]:
    """Serve a cloud for the time of a block; give its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        cloud.serve(listener)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            cloud.close()


def client(endpoint: str, service: str, attempts: int = 1) -> Any:
    """Return a client that makes so many attempts of a call."""
    session: Any = boto3.Session()
    return session.client(
        service,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY_ID,
        aws_secret_access_key="secret",
        config=Config(retries={"mode": "standard", "total_max_attempts": attempts}),
    )
