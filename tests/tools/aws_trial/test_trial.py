"""Facts about a trial: its log of calls, and that the cluster is destroyed whatever came before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cluster.aws.client import Aws
from cluster.errors import AwsError
from tools.aws_trial import account, plan, trial
from tools.aws_trial.observation import Command
from tools.aws_trial.trial import Done, Trial, doctor_facts, parse_calls

NAME = "deepcdk-trial-ab12"


def call(operation: str, seconds: float, error: dict[str, str] | None = None, fields: Sequence[str] = ()) -> str:
    made = {"service": "ec2", "operation": operation, "seconds": seconds, "retries": 1}
    return json.dumps({**made, "error": error, "fields": list(fields)})


def test_calls_are_joined_by_operation() -> None:
    denied = {"code": "UnauthorizedOperation", "message": "no"}
    lines = [call("A", 3.0, None, ["X"]), call("B", 1.0), call("A", 1.0, denied), call("A", 2.0, denied, ["Y"])]
    first, second = parse_calls(lines)
    assert (first.operation, first.count, first.seconds, first.retries) == ("ec2:A", 3, 2.0, 3)
    assert (first.errors, first.fields) == (("UnauthorizedOperation",), ("X", "Y"))
    assert (second.operation, second.errors) == ("ec2:B", ())


def test_the_doctors_findings_are_facts_and_another_output_is_none() -> None:
    findings = [
        {"check": "zones", "state": "ok"},
        {"check": "key", "state": "warn"},
        {"check": "zones", "state": "fail"},
    ]
    output = json.dumps({"findings": findings})
    assert doctor_facts("doctor", output) == {"doctor: zones": "fail, ok", "doctor: key": "warn"}
    assert doctor_facts("doctor", "error: no credentials") == {}
    assert doctor_facts("doctor", "[]") == {}


class Account:
    """An account in which a trial's stack is, until it is destroyed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, fails: dict[str, Any]) -> None:
        self.ran: list[str] = []
        self.fails = fails
        self.there = False
        self.deleted_keys: list[str] = []
        self.trial = Trial(aws=Aws(), settings=plan.settings(NAME, ""), directory=tmp_path, commit="abc")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
        monkeypatch.setattr(trial, "execute", self._execute)
        monkeypatch.setattr(account, "stack_id", lambda *_: "arn:stack" if self.there else "")
        monkeypatch.setattr(account, "read_resources", lambda *_: [])
        monkeypatch.setattr(account, "read_events", lambda *_: [])
        monkeypatch.setattr(account, "find_left", lambda *_: ["vpc-1 available"] if self.there else [])
        monkeypatch.setattr(
            self.trial.aws.client("ec2"), "delete_key_pair", lambda KeyName: self.deleted_keys.append(KeyName)
        )

    def _execute(self, given: Trial, step: plan.Step, calls: Path) -> Done:
        self.ran.append(step.name)
        what = self.fails.get(step.name, 0)
        if isinstance(what, BaseException):
            raise what
        self.there = self.there or step.name == plan.CREATION
        if step == plan.DESTRUCTION and not what:
            self.there = False
        return Done(command=Command(name=step.name, line="fab", exit_code=what, seconds=1.0), output="")


def test_a_creation_that_fails_ends_the_trial_and_what_it_made_is_destroyed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Account(monkeypatch, tmp_path, fails={plan.CREATION: 1})
    observed = trial.run(made.trial)
    assert made.ran == [plan.FIRST, plan.CREATION, "down"]
    assert (made.there, made.deleted_keys, observed.left) == (False, [NAME], ())
    assert [each.exit_code for each in observed.commands] == [0, 1, 0]


def test_an_interrupted_trial_is_destroyed_and_its_observation_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Account(monkeypatch, tmp_path, fails={"train": KeyboardInterrupt()})
    observed = trial.run(made.trial)
    assert made.ran[-1] == "down"
    assert (made.there, observed.facts["interrupted"]) == (False, "yes")


