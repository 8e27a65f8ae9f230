"""Deployment in two steps: the plan is CloudFormation's own, and a plan that is not executed leaves nothing."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.aws.client import Aws
from cluster.deploy import cdk, change_set
from cluster.deploy.cdk import CdkError
from cluster.deploy.change_set import Plan, is_new, with_current_sizes
from cluster.deploy.changed_resources import Change
from cluster.errors import NoAnswerError

Propose = Callable[[dict[str, Any], str], None]
PROJECT = Path("/project")


def bucket(**more: Any) -> dict[str, Any]:
    return {"Type": "AWS::S3::Bucket", "Properties": {}, **more}


@pytest.fixture
def propose(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Propose:
    """Replace the CDK CLI; return a function that sets the resources of its next change set."""
    wanted: dict[str, Any] = {}

    def call(command: list[str], project: Path, what: str, inherited: Mapping[str, str]) -> None:
        name = command[command.index("--change-set-name") + 1]
        aws.client("cloudformation").create_change_set(
            StackName="deepcdk", ChangeSetName=name, ChangeSetType=wanted["kind"], TemplateBody=wanted["body"]
        )

    def set_up(resources: dict[str, Any], kind: str) -> None:
        wanted.update(kind=kind, body=json.dumps({"Resources": resources}))

    monkeypatch.setattr(cdk, "call", call)
    monkeypatch.setattr(cdk, "find_cli", lambda _: Path("cdk"))
    return set_up


def deploy(aws: Aws, resources: dict[str, Any]) -> None:
    body = json.dumps({"Resources": resources})
    aws.client("cloudformation").create_stack(StackName="deepcdk", TemplateBody=body)


def change_sets(aws: Aws) -> list[str]:
    listed = aws.client("cloudformation").list_change_sets(StackName="deepcdk")["Summaries"]
    return [each["ChangeSetName"] for each in listed]


def test_plan_lists_added_and_removed_resources(aws: Aws, propose: Propose) -> None:
    deploy(aws, {"Old": bucket(), "Same": bucket()})
    propose({"New": bucket(), "Same": bucket()}, "UPDATE")
    with change_set.planned(aws, PROJECT, "deepcdk", {}) as plan:
        assert [(each.action, each.what) for each in plan.effects] == [
            ("REMOVED", "bucket Old"),
            ("added", "bucket New"),
        ]
        assert [name.startswith(change_set.PREFIX) for name in change_sets(aws)] == [True]
    assert plan.stop_reasons == ("bucket Old: removed",)
    assert [each["action"] for each in plan.document()["changes"]] == ["REMOVED", "added"]


def test_plan_without_execution_leaves_no_change_set(aws: Aws, propose: Propose) -> None:
    deploy(aws, {"Old": bucket()})
    propose({"New": bucket()}, "UPDATE")
    with pytest.raises(KeyboardInterrupt), change_set.planned(aws, PROJECT, "deepcdk", {}):
        raise KeyboardInterrupt
    assert change_sets(aws) == []


def test_plan_of_a_new_stack_leaves_no_stack(aws: Aws, propose: Propose) -> None:
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

        def protected(**given: Any) -> object:
            answer = shown(**given)
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
def test_empty_change_set_is_no_failure_but_others_are_reported(
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
            pytest.raises(CdkError, match="CloudFormation rejects the change: Template error"),
            change_set.planned(aws, PROJECT, "deepcdk", {}),
        ):
            raise AssertionError("a plan that failed is none")


def test_failed_deployment_is_reported_even_if_aws_no_longer_answers(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"ChangeSetId": "arn"}])

    def describe(*_: object) -> dict[str, str]:
        if (answer := next(answers, None)) is None:
            raise NoAnswerError("the AWS API does not answer")
        return answer

    def fail(*_: object, **__: object) -> None:
        raise CdkError("the deployment failed: no capacity")

    monkeypatch.setattr(change_set, "describe_stack", describe)
    monkeypatch.setattr(cdk, "execute", fail)
    plan = Plan(stack="deepcdk", change_set="arn", assembly=Path(), unchanged=False)
    with pytest.raises(CdkError, match="no capacity"):
        change_set.execute(aws, PROJECT, plan, print)


def test_error_in_a_plan_is_raised_even_if_its_change_set_cannot_be_deleted(
    aws: Aws, propose: Propose, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(*_: object) -> None:
        raise NoAnswerError("the AWS API does not answer")

    deploy(aws, {"Old": bucket()})
    propose({"New": bucket()}, "UPDATE")
    with (
        pytest.raises(CdkError, match="no capacity"),
        change_set.planned(aws, PROJECT, "deepcdk", {}),
    ):
        monkeypatch.setattr(change_set, "describe_stack", silent)
        raise CdkError("the deployment failed: no capacity")
    assert "of stack deepcdk may be left: the AWS API does not answer" in " ".join(capsys.readouterr().err.split())


def test_change_set_names_are_unique_and_valid() -> None:
    now = datetime.datetime(2026, 11, 20, 12, 13, 14, tzinfo=datetime.UTC)
    names = {change_set.change_set_name(now) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"[a-zA-Z][-a-zA-Z0-9]{0,127}", name) for name in names)


GROUP = "AWS::AutoScaling::AutoScalingGroup"


def test_group_grown_since_the_plan_is_reported_with_current_size(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert ("2 more nodes start" in shown.effects[0].details, shown.stop_reasons) == (True, ())
    size["DesiredCapacity"] = 8
    assert with_current_sizes(aws, shown).stop_reasons == ("group of nodes Workers: 4 of 8 nodes are terminated",)


def test_remains_of_failed_creation_count_as_no_stack() -> None:
    assert is_new(None)
    assert is_new({"StackStatus": "ROLLBACK_COMPLETE"})
    assert is_new({"StackStatus": "REVIEW_IN_PROGRESS"})
    assert not is_new({"StackStatus": "UPDATE_ROLLBACK_COMPLETE"})
