"""AWS errors: each becomes one message that includes the fix."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import botocore.exceptions as boto
import pytest
from botocore.exceptions import ClientError

from cluster.aws import errors
from cluster.aws.client import IMPATIENT_ATTEMPTS, MAX_PAUSE_S, THROTTLED_ATTEMPTS, Aws, pause_s
from cluster.aws.errors import THROTTLED, aws_errors
from cluster.errors import AwsError, NoAnswerError, UsageError
from tests.cluster.conftest import Proxy


def client_error(code: str, message: str = "why") -> boto.ClientError:
    return boto.ClientError({"Error": {"Code": code, "Message": message}}, "DescribeStacks")


@pytest.mark.parametrize(
    ("error", "what", "remedy"),
    [
        (boto.NoCredentialsError(), "no AWS credentials", "aws configure"),
        (boto.PartialCredentialsError(provider="env", cred_var="secret"), "incomplete AWS credentials", "set both"),
        (boto.NoRegionError(), "no AWS region", "AWS_REGION"),
        (boto.ProfileNotFound(profile="work"), "work", "AWS_PROFILE"),
        (boto.UnauthorizedSSOTokenError(), "session has expired", "aws sso login"),
        (client_error("ExpiredToken"), "session has expired", "sign in again"),
        (client_error("RequestExpired"), "session has expired", "sign in again"),
        (client_error("InvalidClientTokenId"), "does not accept the credentials", "AWS_PROFILE"),
        (client_error("UnauthorizedOperation", "no ec2:Describe"), "no ec2:Describe", "permission"),
        (client_error("Throttling", "slow down"), "AWS throttles DescribeStacks", "wait a minute and repeat"),
        (client_error("ValidationError", "no such stack"), "no such stack", "fix the cause that AWS names"),
        (client_error("403", "Forbidden"), "AWS denied the request", "permission"),
        (boto.EndpointConnectionError(endpoint_url="http://198.18.0.1"), "does not answer", "AWS_ENDPOINT_URL"),
        (boto.ParamValidationError(report="bad"), "bad", ""),
        (boto.SSLError(endpoint_url="https://x", error=OSError("self-signed")), "certificate", "AWS_CA_BUNDLE"),
        (boto.LoginRefreshRequired(), "session has expired", "aws login"),
        (boto.MissingDependencyException(msg="botocore[crt]"), "crt", "make setup"),
        (boto.InvalidRetryModeError(provided_retry_mode="x", valid_modes=["y"]), "invalid AWS settings", "aws/config"),
    ],
)
def test_failure_reports_what_where_and_fix(error: Exception, what: str, remedy: str) -> None:
    with pytest.raises(AwsError, match=what) as caught, aws_errors("listing nodes"):
        raise error
    assert caught.value.where == "listing nodes"
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(("status", "remedy"), [(400, "fix the cause"), (500, "repeat it in a few minutes")])
def test_unknown_code_is_reported_with_the_request_id(status: int, remedy: str) -> None:
    answer: Any = {"Error": {"Code": "New", "Message": "why"}}
    answer["ResponseMetadata"] = {"RequestId": "6f4a8b10", "HTTPStatusCode": status}
    with pytest.raises(AwsError, match="why") as caught, aws_errors("listing nodes"):
        raise boto.ClientError(answer, "DescribeStacks")
    assert remedy in caught.value.remedy
    assert caught.value.remedy.endswith("CloudTrail and AWS Support find the call by its request ID 6f4a8b10")


def test_fix_for_missing_package_fits_a_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel has no Makefile."""
    monkeypatch.setattr(errors, "REINSTALL", "install deepcdk again")
    with pytest.raises(AwsError) as caught, aws_errors("listing nodes"):
        raise boto.MissingDependencyException(msg="botocore[crt]")
    assert caught.value.remedy == "install deepcdk again, which installs botocore[crt]"


def test_own_errors_and_bugs_are_not_converted() -> None:
    with pytest.raises(UsageError), aws_errors("x"):
        raise UsageError("--nodes", 0, "must be more")
    with pytest.raises(KeyError), aws_errors("x"):
        raise KeyError("mistake")