def test_an_error_of_the_account_ends_in_an_observation_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = AwsError("the AWS session of account 123456789012 has expired", where="looking")
    made = Account(monkeypatch, tmp_path, fails={"status": error, "down": error})
    observed = trial.run(made.trial)
    assert "ACCOUNT has expired" in observed.facts["error"]
    left, rest = observed.left
    assert rest == "vpc-1 available"
    assert left.startswith("stack not destroyed: the AWS session of account ACCOUNT")


def test_a_second_interruption_leaves_the_cluster_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Account(monkeypatch, tmp_path, fails={"train": KeyboardInterrupt(), "down": KeyboardInterrupt()})
    assert trial.run(made.trial).left == ("interrupted before all was destroyed",)


def test_a_destruction_that_fails_lists_what_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Account(monkeypatch, tmp_path, fails={plan.CREATION: 1, "down": 1})
    observed = trial.run(made.trial)
    assert observed.left == ("vpc-1 available",)


def test_a_key_pair_that_may_not_be_deleted_hides_nothing_of_what_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Account(monkeypatch, tmp_path, fails={plan.CREATION: 1, "down": 1})

    def denied(KeyName: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": f"no {KeyName}"}}, "DeleteKeyPair")

    monkeypatch.setattr(made.trial.aws.client("ec2"), "delete_key_pair", denied)
    first, second = trial.run(made.trial).left
    assert first.startswith("key pair not deleted: AWS denies it: no CLUSTER")
    assert second == "vpc-1 available"


def test_what_an_interrupted_creation_has_made_is_read_before_it_is_destroyed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Account(monkeypatch, tmp_path, fails={plan.CREATION: KeyboardInterrupt()})
    made.there = True
    sought: list[object] = []
    monkeypatch.setattr(account, "read_resources", lambda *_: [("AWS::S3::Bucket", "runs")])

    def find_left(aws: Aws, name: str, resources: Sequence[tuple[str, str]]) -> list[str]:
        sought.extend(resources)
        return []

    monkeypatch.setattr(account, "find_left", find_left)
    assert trial.run(made.trial).facts["interrupted"] == "yes"
    assert (made.ran[-1], sought) == ("down", [("AWS::S3::Bucket", "runs")])


def test_a_cluster_that_is_no_trials_is_never_destroyed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Account(monkeypatch, tmp_path, fails={plan.CREATION: 1})
    made.trial = Trial(aws=made.trial.aws, settings={"name": "deepcdk"}, directory=tmp_path, commit="abc")
    with pytest.raises(ValueError, match="not a trial's cluster"):
        trial.run(made.trial)
    assert "down" not in made.ran


def test_a_commands_output_passes_through_and_its_end_is_kept_redacted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    words = ["sh", "-c", f"seq 8; sleep 0.2; echo {NAME} in eu-west-3 >&2; exit 3"]
    monkeypatch.setattr(plan, "command", lambda *_: words)
    given = Trial(aws=Aws(), settings=plan.settings(NAME, ""), directory=tmp_path, commit="abc")
    done = trial.execute(given, plan.Step(name="x", words=("x",)), tmp_path / "calls")
    assert (done.command.exit_code, done.command.last_lines[-1]) == (3, "CLUSTER in REGION")
    assert len(done.command.last_lines) == 9
    assert done.output.splitlines() == list("12345678"), "errors are no part of a document"
    printed = capfd.readouterr()
    assert (f"{NAME} in eu-west-3" in printed.out, f"{NAME} in eu-west-3" in printed.err) == (False, True)


def test_commands_take_no_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = Trial(aws=Aws(), settings=plan.settings(NAME, ""), directory=tmp_path, commit="abc")
    monkeypatch.setattr(plan, "command", lambda *_: ["cat"])
    done = trial.execute(given, plan.Step(name="x", words=("x",)), tmp_path / "calls")
    assert (done.command.exit_code, done.command.last_lines) == (0, ())
