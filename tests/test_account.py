"""`pytest tests/e2e --aws` starts nothing without confirmation and always cleans up.

A test file that uses the real fixtures runs in another process, against moto and a fake `fab`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest
from moto import mock_aws
from moto.server import ThreadedMotoServer

from cluster import demo
from cluster.errors import DeepcdkError
from tests import account
from tests.account import SECRETS, SIGNALS, interrupt_once, redact, settings
from tests.waiting import PATIENCE_S, eventually

NAME = "deepcdk-test-0a1b"
KEY, SECRET, TOKEN = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "IQoJb3JpZ2luX2VjEXAMPLE"
ACCOUNT = "123456789012"
NO_PRICES = {"AWS_ENDPOINT_URL_PRICING": "http://127.0.0.1:9"}
"""moto has no prices, so the included list is used."""
CONFTEST = """\
import os
from pathlib import Path
from tests import account
from cluster import demo
real = demo.environment
demo.environment = lambda: {**real(), "PATH": os.environ["STAND_INS"] + os.pathsep + os.environ["PATH"]}
account.RESULTS = Path(os.environ["RESULTS"])
account.END_S = 1.0
from tests.e2e.conftest import (
    deployment, pytest_addoption, pytest_collection_finish, pytest_configure, pytest_unconfigure,
)
"""
# `up` creates a stack from a process that ignores Ctrl-C, as the CDK CLI could.
FAB = """\
#!{python}
import json, os, pathlib, subprocess, sys, time
import boto3
directory = pathlib.Path({directory!r})
with (directory / "called").open("a") as file:
    print(*sys.argv[1:2], file=file)
aws = boto3.Session(region_name="us-east-1").client("cloudformation")
if sys.argv[1] == "up":
    name = f"bucket-{{os.getpid()}}"
    bucket = {{"Type": "AWS::S3::Bucket", "Properties": {{"BucketName": name}}}}
    aws.create_stack(StackName={name!r}, TemplateBody=json.dumps({{"Resources": {{"B": bucket}}}}))
    storage = boto3.Session(region_name="us-east-1").client("s3")
    storage.put_object(Bucket=name, Key="record.json", Body=b"")
    if "slow" in os.environ["CASE"]:
        subprocess.run(["sh", "-c", 'trap "" INT; echo >"$0"; sleep 600', directory / "started"])
    print("error: {account} may not, says AWS to {key}")
    sys.exit("broken" in os.environ["CASE"])
if sys.argv[1] == "down":
    (directory / "down").touch()
    time.sleep(3 * ("again" in os.environ["CASE"]))
    if "live" in os.environ["CASE"]:
        sys.exit("a run is live")
    aws.delete_stack(StackName={name!r})
"""
TESTS = """\
import pytest
@pytest.mark.aws
def test_one(deployment):
    assert deployment.ask("sts", "get_caller_identity")["Account"]
    with pytest.raises(Exception):
        deployment.ask("ec2", "describe_instances", InstanceIds=["i-0123456789abcdef0"])
    print(deployment.laptop("fab", "train").stdout)
    raise RuntimeError("{account} {key} {secret} {token}")
def test_of_the_embedded_cloud(cluster):
    pass
"""


@dataclasses.dataclass(frozen=True)
class Scene:
    """An empty account, and a folder with the test file."""

    folder: Path
    variables: dict[str, str]

    def start(self, *options: str, case: str = "") -> subprocess.Popen[str]:
        """Start the tests on the account."""
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "pyproject.toml", "tests/test_it.py"]
        return subprocess.Popen(
            [*command, "--aws", "--aws-set", f"name={NAME}", *options],
            cwd=self.folder, env={**self.variables, "CASE": case}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def called(self) -> list[str]:
        """Return the tasks that were called."""
        path = self.folder / "called"
        return path.read_text().split() if path.exists() else []

    def stacks(self) -> list[str]:
        """Return the names of the existing stacks."""
        session = boto3.Session(KEY, SECRET, region_name="us-east-1")
        client = session.client("cloudformation", endpoint_url=self.variables["AWS_ENDPOINT_URL"])
        return [stack["StackName"] for stack in client.describe_stacks()["Stacks"]]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Start an empty account."""
    named = {"name": NAME, "account": ACCOUNT, "key": KEY, "secret": SECRET, "token": TOKEN}
    (tmp_path / "tests").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["aws", "e2e", "full"]\n')
    (tmp_path / "tests/conftest.py").write_text(CONFTEST)
    (tmp_path / "tests/test_it.py").write_text(TESTS.format(**named))
    (tmp_path / "bin/fab").write_text(FAB.format(python=sys.executable, directory=str(tmp_path), **named))
    (tmp_path / "bin/fab").chmod(0o755)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTEST_"))}
    variables |= {
        "HOME": str(tmp_path), "PYTHONPATH": str(demo.ROOT), "STAND_INS": str(tmp_path / "bin"),
        "RESULTS": str(tmp_path / "results"), "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_REGION": "us-east-1",
        **NO_PRICES,
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN,
    }  # fmt: skip
    yield Scene(tmp_path, variables)
    server.stop()


