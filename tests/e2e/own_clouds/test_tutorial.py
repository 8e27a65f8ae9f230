"""The policies in docs/policies are sufficient for the tutorial and all other tasks, and no statement is superfluous.

TUTORIAL_NODES=16 uses as many nodes as the tutorial.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cluster import demo
from cluster.cli import task_modules
from tests import tutorial
from tests.e2e.conftest import ROOT, EmbeddedCloud, check_answered, start_cloud
from tests.waiting import eventually

ACCOUNT: Final = "123456789012"
POLICIES: Final = ROOT / "docs" / "policies"
NODES: Final = os.environ.get("TUTORIAL_NODES", "3")
KEYS: Final = {**tutorial.keys(), "ssh_cidr": demo.LAPTOP_CIDR}
SETTINGS: Final = [
    f"--set={key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in KEYS.items()
]
"""The tutorial's keys as flags, with the address of the cloud's laptop."""
ABSENT: Final = {"request-service-quota-increase", "ce"}
"""Services and operations that the embedded cloud does not have."""
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
        """Run a task with the cluster's settings; return its output."""
        at = words.index("--") if "--" in words else len(words)
        return self.does("fab", *words[:at], *SETTINGS, *words[at:]).stdout

    def log(self) -> str:
        """Return the cloud's log."""
        return self.cloud.log()

    def needed(self) -> list[tuple[str, str]]:
        """Return the actions and resources that this user's calls needed, including calls made by CloudFormation."""
        found = [match for line in self.log().splitlines() if (match := _NEEDED.search(line))]
        return sorted({(match["action"], match["resource"]) for match in found if match["user"] == self.name})

    def denials(self) -> list[str]:
        """Return the denied calls of this user."""
        return [line for line in self.log().splitlines() if f"user/{self.name} is not authorized" in line]


def person(cloud: EmbeddedCloud, name: str, file: Path) -> Person:
    """Create a user with only the policy in a file."""
    cloud.ask("iam", "create_user", UserName=name)
    text = file.read_text(encoding="utf-8")
    cloud.ask("iam", "put_user_policy", UserName=name, PolicyName="own", PolicyDocument=text)
    key = cloud.ask("iam", "create_access_key", UserName=name)["AccessKey"]
    return Person(cloud=cloud, name=name, policy=json.loads(text), keys=(key["AccessKeyId"], key["SecretAccessKey"]))


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[Person, Person]]:
    """Bootstrap the CDK as one user, then run every task as another: first the tutorial, then the rest before `down`.

    Both use a new cloud that is not bootstrapped. If this fixture is retried, it starts another cloud.
    """
    with start_cloud(f"people{os.getpid()}") as cloud:
        bootstrapper = person(cloud, "bootstrapper", POLICIES / "bootstrap.json")
        bootstrapper.does("sh", "-c", f"cd /tmp && cdk bootstrap aws://{ACCOUNT}/us-east-1")
        user = person(cloud, "person", POLICIES / "user.json")
        said = ""
        for words in tutorial.commands("fab"):
            if words[1] == "down":
                use_other_tasks(user)
            done = user.does(*typed(words, runs_of(user) if "RUN" in words else []))
            said += done.stdout + done.stderr
        assert f"{NODES} ranks on deeplearning-worker1" in said
        user.does("fab", "runs", "--from-bucket", check=False)  # checks for leftovers of a cluster and finds none
        yield bootstrapper, user


def use_other_tasks(user: Person) -> None:
    """Run the tasks that are not in the tutorial. This leaves a cluster without workers."""
    user.fab("scale", "1", "--yes")
    for task in ("push", "show", "logs", "attach", "ssh-config"):
        user.fab(task)
    user.fab("run", "--", "true")
    user.fab("replace", "worker1", "--yes")
    user.fab("rm", runs_of(user)[0], "--yes")


def runs_of(user: Person) -> list[str]:
    """Return the ids of the runs, newest first."""
    return [run["run_id"] for run in json.loads(user.fab("runs", "--json"))]


def typed(words: list[str], runs: list[str]) -> list[str]:
    """Return a `fab` command of the tutorial with this cloud's nodes, keys and runs, and with all questions answered.

    Two epochs of training need the same permissions as twenty.
    """
    left = list(runs)
    own = [left.pop() if word == "RUN" else word.replace("16", NODES) for word in words]
    flags = {flag.parameter.rstrip("_") for flag in task_modules.collection().tasks[words[1]].flags}
    short = ["--epochs", "2"] if words[1] == "train" else []
    return [*own, *short, *(["--yes"] if "yes" in flags else []), *(SETTINGS if "set" in flags else [])]


def test_bootstrap_and_tasks_need_no_more_than_their_policies(people: tuple[Person, Person]) -> None:
    assert [each.denials() for each in people] == [[], []]


def test_cloud_answers_every_call_of_the_tasks(people: tuple[Person, Person]) -> None:
    user = people[1]
    check_answered(user.log())
    examined = json.loads(user.does("fab", "doctor", "--json", *SETTINGS, check=False).stdout)
    assert [each for each in examined["findings"] if each["state"] == "unknown"] == []


def test_after_the_tutorial_nothing_is_left(people: tuple[Person, Person]) -> None:
    cloud = people[1].cloud
    assert cloud.instances("worker") == cloud.instances("master") == []
    for words in tutorial.commands("aws"):
        if not ABSENT & {*words[1:3]}:
            cloud.laptop(*words)

    def statuses() -> set[str]:
        return {stack["StackStatus"] for stack in cloud.ask("cloudformation", "list_stacks")["StackSummaries"]}

    eventually(lambda: statuses() == {"DELETE_COMPLETE"})  # the last command does not wait for the deletion
    assert cloud.ask("ec2", "describe_key_pairs")["KeyPairs"] == []
    assert cloud.ask("efs", "describe_file_systems")["FileSystems"] == []
    buckets = [bucket["Name"] for bucket in cloud.ask("s3", "list_buckets")["Buckets"]]
    assert all(name.startswith("cdk-hnb659fds-assets-") for name in buckets)


def test_every_statement_is_needed(people: tuple[Person, Person]) -> None:
    for each in people:
        assert [statement["Sid"] for statement in needless(each)] == []


def needless(each: Person) -> Iterator[Mapping[str, Any]]:
    """Yield the statements that no call of the user needed, or that only repeat what other statements allow.

    Only statements without a condition count as repetition, because a condition may not hold for the call.
    """
    needed, statements = each.needed(), each.policy["Statement"]
    assert {statement["Effect"] for statement in statements} == {"Allow"}
    for statement in statements:
        others = [other for other in statements if other is not statement and "Condition" not in other]
        own = (pair for pair in needed if allows(statement, *pair))
        if all(any(allows(other, *pair) for other in others) for pair in own):
            yield statement


def allows(statement: Mapping[str, Any], action: str, resource: str) -> bool:
    """Return whether a statement covers an action and a resource, regardless of its conditions."""
    actions, resources = (
        [each] if isinstance(each, str) else each for each in (statement["Action"], statement["Resource"])
    )
    named = any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in actions)
    return named and any(fnmatch.fnmatchcase(resource, pattern) for pattern in resources)
