"""One embedded cloud with one deployed cluster, shared by the tests that drive it from its laptop."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from botocore.config import Config

from localcloud.laptop import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from localcloud.layout import Layout
from localcloud.lifecycle import read_state
from localcloud.network.namespaces import set_namespace
from tests.waiting import PATIENCE_S
from tools import demo

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT_CLOUD: Final = "DEEPCDK_CLOUD"
"""Name of the variable that names an embedded cloud to use, and to leave up; it is started where it does not run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.e2e)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredRun:
    """Read what a run has written, without a task: tasks take seconds of the processors that ranks compute on."""

    path: Path

    @property
    def state(self) -> str:
        """Return the state that stands written."""
        return str(json.loads((self.path / "state.json").read_text())["state"])

    @property
    def checkpoints(self) -> list[str]:
        """Return the names of the complete checkpoints, oldest first."""
        return sorted(found.parent.name for found in self.path.glob("checkpoints/step-*/manifest.json"))

    def last_epoch(self) -> int:
        """Return the number of the last epoch of which a step or the end was recorded, 0 before the first."""
        metrics = self.path / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("}")]
        return max((int(record.get("epoch", 0)) for record in whole), default=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddedCloud:
    """A running embedded cloud, by name."""

    name: str

    def localcloud(
        self, verb: str, *words: str, check: bool = True, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the cloud's own commands."""
        return execute(demo.localcloud(verb, "--name", self.name, *words), check=check, timeout_s=timeout_s)

    def laptop(
        self, *command: str, check: bool = True, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the cloud's laptop."""
        return self.localcloud("run", "--", *command, check=check, timeout_s=timeout_s)

    def fab(self, *words: str, check: bool = True, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Run a fab task on the laptop with the cluster's settings; the templates are those that `cluster` checked."""
        unchecked = ("env", "CDK_VALIDATION=false")
        return self.laptop(*unchecked, "fab", *words, *demo.settings(2), check=check, timeout_s=timeout_s)

    def aws(self, *words: str) -> Any:
        """Ask the AWS CLI on the laptop; return its JSON answer."""
        answer = self.laptop("aws", "--output", "json", *words).stdout
        return json.loads(answer) if answer.strip() else None

    def ask(self, service: str, operation: str, **given: Any) -> Any:
        """Ask the API from the laptop's network, in this process: a fifth of what the AWS CLI takes."""
        state = read_state(Layout(name=self.name))

        def inside() -> Any:
            fd = os.open(state["namespaces"]["laptop"]["path"], os.O_RDONLY | os.O_CLOEXEC)
            try:
                set_namespace(fd)  # of this thread alone
            finally:
                os.close(fd)
            session: Any = boto3.Session(ACCESS_KEY_ID, SECRET_ACCESS_KEY, region_name=state["region"])
            # A cloud with manners throttles the tests too; botocore's own three attempts are not always enough.
            patient = Config(retries={"mode": "standard", "total_max_attempts": 10})
            client = session.client(service, endpoint_url=state["endpoint"], config=patient)
            return getattr(client, operation)(**given)

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(inside).result()

    def instances(self, role: str) -> list[dict[str, Any]]:
        """List the running instances of one role, oldest first."""
        wanted = {"tag:deepcdk:role": role, "instance-state-name": "running"}
        filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
        pages = self.ask("ec2", "describe_instances", Filters=filters)["Reservations"]
        found = [instance for page in pages for instance in page["Instances"]]
        return sorted(found, key=lambda instance: (instance["LaunchTime"], instance["InstanceId"]))

    def run(self, run_id: str) -> StoredRun:
        """Return the files of a run, read on this machine."""
        (found,) = Layout(name=self.name).efs.glob(f"*/runs/{run_id}")
        return StoredRun(path=found)

    def outputs(self) -> dict[str, str]:
        """Return the deployed stack's outputs."""
        stack = self.ask("cloudformation", "describe_stacks", StackName="deepcdk")["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def execute(
    command: Sequence[str], *, check: bool = True, timeout_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """Run a command with its output captured; fail the test with that output where the command fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=demo.environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if check and done.returncode:
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}")
    return done


def up(name: str, *options: str, timeout_s: float = PATIENCE_S) -> EmbeddedCloud:
    """Start an embedded cloud, with an SSH key on its laptop."""
    embedded = EmbeddedCloud(name=name)
    embedded.localcloud("start", *demo.runtime_mount(), *options, timeout_s=timeout_s)
    embedded.laptop("sh", "-c", demo.shell(demo.SSH_KEYGEN))
    return embedded


@contextmanager
def start_cloud(name: str, *options: str, timeout_s: float = PATIENCE_S) -> Iterator[EmbeddedCloud]:
    """Keep an embedded cloud up for the time of a block; `timeout_s`: how long its start may take."""
    try:
        yield up(name, *options, timeout_s=timeout_s)
    finally:
        execute(demo.localcloud("stop", "--name", name), check=False)


@pytest.fixture(scope="session")
def cloud() -> Iterator[EmbeddedCloud]:
    """Start the embedded cloud that the tests share, or use the one that DEEPCDK_CLOUD names and leave it up."""
    if kept := os.environ.get(KEPT_CLOUD):
        running = execute(demo.localcloud("status", "--name", kept), check=False).returncode == 0
        yield EmbeddedCloud(name=kept) if running else up(kept)
        return
    with start_cloud(f"e2e{os.getpid()}") as embedded:
        yield embedded


@pytest.fixture(scope="session")
def cluster(cloud: EmbeddedCloud) -> EmbeddedCloud:
    """Deploy a cluster of two workers on the cloud, as a user does: the CDK checks the templates.

    What is deployed on the cloud of DEEPCDK_CLOUD stays as it is.
    """
    stacks = cloud.ask("cloudformation", "list_stacks")["StackSummaries"]
    deployed = {
        stack["StackName"] for stack in stacks if stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    }
    if "deepcdk" not in deployed:
        cloud.laptop("fab", "up", "--yes", *demo.settings(2))
    return cloud
