"""Public reports about signing in to AWS: it works as with the AWS CLI, or the message includes the fix."""

from __future__ import annotations

import datetime
import email.utils
import importlib.util
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import botocore.exceptions as boto
import pytest
from moto.server import ThreadedMotoServer
from packaging.requirements import Requirement

from cluster.aws import client, credentials
from cluster.aws.client import Aws
from cluster.aws.errors import aws_errors
from cluster.cli import PROJECT
from cluster.errors import AwsError, NoAnswerError
from cluster.session import Session
from cluster.tasks.status import _load

SERIAL = "arn:aws:iam::123456789012:mfa/u"
HERE = {"AWS_REGION": "us-east-1"}
REGION = "region = us-east-1\n"
MFA = (
    "[profile mfa]\nrole_arn = arn:aws:iam::123456789012:role/x\nsource_profile = base\n"
    f"mfa_serial = {SERIAL}\n{REGION}"
)
KEYS = "[base]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = secret\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory without AWS settings."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


def write(home: Path, config: str = "", credentials: str = "") -> None:
    (home / ".aws" / "config").write_text(config)
    (home / ".aws" / "credentials").write_text(credentials)


def called() -> str:
    """Return the error message of an AWS call."""
    with pytest.raises(AwsError) as caught, aws_errors("looking for networks"):
        Aws().client("ec2").describe_vpcs()
    assert caught.value.remedy
    return str(caught.value)


