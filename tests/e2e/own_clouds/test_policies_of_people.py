"""The policies in docs/policies are enough for all tasks and the bootstrap, and no statement is too much."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from localcloud.api.cloud import ACCOUNT
from localcloud.api.permissions.evaluator import Check, Evaluator
from localcloud.layout import Layout
from tests.e2e.conftest import ROOT, EmbeddedCloud, start_cloud
from tools import demo

POLICIES: Final = ROOT / "docs" / "policies"
_NEEDED: Final = re.compile(r"user/(?P<user>\w+) needs (?P<action>\S+) on (?P<resource>\S+)$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Person:
    """A user of the account with one of the policies, at the laptop."""

    cloud: EmbeddedCloud
    name: str
    policy: Mapping[str, Any]
    keys: tuple[str, str]

    def does(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the laptop with this user's access key."""
        key, secret = self.keys
        variables = (f"AWS_ACCESS_KEY_ID={key}", f"AWS_SECRET_ACCESS_KEY={secret}", "CDK_VALIDATION=false")
        return self.cloud.laptop("env", *variables, *command, check=check)

    def fab(self, *words: str) -> str:
        """Run a task with the cluster's settings; return what it prints."""
        return self.does("fab", *words, *demo.settings(2)).stdout

    def log(self) -> str:
        """Return the log of the cloud."""
        return Layout(name=self.cloud.name).log.read_text(encoding="utf-8")

    def needed(self) -> list[tuple[str, str]]:
        """Return the actions and resources that this user's calls have needed, those of CloudFormation included."""
        found = [match for line in self.log().splitlines() if (match := _NEEDED.search(line))]
        return sorted({(match["action"], match["resource"]) for match in found if match["user"] == self.name})

    def denials(self) -> list[str]:
        """Return what was refused to this user."""
        return [line for line in self.log().splitlines() if f"user/{self.name} is not authorized" in line]


def person(cloud: EmbeddedCloud, name: str, file: Path) -> Person:
    """Create a user who has the policy of a file alone."""
    cloud.ask("iam", "create_user", UserName=name)
    text = file.read_text(encoding="utf-8")
    cloud.ask("iam", "put_user_policy", UserName=name, PolicyName="own", PolicyDocument=text)
    key = cloud.ask("iam", "create_access_key", UserName=name)["AccessKey"]
    return Person(cloud=cloud, name=name, policy=json.loads(text), keys=(key["AccessKeyId"], key["SecretAccessKey"]))


@pytest.fixture(scope="module")
def cloud_of_people() -> Iterator[EmbeddedCloud]:
    """Start a cloud of its own: the others' is bootstrapped by its administrator."""
    with start_cloud("people") as embedded:
        yield embedded


@pytest.fixture(scope="module")
def bootstrapper(cloud_of_people: EmbeddedCloud) -> Person:
    """Bootstrap the CDK with the policy for that."""
    made = person(cloud_of_people, "bootstrapper", POLICIES / "bootstrap.json")
    made.does("sh", "-c", f"cd /tmp && cdk bootstrap aws://{ACCOUNT}/us-east-1")
    return made


@pytest.fixture(scope="module")
def user(bootstrapper: Person) -> Person:
    """Run every task with the policy for that."""
    made = person(bootstrapper.cloud, "person", POLICIES / "user.json")
    made.fab("doctor")
    made.fab("up", "--yes")
    made.fab("status")
    made.fab("push")
    made.fab("run", "--", "true")
    made.fab("train", "--nodes", "2", "--recipe", "digits", "--epochs", "1", "--yes")
    for task in ("runs", "show", "logs", "attach", "fetch"):
        made.fab(task)
    made.fab("ssh-config")
    made.fab("scale", "--nodes", "1", "--yes")
    made.fab("scale", "--nodes", "2", "--yes")
    made.fab("replace", "worker1", "--yes")
    run = json.loads(made.fab("show", "--json"))["run_id"]
    made.fab("rm", run, "--yes")
    made.fab("down", "--yes")
    made.does("fab", "runs", "--from-bucket", check=False)  # looks for what a cluster has left, and finds nothing
    return made


def test_the_bootstrap_needs_no_more_than_its_policy(bootstrapper: Person) -> None:
    assert bootstrapper.denials() == []


def test_all_tasks_need_no_more_than_their_policy(user: Person) -> None:
    assert user.denials() == []


def test_every_statement_is_needed(bootstrapper: Person, user: Person) -> None:
    evaluator = Evaluator()
    evaluator.start()
    try:
        for each in (bootstrapper, user):
            assert [statement["Sid"] for statement in needless(each, evaluator)] == []
    finally:
        evaluator.close()


def needless(each: Person, evaluator: Evaluator) -> Iterator[Mapping[str, Any]]:
    """Yield the statements without which everything that was needed would still be allowed."""
    conditions = {"ec2:ResourceTag/deepcdk:cluster": "deepcdk"}
    for statement in each.policy["Statement"]:
        rest = {**each.policy, "Statement": [other for other in each.policy["Statement"] if other != statement]}
        checks = [
            Check(
                principal=f"arn:aws:iam::{ACCOUNT}:user/{each.name}",
                action=action,
                resource=resource if resource == "*" else resource.replace("*", "x"),
                account=ACCOUNT,
                context=conditions,
                identity=[{"name": "own", "policy": rest}],
            )
            for action, resource in each.needed()
            if not action.startswith("sts:GetCallerIdentity")
        ]
        if all(decision.allowed for decision in evaluator.decide(checks)):
            yield statement