def test_missing_credentials_are_reported(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(AwsError, match="no AWS credentials"), aws_errors("looking"):
        aws.client("ec2").describe_instances()


def test_unreadable_settings_are_reported_unless_the_network_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "config"
    settings.touch()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(settings))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    found = errors.explain(boto.NoRegionError())
    assert found is not None
    assert (found.what, found.remedy) == (
        f"your AWS settings cannot be read: {settings}: permission denied",
        "make this file readable for your user, then repeat",
    )
    silence = errors.explain(boto.EndpointConnectionError(endpoint_url="http://198.18.0.1"))
    assert isinstance(silence, NoAnswerError) and "198.18.0.1" in silence.what


def test_clients_are_cached_and_the_price_list_is_in_us_east_1(aws: Aws) -> None:
    assert aws.client("ec2") is aws.client("ec2")
    assert aws.client("ec2") is not aws.impatient("ec2")
    assert aws.client("pricing").meta.region_name == "us-east-1"
    assert (aws.region, aws.endpoint) == ("us-east-1", "")


def test_region_is_chosen_like_the_cdk(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert Aws().region == Aws().client("ec2").meta.region_name == "eu-west-3"
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert Aws().region == "eu-west-1"


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
        if refused and not self.code:  # the connection breaks
            self.close_connection = True
            return
        error = f"<Response><Errors><Error><Code>{self.code}</Code><Message>no</Message></Error></Errors></Response>"
        body = (error if refused else "<DescribeVpcsResponse><vpcSet/></DescribeVpcsResponse>").encode()
        self.send_response(503 if refused and self.code == "RequestLimitExceeded" else 400 if refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, aws: Aws) -> Iterator[type[_Throttling]]:
    """Serve an API; attempts follow each other without a pause."""
    del aws  # sets the credentials
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
def test_throttled_call_is_retried_more_often_than_others(api: type[_Throttling], code: str) -> None:
    api.refusals, api.code = THROTTLED_ATTEMPTS - 1, code
    assert Aws().client("ec2").describe_vpcs()["Vpcs"] == []
    assert api.seen == THROTTLED_ATTEMPTS


def test_other_errors_are_not_retried_and_impatient_client_gives_up_soon(api: type[_Throttling]) -> None:
    api.refusals, api.code = 1000, "UnauthorizedOperation"
    with pytest.raises(ClientError):
        Aws().client("ec2").describe_vpcs()
    assert api.seen == 1
    api.code = "RequestLimitExceeded"
    with pytest.raises(ClientError):
        Aws().impatient("ec2").describe_vpcs()
    assert api.seen == 1 + IMPATIENT_ATTEMPTS


def test_impatient_client_retries_broken_connection_once(api: type[_Throttling]) -> None:
    api.refusals, api.code = 1, ""
    assert Aws().impatient("ec2").describe_vpcs()["Vpcs"] == []
    assert api.seen == 2


def set_proxy(monkeypatch: pytest.MonkeyPatch, name: str, address: str) -> None:
    """Set a proxy variable and remove the others."""
    for each in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(each, raising=False)
        monkeypatch.delenv(each.lower(), raising=False)
    monkeypatch.setenv(name, address)


def test_calls_go_through_the_http_proxy(api: type[_Throttling], monkeypatch: pytest.MonkeyPatch) -> None:
    set_proxy(monkeypatch, "HTTP_PROXY", os.environ["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://ec2.invalid")
    assert Aws().client("ec2").describe_vpcs()["Vpcs"] == []
    assert api.seen == 1


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://[", "address of the HTTP proxy is invalid"),
        ("http://proxy.example:port", "address of the HTTP proxy is invalid"),
        ("http://user:word@127.0.0.1:99999", "address of the HTTP proxy is invalid"),
        (" http://127.0.0.1:9", "address of the HTTP proxy is invalid"),
        ("http://127.0.0.1:9", "HTTP proxy does not answer"),
        ("http://user:word@127.0.0.1:9", "HTTP proxy does not answer"),
        ("socks5://127.0.0.1:9", "HTTP proxy does not answer"),
    ],
)
def test_unusable_proxy_is_reported_without_its_password(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, address: str, message: str
) -> None:
    del aws  # sets the credentials
    set_proxy(monkeypatch, "HTTPS_PROXY", address)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://ec2.invalid")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(AwsError, match=message) as failed, aws_errors("looking"):
        Aws().client("ec2").describe_vpcs()
    assert "HTTPS_PROXY" in str(failed.value)
    assert "word" not in str(failed.value)
    assert "invalid" in message or "127.0.0.1:9" in str(failed.value)


