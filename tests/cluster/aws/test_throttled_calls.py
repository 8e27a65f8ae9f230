"""Patience with throttled calls, against an API that throttles."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.exceptions import ClientError

from cluster.aws import throttled_calls
from cluster.aws.client import Aws
from cluster.aws.throttled_calls import ATTEMPTS, LONGEST_PAUSE_S, pause_s


class _Throttling(BaseHTTPRequestHandler):
    refusals: int
    code: str
    seen: int

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).seen += 1
        refused = type(self).seen <= self.refusals
        error = f"<Response><Errors><Error><Code>{self.code}</Code><Message>no</Message></Error></Errors></Response>"
        body = (error if refused else "<DescribeVpcsResponse><vpcSet/></DescribeVpcsResponse>").encode()
        self.send_response(503 if refused and self.code == "RequestLimitExceeded" else 400 if refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, aws: Aws) -> Iterator[type[_Throttling]]:
    """Serve an API, without a pause between attempts."""
    del aws  # which sets the credentials
    monkeypatch.setattr("time.sleep", lambda _seconds: None)

    class Api(_Throttling):
        refusals, code, seen = 0, "RequestLimitExceeded", 0

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield Api
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling"])
def test_a_throttled_call_is_repeated_more_often_than_another(api: type[_Throttling], code: str) -> None:
    api.refusals, api.code = ATTEMPTS - 1, code
    assert Aws().client("ec2").describe_vpcs()["Vpcs"] == []
    assert api.seen == ATTEMPTS


def test_it_is_given_up_after_the_last_attempt(api: type[_Throttling]) -> None:
    api.refusals = 1000
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        Aws().client("ec2").describe_vpcs()
    assert api.seen == ATTEMPTS


def test_another_refusal_is_not_repeated_and_an_impatient_client_repeats_nothing(api: type[_Throttling]) -> None:
    api.refusals, api.code = 1000, "UnauthorizedOperation"
    with pytest.raises(ClientError):
        Aws().client("ec2").describe_vpcs()
    assert api.seen == 1
    api.code = "RequestLimitExceeded"
    with pytest.raises(ClientError):
        Aws().client("ec2", impatient=True).describe_vpcs()
    assert api.seen == 2


def test_pauses_grow_up_to_a_bound() -> None:
    throttled = (None, {"Error": {"Code": next(iter(throttled_calls.THROTTLED))}})
    pauses = [pause_s(response=throttled, attempts=attempts) for attempts in range(1, ATTEMPTS + 1)]
    assert pauses[-1] is None
    assert all(0.5 <= (pause or 0) <= LONGEST_PAUSE_S for pause in pauses[:-1])
    assert pause_s(response=None, attempts=1) is None
