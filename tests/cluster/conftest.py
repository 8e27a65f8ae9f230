"""AWS in this process, a session, and pauses that take no time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from moto import mock_aws

from cluster import polling
from cluster.aws.client import Aws
from cluster.session import Session


class Proxy(BaseHTTPRequestHandler):
    """An HTTP proxy without a network. It has the answers to requests without TLS, and rejects everything else."""

    answers: dict[str, bytes]
    """By the path of the URL."""
    seen: list[str]
    """Hosts that were asked for, with ports."""
    rejection: int
    """Status of all other answers."""
    address: str

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_CONNECT(self) -> None:
        self.seen.append(self.path)
        self.reply(self.rejection, b"")

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        url = urlsplit(self.path)
        self.seen.append(url.netloc)
        body = self.answers.get(url.path)
        self.reply(self.rejection if body is None else 200, body or b"")

    do_HEAD = do_POST = do_GET

    def reply(self, status: int, body: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Proxy]]:
    """Start a proxy that asks for a password, and set the proxy variables to its address with a user."""

    class Started(Proxy):
        answers, seen, rejection = {}, [], 407

    with ThreadingHTTPServer(("127.0.0.1", 0), Started) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        Started.address = f"127.0.0.1:{server.server_port}"
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
            monkeypatch.delenv(name.lower(), raising=False)
            monkeypatch.setenv(name, "" if name == "NO_PROXY" else f"http://user:word@{Started.address}")
        yield Started
        server.shutdown()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Return clients of an empty account."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with mock_aws():
        yield Aws()


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session of a cluster with two workers and an empty home directory."""
    (tmp_path / "cdk.json").write_text('{"context": {"cluster": {"workers": 2}}}')
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    return Session(tmp_path, [])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create a project with a CDK CLI that records its calls."""
    cli = tmp_path / "node_modules" / ".bin" / "cdk"
    cli.parent.mkdir(parents=True)
    cli.write_text(f'#!/bin/sh\necho "$PWD $*" >> {tmp_path}/calls\nexit $(cat {tmp_path}/status)\n')
    cli.chmod(0o755)
    (tmp_path / "status").write_text("0")
    return tmp_path


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between polls, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(polling, "sleep", pauses.append)
    monkeypatch.setattr(polling, "monotonic", lambda: sum(pauses))
    return pauses
