"""The tutorial's commands, in its order, on an embedded cloud; TUTORIAL_NODES=16 for as many nodes as it says."""

from __future__ import annotations

import json
import os
from typing import Final

from cluster.cli import loader
from tests import tutorial
from tests.e2e.conftest import EmbeddedCloud, start_cloud
from tests.waiting import eventually
from tools import demo

NODES: Final = os.environ.get("TUTORIAL_NODES", "3")
ABSENT: Final = ("service-quotas", "ce")
"""Services that the embedded cloud does not have."""


def settings() -> list[str]:
    """Return the tutorial's keys as flags, with the address of the cloud's laptop."""
    values = {**tutorial.keys(), "ssh_cidr": demo.LAPTOP_CIDR}
    given = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return [part for key, value in given.items() for part in ("--set", f"{key}={value}")]


def typed(words: list[str], runs: list[str]) -> list[str]:
    """Return a `fab` command of the tutorial as it is typed on this cloud: its nodes, its keys, its runs, and yes."""
    left = list(runs)
    own = [left.pop() if word == "RUN" else word.replace("16", NODES) for word in words]
    flags = {flag.parameter.rstrip("_") for flag in loader.collection().tasks[words[1]].flags}
    return [*own, *(["--yes"] if "yes" in flags else []), *(settings() if "set" in flags else [])]


def runs_of(cloud: EmbeddedCloud) -> list[str]:
    """Return the ids of the runs, newest first."""
    listed = json.loads(cloud.laptop("fab", "runs", "--json", *settings()).stdout)
    return [run["run_id"] for run in listed]


def statuses(cloud: EmbeddedCloud) -> set[str]:
    """Return the statuses of all stacks that there were."""
    stacks = cloud.ask("cloudformation", "list_stacks")["StackSummaries"]
    return {stack["StackStatus"] for stack in stacks}


def test_from_an_empty_account_to_many_nodes_and_back_to_nothing() -> None:
    with start_cloud(f"tutorial{os.getpid()}") as cloud:
        said = ""
        for words in tutorial.commands("fab"):
            runs = runs_of(cloud) if "RUN" in words else []
            done = cloud.laptop(*typed(words, runs))
            said += done.stdout + done.stderr
        assert f"{NODES} ranks on deeplearning-worker1" in said
        assert cloud.instances("worker") == cloud.instances("master") == []
        for words in tutorial.commands("aws"):
            if words[1] not in ABSENT:
                cloud.laptop(*words)
        eventually(lambda: statuses(cloud) == {"DELETE_COMPLETE"})  # the last command does not wait for the end
        assert cloud.ask("ec2", "describe_key_pairs")["KeyPairs"] == []
        assert cloud.ask("efs", "describe_file_systems")["FileSystems"] == []
        buckets = [bucket["Name"] for bucket in cloud.ask("s3", "list_buckets")["Buckets"]]
        assert all(name.startswith("cdk-hnb659fds-assets-") for name in buckets)