@pytest.mark.parametrize(
    ("scheme", "rejection", "message"),
    [
        ("http", 407, r"HTTP proxy http://\*\*\*:\*\*\*@{} asks for a password \(407\)"),
        ("https", 407, r"HTTP proxy http://\*\*\*:\*\*\*@{} asks for a password \(407\)"),
        ("https", 403, r"HTTP proxy http://\*\*\*:\*\*\*@{} rejects the connection: 403 Forbidden"),
    ],
)
def test_proxy_that_rejects_a_call_is_reported(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, proxy: type[Proxy], scheme: str, rejection: int, message: str
) -> None:
    del aws  # sets the credentials
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://ec2.invalid")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    proxy.rejection = rejection
    with pytest.raises(NoAnswerError, match=message.format(proxy.address)) as failed, aws_errors("looking"):
        Aws().client("ec2").describe_vpcs()
    assert "PROXY" in failed.value.remedy
    assert proxy.seen


def test_hosts_in_no_proxy_are_called_directly(
    api: type[_Throttling], monkeypatch: pytest.MonkeyPatch, proxy: type[Proxy]
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert Aws().client("ec2").describe_vpcs()["Vpcs"] == []
    assert (api.seen, proxy.seen) == (1, [])


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (b"<html><body>Sign in to the network</body></html>", r"received a web page \(HTTP status 200\) instead"),
        (b"<!DOCTYPE html>\n<html><br></html>", r"received a web page \(HTTP status 200\) instead"),
        (b"welcome", "the answer is not from AWS: .*welcome"),
        (b"", "the answer is not from AWS: "),
    ],
)
@pytest.mark.parametrize("service", ["ec2", "sts"])
def test_answer_of_another_server_than_aws_is_reported(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, proxy: type[Proxy], page: bytes, message: str, service: Any
) -> None:
    del aws  # sets the credentials
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://aws.invalid")
    proxy.answers["/"] = page
    client = Aws().client(service)
    with pytest.raises(NoAnswerError, match=message) as failed, aws_errors("looking"):
        client.get_caller_identity() if service == "sts" else client.describe_vpcs()
    assert "sign in to the network" in failed.value.remedy


def test_web_page_in_a_bucket_is_an_object(aws: Aws, monkeypatch: pytest.MonkeyPatch, proxy: type[Proxy]) -> None:
    del aws  # sets the credentials
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3.invalid")
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
    proxy.answers["/bucket/report.html"] = b"<html></html>"
    s3 = Aws().client("s3")
    assert s3.get_object(Bucket="bucket", Key="report.html")["Body"].read() == b"<html></html>"


def test_pauses_grow_up_to_a_limit() -> None:
    throttled = (None, {"Error": {"Code": next(iter(THROTTLED))}})
    pauses = [pause_s(response=throttled, attempts=attempts) for attempts in range(1, THROTTLED_ATTEMPTS + 1)]
    assert pauses[-1] is None
    assert all(0.5 <= (pause or 0) <= MAX_PAUSE_S for pause in pauses[:-1])
    assert pause_s(response=None, attempts=1) is None


@pytest.mark.parametrize(
    ("error", "what", "remedy"),
    [
        (client_error("PendingVerification", "wait"), "has not verified this account yet: wait", "AWS Support"),
        (
            client_error("OptInRequired", "subscribe"),
            "may not use this AWS service (OptInRequired): subscribe",
            "accept the terms",
        ),
        (client_error("Blocked", "no"), "may not use this AWS service (Blocked): no", "AWS Support"),
        (
            client_error("UnauthorizedOperation", "with an explicit deny in a service control policy"),
            "AWS denied the request",
            "the administrators of your AWS organization",
        ),
    ],
)
def test_blocked_account_is_reported_with_who_can_help(error: Exception, what: str, remedy: str) -> None:
    with pytest.raises(AwsError) as raised, aws_errors("asking"):
        raise error
    assert what in raised.value.what
    assert remedy in raised.value.remedy


@pytest.mark.parametrize("code", ["AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException"])
def test_region_not_enabled_in_account_is_reported(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for region, named in (("eu-south-2", True), ("eu-west-1", False), ("us-gov-west-1", False)):
        monkeypatch.setenv("AWS_REGION", region)
        with pytest.raises(AwsError) as raised, aws_errors("asking"):
            raise client_error(code)
        assert (f"aws account enable-region --region-name {region}" in raised.value.remedy) == named