DEFAULT = "[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = secret\n"
SETTINGS: dict[str, tuple[dict[str, str], str, str, str]] = {
    # variables, ~/.aws/config, ~/.aws/credentials, the expected message
    "unknown profile": ({"AWS_PROFILE": "nope"}, "", "", r"nope.*list-profiles"),
    "no bracket": ({}, f"[default\n{REGION}", "", r"aws/config.*correct ~/.aws/config"),
    "not utf-8": ({}, "\udcff\udcfe[default]", "", r"aws/config"),
    "nothing": ({}, "", "", r"(no AWS credentials|no AWS region).*(aws configure|AWS_REGION)"),
    "half of the keys": ({"AWS_ACCESS_KEY_ID": "x", **HERE}, "", "", r"incomplete.*set both"),
    "no source profile": ({}, f"[default]\nrole_arn = a\nsource_profile = gone\n{REGION}", "", r"invalid.*gone"),
    "circular roles": (
        {"AWS_PROFILE": "a"},
        f"[profile a]\nrole_arn = x\nsource_profile = b\n{REGION}[profile b]\nrole_arn = y\nsource_profile = a\n",
        "", r"invalid AWS settings.*(?i:loop|source)",
    ),
    "credential_source": ({}, f"[default]\nrole_arn = x\ncredential_source = Bogus\n{REGION}", "", r"Bogus"),
    "credential_process": ({}, f"[default]\ncredential_process = false\n{REGION}", "", r"process.*by hand"),
    "credential_process without JSON": (
        {}, f"[default]\ncredential_process = echo hello\n{REGION}", "", r"invalid AWS settings.*~/.aws/config"
    ),
    "credential_process with a quote": (
        {}, f"[default]\ncredential_process = echo 'x\n{REGION}", "", r"invalid AWS settings: No closing quotation"
    ),
    "credential_process missing": (
        {}, f"[default]\ncredential_process = /no/such\n{REGION}", "", r"invalid AWS settings.*/no/such"
    ),
    "login": ({}, f"[default]\nlogin_session = arn:aws:iam::123456789012:user/e\n{REGION}", "", r"aws login"),
    "sso": (
        {},
        f"[default]\nsso_session = s\nsso_account_id = 123456789012\nsso_role_name = r\n{REGION}"
        "[sso-session s]\nsso_region = us-east-1\nsso_start_url = https://x.awsapps.com/start\n",
        "", r"session has expired or does not exist.*aws sso login",
    ),
    "sso, no session": (
        {"AWS_PROFILE": "w"},
        f"[profile w]\nsso_session = gone\nsso_account_id = 123456789012\nsso_role_name = r\n{REGION}", "",
        r"gone",
    ),
    "no region": ({}, "", DEFAULT, r"no AWS region is set.*AWS_REGION"),
    "region with a blank": ({"AWS_REGION": "us east"}, "", DEFAULT, r"invalid AWS region.*us-east-1"),
    "endpoint without scheme": ({"AWS_ENDPOINT_URL": "foo", **HERE}, "", DEFAULT, r"foo.*AWS_ENDPOINT_URL"),
    "endpoint closed": (
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", **HERE, "AWS_MAX_ATTEMPTS": "1"}, "", DEFAULT,
        r"does not answer.*AWS_REGION \(us-east-1\)",
    ),
    "line break in a key": (
        {"AWS_ACCESS_KEY_ID": "x\n", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", **HERE},
        "", "", r"credentials contain a line break(?!.*Signature).*check AWS_ACCESS_KEY_ID",
    ),
    "defaults mode": ({"AWS_DEFAULTS_MODE": "never", **HERE}, "", DEFAULT, r"invalid AWS settings.*never"),
    "proxy": (
        {"HTTPS_PROXY": "http://127.0.0.1:9", **HERE, "AWS_MAX_ATTEMPTS": "1"}, "", DEFAULT,
        r"proxy does not answer.*HTTPS_PROXY",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("variables", "config", "credentials", "says"), SETTINGS.values(), ids=SETTINGS)
def test_each_wrong_setting_has_a_message_and_a_fix(
    home: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], config: str, credentials: str, says: str
) -> None:
    """Source: awslogs #352, #363, awscli-login #35, aws-cli #4879, #9949."""
    import re

    monkeypatch.setattr("time.sleep", lambda _: None)
    (home / ".aws" / "config").write_bytes(config.encode(errors="surrogateescape"))
    (home / ".aws" / "credentials").write_text(credentials)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    message = called()
    assert re.search(says, message, re.DOTALL), message


@pytest.mark.parametrize(
    "name", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL"]
)
def test_empty_variable_counts_as_unset(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Source: awslogs #352."""
    write(home, "[default]\nregion = eu-west-1\n", DEFAULT)
    monkeypatch.setenv(name, "")
    aws = Aws()
    assert aws.region == aws.client("ec2").meta.region_name == "eu-west-1"
    assert name not in aws.environment() or aws.environment()[name] == "eu-west-1"


def test_no_task_ends_with_a_traceback(home: Path) -> None:
    """Source: awslogs #352: tracebacks of 63 to 83 lines."""
    write(home, "[default\n")
    for words in (["status"], ["up", "--plan", "--set", "ssh_cidr=198.18.0.1/32"], ["plan"], ["doctor"], ["prices"]):
        command = [
            sys.executable,
            "-c",
            "from cluster.cli.program import make_program; make_program().run()",
            *words,
        ]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert "aws/config" in done.stdout + done.stderr
        assert done.returncode == 1


def test_wrong_clock_is_reported(home: Path) -> None:
    """Source: aws-cli #4879: AWS reports that the credentials are wrong."""
    there = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=20)
    for code in (
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "AuthFailure",
        "RequestExpired",
        "InvalidSignatureException",
    ):
        answer = {
            "Error": {"Code": code, "Message": "no"},
            "ResponseMetadata": {"HTTPHeaders": {"date": email.utils.format_datetime(there)}},
        }
        with pytest.raises(AwsError, match="clock is 20 minutes behind AWS's") as caught, aws_errors("x"):
            raise boto.ClientError(answer, "DescribeStacks")  # type: ignore[arg-type]  # the stubs want every field
        assert "timedatectl" in caught.value.remedy


@pytest.fixture
def silent_endpoint(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of an API that accepts connections and never answers."""
    for name, value in ("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), *HERE.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield url


@pytest.mark.parametrize("kind", ["service", "role"])
def test_endpoint_without_answer_is_reported_after_two_attempts(
    silent_endpoint: str, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert client.READ_TIMEOUT_S * client.SILENT_ATTEMPTS <= 60
    monkeypatch.setattr(client, "READ_TIMEOUT_S", 0.2)
    if kind == "role":
        write(home, f"[profile r]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = base\n{REGION}", KEYS)
        monkeypatch.setenv("AWS_PROFILE", "r")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    call = "EC2 did not answer DescribeVpcs" if kind == "service" else "STS did not answer AssumeRole"
    began = time.monotonic()
    with pytest.raises(NoAnswerError) as caught, aws_errors("looking for networks"):
        Aws().client("ec2").describe_vpcs()
    assert time.monotonic() - began < 30
    assert f'{call}; Read timeout on endpoint URL: "{silent_endpoint}' in caught.value.what
    assert "AWS_ENDPOINT_URL" in caught.value.remedy


def test_status_stops_calling_endpoint_without_answer(silent_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "READ_TIMEOUT_S", 0.2)
    asked = mock.Mock(side_effect=AssertionError)
    monkeypatch.setattr("cluster.aws.launch_failures.describe_since", asked)
    with pytest.raises(NoAnswerError, match="CloudFormation did not answer DescribeStacks"):
        _load(Session(PROJECT, ["ssh_cidr=192.0.2.1/32"]))


def test_packages_for_aws_login_and_sso_are_dependencies() -> None:
    """Source: nextstrain/cli #533, aws-cli #9949."""
    assert importlib.util.find_spec("awscrt"), "run `make setup`"
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert "crt" in next(each for each in map(Requirement, declared) if each.name == "boto3").extras


@pytest.fixture
def api(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve an AWS API, with a profile and a role that requires an MFA code."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    write(home, MFA, KEYS)
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_PROFILE", "mfa")
    yield address
    server.stop()


def terminal(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], str]) -> list[str]:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    def ask(question: str) -> str:
        asked.append(question)
        return answer(question)

    monkeypatch.setattr("getpass.getpass", ask)
    return asked


def test_mfa_code_is_requested_once_and_session_is_cached_like_aws_cli(
    api: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source: aws-cdk #9855, #32312, #1248, aws-sam-cli #1623."""
    asked = terminal(monkeypatch, lambda _: "123456")
    aws = Aws()
    arn = aws.client("sts").get_caller_identity()["Arn"]
    assert ":assumed-role/x/" in arn
    aws.client("ec2").describe_vpcs()
    child = aws.environment()
    assert Aws().client("sts").get_caller_identity()["Arn"] == arn, "the next command takes the session in the cache"
    assert len(asked) == 1
    assert SERIAL in asked[0]
    (cached,) = (home / ".aws" / "cli" / "cache").glob("*.json")
    assert json.loads(cached.read_text())["Credentials"]["AccessKeyId"] == child["AWS_ACCESS_KEY_ID"]
    assert cached.stat().st_mode & 0o77 == 0
    assert "AWS_PROFILE" not in child
    assert child["AWS_SESSION_TOKEN"]
    assert child["AWS_REGION"] == child["AWS_DEFAULT_REGION"] == "us-east-1"


def test_credentials_refreshed_by_other_programs_are_not_cached(
    api: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployment may last longer than its first credentials are valid."""
    role = "role_arn = arn:aws:iam::123456789012:role/x\n"
    process = "import json; print(json.dumps(dict(Version=1, AccessKeyId='a', SecretAccessKey='b', SessionToken='c')))"
    write(
        home,
        f"[profile role]\n{role}source_profile = base\n"
        f"[profile process]\ncredential_process = {sys.executable} -c {shlex.quote(process)}\n"
        f"[profile chain]\n{role}source_profile = needs\n"
        f"[profile needs]\n{role}source_profile = base\nmfa_serial = {SERIAL}\n",
        KEYS,
    )
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    terminal(monkeypatch, lambda _: "123456")
    for profile, is_left in (("role", True), ("process", True), ("chain", False), ("base", False)):
        monkeypatch.setenv("AWS_PROFILE", profile)
        child = Aws().environment()
        assert ("AWS_ACCESS_KEY_ID" not in child and child.get("AWS_PROFILE") == profile) == is_left, profile


def test_slow_credential_process_is_reported_while_running(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A credential process that hung made every task hang without a message."""
    answer = 'print(\'{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b"}\')'
    words = shlex.join([sys.executable, "-c", f"import time; time.sleep(0.5); {answer}"])
    write(home, f"[default]\ncredential_process = {words}\n{REGION}", "")
    monkeypatch.setattr(credentials, "PROCESS_NOTE_S", 0.05)
    Aws().environment()
    said = capsys.readouterr().err
    assert f"still waiting for the credential_process {sys.executable} of your AWS profile" in said
    assert "sleep" not in said


def test_mfa_without_terminal_is_reported_without_a_prompt(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: aws-cdk #9855: `EOFError` and a traceback of 108 lines."""
    monkeypatch.setattr("getpass.getpass", lambda _: pytest.fail("asked"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    aws = Aws()  # Tasks make several calls, some in the background.

    def ask_client() -> object:
        return aws.client("sts").get_caller_identity()

    asks: list[Callable[[], object]] = [Aws().environment, ask_client, ask_client]
    for ask in asks:
        with pytest.raises(AwsError, match=f"MFA code.*{SERIAL}") as caught, aws_errors("x"):
            ask()
        assert "aws sts get-caller-identity" in caught.value.remedy


def test_missing_and_wrong_mfa_code_are_reported(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: aws-sam-cli #1735."""
    asked, aws = terminal(monkeypatch, lambda _: ""), Aws()
    for _ in range(2):
        with pytest.raises(AwsError, match="no MFA code was given"), aws_errors("x"):
            aws.client("sts").get_caller_identity()
    assert len(asked) == 1
    terminal(monkeypatch, lambda _: "12345")
    with pytest.raises(AwsError, match="an MFA code has 6 digits"), aws_errors("x"):
        Aws().client("sts").get_caller_identity()
    text = "MultiFactorAuthentication failed with invalid MFA one time pass code. "
    with pytest.raises(AwsError, match="rejects the MFA code") as caught, aws_errors("x"):
        raise boto.ClientError({"Error": {"Code": "AccessDenied", "Message": text}}, "AssumeRole")
    assert "repeat the command" in caught.value.remedy


def test_unwritable_home_requires_mfa_code_each_time(
    api: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Source: aws-cdk #1248."""
    asked = terminal(monkeypatch, lambda _: "123456")
    (home / ".aws" / "cli").write_text("a file is in the way")
    for _ in range(2):
        Aws().client("sts").get_caller_identity()
    assert len(asked) == 2
    assert "could not be stored for later commands" in capsys.readouterr().err


def test_keys_in_environment_are_passed_unchanged(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: aws-cdk #32312."""
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", **HERE}.items():
        monkeypatch.setenv(name, value)
    assert Aws().environment() == {**os.environ, "AWS_DEFAULT_REGION": "us-east-1"}


def test_no_program_is_started_without_credentials(home: Path) -> None:
    """Source: aws-cdk #9855: the CDK CLI printed `Unable to resolve AWS account to use`."""
    with pytest.raises(AwsError, match="no AWS credentials"):
        Aws().environment()