def test_failed_test_removes_cluster_and_writes_report_without_secrets(scene: Scene) -> None:
    tests = scene.start()
    output, _ = tests.communicate(f"{NAME}\n", timeout=PATIENCE_S)
    assert tests.returncode == 1, output
    assert f"account {ACCOUNT}, region us-east-1" in output and f"Type {NAME} to continue" in output
    assert "1 failed, 1 deselected" in output and "nothing with the test's tag is left" in output
    assert scene.called() == ["up", "train", "down"]
    assert scene.stacks() == []
    results = scene.folder / "results" / NAME
    texts = {path.name: path.read_text() for path in results.iterdir()}
    assert set(texts) == {"calls.jsonl", "events.json", "junit.xml"}
    for name, text in texts.items():
        assert [secret for secret in (ACCOUNT, KEY, SECRET, TOKEN) if secret in text] == [], name
    calls = [json.loads(line) for line in texts["calls.jsonl"].splitlines()]
    made = {(call["Service"], call["Api"]): call for call in calls}
    # The process ids of the tests, the fab tasks and the clean-up.
    expected = {("STS", "GetCallerIdentity"), ("CloudFormation", "CreateStack"), ("EC2", "DeleteKeyPair")}
    assert expected <= made.keys()
    failed = next(call for call in calls if call["FinalHttpStatusCode"] == 400)
    assert failed["FinalAwsException"] == "InvalidInstanceID.NotFound"
    assert "RuntimeError: ACCOUNT" in texts["junit.xml"]


def test_interrupted_deployment_is_cleaned_up(scene: Scene) -> None:
    tests = scene.start("--aws-yes", case="slow again")
    eventually((scene.folder / "started").exists)
    tests.send_signal(signal.SIGINT)
    eventually((scene.folder / "down").exists)
    for number in SIGNALS:  # an impatient user also closes the terminal
        tests.send_signal(number)
    output, _ = tests.communicate(timeout=PATIENCE_S)
    assert tests.returncode == 2, output
    assert scene.called() == ["up", "down"]
    assert scene.stacks() == []
    assert "Ctrl-C is ignored meanwhile" in output


def test_failed_deployment_is_cleaned_up_even_if_fab_destroy_fails(scene: Scene) -> None:
    tests = scene.start("--aws-yes", case="broken, live")
    output, _ = tests.communicate(timeout=PATIENCE_S)
    assert tests.returncode == 1, output
    assert "1 error" in output and "a run is live" in output
    assert (scene.called(), scene.stacks()) == (["up", "down"], [])


@pytest.mark.parametrize("number", SIGNALS)
def test_each_signal_interrupts_once(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        signal.signal(number, interrupt_once)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        for each in SIGNALS:
            signal.raise_signal(each)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def configured(*given: str, **options: object) -> pytest.Config:
    """Return a pytest configuration with `--aws` and these settings."""
    usual = {"aws_set": list(given), "markexpr": "", "timeout": 900, "xmlpath": None}
    config: Any = SimpleNamespace(option=SimpleNamespace(**usual | options), stash=pytest.Stash())
    account.configure(config)
    return cast(pytest.Config, config)


@pytest.fixture
def anybody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Sign in to an empty account without prices."""
    monkeypatch.setattr(account, "RESULTS", tmp_path)
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    variables = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    for name, value in (variables | NO_PRICES).items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        yield


def test_any_answer_but_the_name_starts_nothing(anybody: None) -> None:
    said: list[str] = []
    trial = configured(f"name={NAME}").stash[account.TRIAL]
    trial.say = said.append
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "yes"

    with pytest.raises(DeepcdkError, match="Aborted"):
        trial.agree(7, answer)
    assert asked == [f"Type {NAME} to continue: "]
    assert f"account {ACCOUNT}, region us-east-1" in said[0]
    assert "2 m6i.large workers" in said[1] and "/h together" in said[1]
    assert not trial.directory.exists()


def test_wrong_setting_is_reported(anybody: None) -> None:
    with pytest.raises(pytest.UsageError, match="--aws-set name: must be KEY=VALUE"):
        configured("name")
    with pytest.raises(DeepcdkError, match="spot"):
        configured("spot=7").stash[account.TRIAL].agree(7, None)
    with pytest.raises(pytest.UsageError, match="leave -n out"):
        configured(numprocesses=2)


@pytest.mark.parametrize(
    "text",
    [
        f"arn:aws:iam::{ACCOUNT}:user/jane.doe",
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/Admin/jane.doe@example.com is not authorized",
        "https://b.s3.amazonaws.com/k?X-Amz-Credential=ASIAIOSFODNN7EXAMPLE%2F2026&X-Amz-Signature=0f0f",
        "Encoded authorization failure message: 0f0f",
        f"owner {ACCOUNT}, AROAIOSFODNN7EXAMPLE:jane.doe",
    ],
)
def test_names_and_numbers_are_redacted(text: str) -> None:
    kept = redact(text, {"jane.doe": "CALLER"})
    assert [each for each in (ACCOUNT, "jane", "EXAMPLE", "0f0f") if each in kept.replace("example.com", "")] == []
    assert len(SECRETS) == 5 and redact(kept, {}) == kept


def test_new_account_has_enough_vcpus() -> None:
    given = settings(NAME, [])
    assert (given["worker_instance_type"], given["workers"]) == ("m6i.large", "2")
    assert "ssh_cidr" not in given and given["ssh_access"] == "session-manager"
    assert "ssh_access" not in settings(NAME, ["ssh_cidr=198.51.100.7/32"])
