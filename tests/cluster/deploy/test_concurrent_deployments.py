"""Deployments from several laptops: each executes its own plan, or is rejected because another one came first."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cluster.aws.client import Aws
from cluster.deploy import cdk, change_set
from cluster.deploy.cdk import CdkError
from cluster.deploy.change_set import OvertakenError, Plan

PROJECT = Path("/project")


def synthesised(command: list[str]) -> None:
    """Create the result of the CLI's synthesis: an assembly."""
    Path(command[command.index("--output") + 1], "manifest.json").touch()


class Formation:
    """CloudFormation as served by the embedded cloud, called directly instead of through the CDK CLI."""

    def __init__(self, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
        self.aws, self.client = aws, aws.client("cloudformation")
        self.overtaken: Callable[[], None] = lambda: None
        """Actions of other laptops before the CLI does its part."""
        monkeypatch.setattr(cdk, "find_cli", lambda _: Path("cdk"))
        monkeypatch.setattr(cdk, "call", self._prepare)
        monkeypatch.setattr(cdk, "run", self._execute)

    def _prepare(self, command: list[str], project: Path, what: str, inherited: Mapping[str, str]) -> None:
        synthesised(command)
        self.overtaken()
        name, size = command[command.index("--change-set-name") + 1], dict(pair.split("=") for pair in command[-1:])
        stack = self.stack()
        new = stack is None or stack["StackStatus"] == "REVIEW_IN_PROGRESS"
        try:
            self.client.create_change_set(
                StackName="deepcdk",
                ChangeSetName=name,
                ChangeSetType="CREATE" if new else "UPDATE",
                TemplateBody=vpc(size["size"]),
            )
        except ClientError as error:
            raise CdkError(f"{what} failed\n  {error}") from None

    def _execute(
        self, command: list[str], project: Path, operation: cdk.Operation, inherited: Mapping[str, str], **_: object
    ) -> None:
        self.overtaken()
        try:
            self.client.execute_change_set(ChangeSetName=command[command.index("--change-set-name") + 1])
        except ClientError as error:
            raise CdkError(f"{operation.noun} failed: {error}") from None
        self.settle()

    def stack(self) -> Mapping[str, Any] | None:
        found = self.client.describe_stacks()["Stacks"]
        return found[0] if found else None

    def settle(self) -> None:
        while str((self.stack() or {}).get("StackStatus", "")).endswith("_IN_PROGRESS"):
            time.sleep(0.01)

    def deploy(self, size: int) -> None:
        """Deploy like another laptop: create a change set and execute it."""
        before, self.overtaken = self.overtaken, lambda: None
        with self.planned(size) as plan:
            change_set.execute(self.aws, PROJECT, plan, lambda _: None)
        self.overtaken = before

    def planned(self, size: int) -> AbstractContextManager[Plan]:
        return change_set.planned(self.aws, PROJECT, "deepcdk", {"size": str(size)})

    def execute(self, plan: Plan) -> None:
        change_set.execute(self.aws, PROJECT, plan, lambda _: None)

    def size(self) -> str:
        body = self.client.get_template(StackName="deepcdk")["TemplateBody"]
        return str(body["Resources"]["Vpc"]["Properties"]["CidrBlock"].rpartition("/")[2])


def vpc(size: str) -> str:
    properties = {"CidrBlock": f"10.0.0.0/{size}"}
    return json.dumps({"Resources": {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": properties}}})


@pytest.fixture(scope="module")
def served() -> Iterator[Mapping[str, str]]:
    """Serve an embedded cloud's API; return its address and credentials."""
    with subprocess.Popen([sys.executable, "-m", "localcloud", "api"], stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())
        server.stdin.close()


@pytest.fixture
def formation(served: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Formation]:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", served["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", served["secret_access_key"])
    monkeypatch.setenv("AWS_REGION", served["region"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", served["endpoint"])
    made = Formation(Aws(), monkeypatch)
    yield made
    made.client.delete_stack(StackName="deepcdk")
    made.settle()


def test_of_two_concurrent_creations_one_succeeds_and_the_other_is_reported(formation: Formation) -> None:
    with formation.planned(16) as ours, formation.planned(17) as theirs:
        assert (ours.is_new, theirs.is_new, ours.change_set != theirs.change_set) == (True, True, True)
        formation.execute(theirs)
        with pytest.raises(OvertakenError, match="none of it was made") as caught:
            formation.execute(ours)
    assert "CREATE_COMPLETE" in caught.value.where
    assert "repeat `fab up`" in caught.value.remedy
    assert formation.size() == "17"


def test_rejected_plan_deletes_only_its_own_change_set(formation: Formation) -> None:
    with formation.planned(16) as theirs:
        with pytest.raises(KeyboardInterrupt), formation.planned(17):
            raise KeyboardInterrupt
        listed = formation.client.list_change_sets(StackName="deepcdk")["Summaries"]
        assert [each["ChangeSetId"] for each in listed] == [theirs.change_set]
        formation.execute(theirs)
    assert formation.size() == "16"


def test_uncreated_stack_is_deleted_with_its_last_change_set(formation: Formation) -> None:
    with formation.planned(16):
        with formation.planned(17):
            pass
        assert (formation.stack() or {})["StackStatus"] == "REVIEW_IN_PROGRESS"
    assert formation.stack() is None


def test_deployment_between_comparison_and_execution_is_reported(formation: Formation) -> None:
    formation.deploy(16)
    with formation.planned(17) as ours:
        formation.overtaken = lambda: formation.deploy(18)
        with pytest.raises(OvertakenError):
            formation.execute(ours)
    assert formation.size() == "18"


def test_direct_update_makes_a_plan_obsolete(formation: Formation) -> None:
    formation.deploy(16)
    with formation.planned(17) as ours:
        formation.client.update_stack(StackName="deepcdk", TemplateBody=vpc("18"))
        formation.settle()
        with pytest.raises(OvertakenError):
            formation.execute(ours)
    assert formation.client.list_change_sets(StackName="deepcdk")["Summaries"] == []


def test_stack_with_deployment_in_progress_is_reported_as_not_comparable(
    formation: Formation, monkeypatch: pytest.MonkeyPatch
) -> None:
    formation.deploy(16)
    busy = {**(formation.stack() or {}), "StackStatus": "UPDATE_IN_PROGRESS"}

    def refused(command: list[str], project: Path, what: str, inherited: Mapping[str, str]) -> None:
        monkeypatch.setattr(change_set, "describe_stack", lambda *_: busy)
        synthesised(command)
        raise CdkError(f"{what} failed\n  first\n  Stack:arn is in UPDATE_IN_PROGRESS state and can not be updated.")

    monkeypatch.setattr(cdk, "call", refused)
    with pytest.raises(OvertakenError, match="UPDATE_IN_PROGRESS state and can not be updated") as caught:
        formation.planned(17).__enter__()
    assert caught.value.status == "UPDATE_IN_PROGRESS"


@pytest.mark.parametrize(
    ("said", "written"), [("cluster.workers = 'x'", False), ("Synthesis finished with errors", True)]
)
def test_rejected_template_is_reported_even_while_the_stack_changes(
    formation: Formation, monkeypatch: pytest.MonkeyPatch, said: str, written: bool
) -> None:
    formation.deploy(16)
    busy = {**(formation.stack() or {}), "StackStatus": "UPDATE_IN_PROGRESS"}

    def refused(command: list[str], project: Path, what: str, inherited: Mapping[str, str]) -> None:
        monkeypatch.setattr(change_set, "describe_stack", lambda *_: busy)
        if written:
            synthesised(command)
        raise CdkError(f"{what} failed\n  ERROR a rule\n  {said}")

    monkeypatch.setattr(cdk, "call", refused)
    with pytest.raises(CdkError, match="ERROR a rule"):
        formation.planned(17).__enter__()


def test_stack_that_is_created_meanwhile_is_updated(formation: Formation) -> None:
    formation.overtaken = lambda: formation.deploy(16)
    with formation.planned(17) as ours:
        assert (ours.is_new, [each.action for each in ours.effects]) == (False, ["REPLACED"])


def test_failed_execution_of_own_change_set_is_reported(formation: Formation, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(command: list[str], *_: object, **__: object) -> None:
        formation.client.execute_change_set(ChangeSetName=command[command.index("--change-set-name") + 1])
        formation.settle()
        raise CdkError("the deployment failed")

    monkeypatch.setattr(cdk, "run", failed)
    with formation.planned(16) as plan, pytest.raises(CdkError, match="the deployment failed"):
        formation.execute(plan)
