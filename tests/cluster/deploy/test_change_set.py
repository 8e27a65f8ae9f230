"""Facts about a deployment in two steps: the plan is CloudFormation's own, and what is not executed leaves nothing."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cluster.aws.client import Aws
from cluster.deploy import cdk, change_set
from cluster.deploy.cdk import CdkError
from cluster.deploy.change_set import OvertakenError
from cluster.deploy.changes import Change
from cluster.deploy.plan import Plan, is_new, with_current_sizes
from localcloud.api.cloud import REGION

Propose = Callable[[dict[str, Any], str], None]
PROJECT = Path("/project")


def bucket(**more: Any) -> dict[str, Any]:
    return {"Type": "AWS::S3::Bucket", "Properties": {}, **more}


@pytest.fixture
def propose(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Propose:
    """Return a setter of what the CDK CLI makes a change set of, in place of the CLI."""
    wanted: dict[str, Any] = {}

    def run_quietly(command: list[str], project: Path, what: str) -> None:
        name = command[command.index("--change-set-name") + 1]
        aws.client("cloudformation").create_change_set(
            StackName="deepcdk", ChangeSetName=name, ChangeSetType=wanted["kind"], TemplateBody=wanted["body"]
        )

    def set_up(resources: dict[str, Any], kind: str) -> None:
        wanted.update(kind=kind, body=json.dumps({"Resources": resources}))

    monkeypatch.setattr(cdk, "run_quietly", run_quietly)
    monkeypatch.setattr(cdk, "find_cli", lambda _: Path("cdk"))
    return set_up


def deploy(aws: Aws, resources: dict[str, Any]) -> None:
    body = json.dumps({"Resources": resources})
    aws.client("cloudformation").create_stack(StackName="deepcdk", TemplateBody=body)


def change_sets(aws: Aws) -> list[str]:
    listed = aws.client("cloudformation").list_change_sets(StackName="deepcdk")["Summaries"]
    return [each["ChangeSetName"] for each in listed]


def test_a_plan_says_what_comes_and_what_goes(aws: Aws, propose: Propose) -> None:
    deploy(aws, {"Old": bucket(), "Same": bucket()})
    propose({"New": bucket(), "Same": bucket()}, "UPDATE")
    with change_set.planned(aws, PROJECT, "deepcdk", {}) as plan:
        assert [(each.action, each.what) for each in plan.effects] == [
            ("REMOVED", "bucket Old"),
            ("added", "bucket New"),
        ]
        assert [name.startswith(change_set.PREFIX) for name in change_sets(aws)] == [True]
    assert plan.ends_run == ("bucket Old: removed",)
    assert [each["action"] for each in plan.document()["changes"]] == ["REMOVED", "added"]


def test_a_plan_that_is_not_executed_leaves_no_change_set(aws: Aws, propose: Propose) -> None:
    deploy(aws, {"Old": bucket()})
    propose({"New": bucket()}, "UPDATE")
    with pytest.raises(KeyboardInterrupt), change_set.planned(aws, PROJECT, "deepcdk", {}):
        raise KeyboardInterrupt
    assert change_sets(aws) == []


def test_a_plan_of_a_new_stack_leaves_no_stack(aws: Aws, propose: Propose) -> None:
    propose({"New": bucket()}, "CREATE")
    with change_set.planned(aws, PROJECT, "deepcdk", {}) as plan:
        assert [each.action for each in plan.effects] == ["added"]
    assert aws.client("cloudformation").describe_stacks()["Stacks"] == []


def test_termination_protection_is_as_before_a_plan_that_is_not_executed(
    aws: Aws, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(aws, {"Old": bucket()})
    client = aws.client("cloudformation")
    propose({"New": bucket()}, "UPDATE")
    set_back: list[dict[str, Any]] = []
    monkeypatch.setattr(client, "update_termination_protection", lambda **given: set_back.append(given))
    shown = client.describe_stacks
    with change_set.planned(aws, PROJECT, "deepcdk", {}):

        def protected(**given: Any) -> dict[str, Any]:
            answer: dict[str, Any] = shown(**given)
            answer["Stacks"][0]["EnableTerminationProtection"] = True
            return answer

        monkeypatch.setattr(client, "describe_stacks", protected)
    assert [each["EnableTerminationProtection"] for each in set_back] == [False]


@pytest.mark.parametrize(
    ("reason", "unchanged"),
    [
        ("The submitted information didn't contain changes. Submit different information.", True),
        ("No updates are to be performed.", True),
        ("Template error: a rule is broken", False),
    ],
)
def test_no_change_is_no_failure_and_any_other_is_told(
    aws: Aws, propose: Propose, monkeypatch: pytest.MonkeyPatch, reason: str, unchanged: bool
) -> None:
    deploy(aws, {"Old": bucket()})
    propose({"Old": bucket()}, "UPDATE")
    client = aws.client("cloudformation")
    failed = {
        "ChangeSetId": "arn:aws:cloudformation:::changeSet/1",
        "Status": "FAILED",
        "StatusReason": reason,
        "Changes": [],
    }
    monkeypatch.setattr(client, "describe_change_set", lambda **_: dict(failed))
    monkeypatch.setattr(client, "get_template", lambda **_: {"TemplateBody": {"Resources": {}}})
    if unchanged:
        with change_set.planned(aws, PROJECT, "deepcdk", {}) as plan:
            assert (plan.unchanged, plan.effects) == (True, ())
    else:
        with (
            pytest.raises(CdkError, match="CloudFormation refuses the change: Template error"),
            change_set.planned(aws, PROJECT, "deepcdk", {}),
        ):
            raise AssertionError("a plan that failed is none")


def synthesised(command: list[str]) -> None:
    """Leave what the CLI leaves once it has synthesised: an assembly."""
    Path(command[command.index("--output") + 1], "manifest.json").touch()


class Formation:
    """CloudFormation as the embedded cloud serves it, and a deployment's own way to it in place of the CDK CLI."""

    def __init__(self, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
        self.aws, self.client = aws, aws.client("cloudformation")
        self.overtaken: Callable[[], None] = lambda: None
        """What others do before the CLI gets to its own part."""
        monkeypatch.setattr(cdk, "find_cli", lambda _: Path("cdk"))
        monkeypatch.setattr(cdk, "run_quietly", self._prepare)
        monkeypatch.setattr(cdk, "run", self._execute)

    def _prepare(self, command: list[str], project: Path, what: str) -> None:
        synthesised(command)
        self.overtaken()
        name, size = command[command.index("--change-set-name") + 1], dict(pair.split("=") for pair in command[-1:])
        stack = self.stack()
        kind = "CREATE" if stack is None or stack["StackStatus"] == "REVIEW_IN_PROGRESS" else "UPDATE"
        try:
            self.client.create_change_set(
                StackName="deepcdk", ChangeSetName=name, ChangeSetType=kind, TemplateBody=vpc(size["size"])
            )
        except ClientError as error:
            raise CdkError(f"{what} failed\n  {error}") from None

    def _execute(self, command: list[str], project: Path, what: str, *, to_stderr: bool = False) -> None:
        self.overtaken()
        try:
            self.client.execute_change_set(ChangeSetName=command[command.index("--change-set-name") + 1])
        except ClientError as error:
            raise CdkError(f"{what} failed: {error}") from None
        self.settle()

    def stack(self) -> dict[str, Any] | None:
        found: list[dict[str, Any]] = self.client.describe_stacks()["Stacks"]
        return found[0] if found else None

    def settle(self) -> None:
        while str((self.stack() or {}).get("StackStatus", "")).endswith("_IN_PROGRESS"):
            time.sleep(0.01)

    def deploy(self, size: int) -> None:
        """Do as another laptop does: make a change set and execute it."""
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


SERVER = """
import socket, sys
from localcloud.api.cloud import Cloud
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    Cloud().serve(listener)
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Serve an embedded cloud in a process of its own, for it corrects the moto that the other tests use as it is."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


@pytest.fixture
def formation(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Formation]:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLEEXAMPLE00")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    made = Formation(Aws(), monkeypatch)
    yield made
    made.client.delete_stack(StackName="deepcdk")
    made.settle()


def test_each_change_set_has_a_name_of_its_own_within_cloudformations_rule() -> None:
    now = datetime.datetime(2026, 11, 20, 12, 13, 14, tzinfo=datetime.UTC)
    names = {change_set.change_set_name(now) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"[a-zA-Z][-a-zA-Z0-9]{0,127}", name) for name in names)


def test_of_two_that_create_a_stack_at_once_one_does_and_the_other_is_told(formation: Formation) -> None:
    with formation.planned(16) as ours, formation.planned(17) as theirs:
        assert (ours.is_new, theirs.is_new, ours.change_set != theirs.change_set) == (True, True, True)
        formation.execute(theirs)
        with pytest.raises(OvertakenError, match="nothing of it was done") as caught:
            formation.execute(ours)
    assert "CREATE_COMPLETE" in caught.value.where
    assert "repeat `fab up`" in caught.value.remedy
    assert formation.size() == "17"


def test_a_refusal_takes_back_the_own_change_set_and_never_the_other_one(formation: Formation) -> None:
    with formation.planned(16) as theirs:
        with pytest.raises(KeyboardInterrupt), formation.planned(17):
            raise KeyboardInterrupt
        listed = formation.client.list_change_sets(StackName="deepcdk")["Summaries"]
        assert [each["ChangeSetId"] for each in listed] == [theirs.change_set]
        formation.execute(theirs)
    assert formation.size() == "16"


def test_a_stack_that_was_never_created_goes_with_its_last_change_set(formation: Formation) -> None:
    with formation.planned(16):
        with formation.planned(17):
            pass
        assert (formation.stack() or {})["StackStatus"] == "REVIEW_IN_PROGRESS"
    assert formation.stack() is None


def test_a_deployment_that_comes_between_the_look_and_the_execution_is_told(formation: Formation) -> None:
    formation.deploy(16)
    with formation.planned(17) as ours:
        formation.overtaken = lambda: formation.deploy(18)
        with pytest.raises(OvertakenError):
            formation.execute(ours)
    assert formation.size() == "18"


def test_a_direct_update_makes_a_plan_obsolete(formation: Formation) -> None:
    formation.deploy(16)
    with formation.planned(17) as ours:
        formation.client.update_stack(StackName="deepcdk", TemplateBody=vpc("18"))
        formation.settle()
        with pytest.raises(OvertakenError):
            formation.execute(ours)
    assert formation.client.list_change_sets(StackName="deepcdk")["Summaries"] == []


def test_a_stack_that_is_being_changed_cannot_be_compared_and_that_is_told(
    formation: Formation, monkeypatch: pytest.MonkeyPatch
) -> None:
    formation.deploy(16)
    busy = {**(formation.stack() or {}), "StackStatus": "UPDATE_IN_PROGRESS"}

    def refused(command: list[str], project: Path, what: str) -> None:
        monkeypatch.setattr(change_set, "describe_stack", lambda *_: busy)
        synthesised(command)
        raise CdkError(f"{what} failed\n  first\n  Stack:arn is in UPDATE_IN_PROGRESS state and can not be updated.")

    monkeypatch.setattr(cdk, "run_quietly", refused)
    with pytest.raises(OvertakenError, match="UPDATE_IN_PROGRESS state and can not be updated") as caught:
        formation.planned(17).__enter__()
    assert caught.value.status == "UPDATE_IN_PROGRESS"


@pytest.mark.parametrize(
    ("said", "written"), [("cluster.workers = 'x'", False), ("Synthesis finished with errors", True)]
)
def test_a_template_that_is_refused_is_told_as_that_though_the_stack_is_being_changed(
    formation: Formation, monkeypatch: pytest.MonkeyPatch, said: str, written: bool
) -> None:
    formation.deploy(16)
    busy = {**(formation.stack() or {}), "StackStatus": "UPDATE_IN_PROGRESS"}

    def refused(command: list[str], project: Path, what: str) -> None:
        monkeypatch.setattr(change_set, "describe_stack", lambda *_: busy)
        if written:
            synthesised(command)
        raise CdkError(f"{what} failed\n  ERROR a rule\n  {said}")

    monkeypatch.setattr(cdk, "run_quietly", refused)
    with pytest.raises(CdkError, match="ERROR a rule"):
        formation.planned(17).__enter__()


def test_a_stack_that_others_create_while_it_is_compared_is_an_update_and_no_new_one(formation: Formation) -> None:
    formation.overtaken = lambda: formation.deploy(16)
    with formation.planned(17) as ours:
        assert (ours.is_new, [each.action for each in ours.effects]) == (False, ["REPLACED"])


def test_a_failed_execution_of_the_own_change_set_is_told_as_that(
    formation: Formation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(command: list[str], project: Path, what: str, *, to_stderr: bool = False) -> None:
        formation.client.execute_change_set(ChangeSetName=command[command.index("--change-set-name") + 1])
        formation.settle()
        raise CdkError("the deployment failed")

    monkeypatch.setattr(cdk, "run", failed)
    with formation.planned(16) as plan, pytest.raises(CdkError, match="the deployment failed"):
        formation.execute(plan)


GROUP = "AWS::AutoScaling::AutoScalingGroup"


def test_a_group_that_has_grown_since_a_plan_was_made_is_told_with_its_size_of_now(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Change(
        action="changed", logical_id="Workers", type=GROUP, physical_id="workers", path="Workers",
        properties=frozenset({"DesiredCapacity"}), recreating=(), follows=frozenset(), policies=(), differences=(),
        kept=False,
    )  # fmt: skip
    template = {"Resources": {"Workers": {"Type": GROUP, "Properties": {"DesiredCapacity": "4", "MaxSize": "16"}}}}
    plan = Plan(stack="deepcdk", assembly=PROJECT, unchanged=False, effects=(), changes=(change,), template=template)
    size = {"AutoScalingGroupName": "workers", "DesiredCapacity": 2}
    monkeypatch.setattr(
        aws.client("autoscaling"), "describe_auto_scaling_groups", lambda **_: {"AutoScalingGroups": [size]}
    )
    shown = with_current_sizes(aws, plan)
    assert ("2 more nodes start" in shown.effects[0].details, shown.ends_run) == (True, ())
    size["DesiredCapacity"] = 8
    assert with_current_sizes(aws, shown).ends_run == ("group of nodes Workers: 4 of 8 nodes end",)


def test_the_remains_of_a_failed_creation_count_as_nothing() -> None:
    assert is_new(None)
    assert is_new({"StackStatus": "ROLLBACK_COMPLETE"})
    assert is_new({"StackStatus": "REVIEW_IN_PROGRESS"})
    assert not is_new({"StackStatus": "UPDATE_ROLLBACK_COMPLETE"})
