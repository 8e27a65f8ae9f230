"""Deploy one cluster that the tests share, on an embedded cloud or on an AWS account (`--aws`)."""

from __future__ import annotations

import abc
import ctypes
import dataclasses
import functools
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from botocore.config import Config

from cluster import demo
from tests import account
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT_CLOUD: Final = "DEEPCDK_CLOUD"
"""The variable with the name of an embedded cloud to use and leave running; the tests start it if necessary."""
SLOW_S: Final = 1800.0
"""How long a task may take on AWS."""
ABSENT_CALL: Final = re.compile(r"does not implement ([^ ]+)|cannot decide: (.+)")
WITH_ANOTHER_SOURCE: Final = ("pricing:GetProducts",)
"""Calls that the embedded cloud does not answer: the tasks then use the included price list."""
MAIN_PATH: Final = ("test_run.py",)
"""Files that `make test` runs; `make test-all` also runs the others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("deepcdk")
    group.addoption(
        "--aws", action="store_true", help="run the tests marked `aws` on your AWS account, after a question"
    )
    group.addoption(
        "--aws-set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the cluster there"
    )
    group.addoption("--aws-yes", action="store_true", help="do not ask")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("aws", default=False):  # missing if this file is loaded late, for `pytest tests`
        account.configure(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    if account.TRIAL in session.config.stash and session.items and not session.config.option.collectonly:
        account.agree(session.config, len(session.items))


def pytest_unconfigure(config: pytest.Config) -> None:
    if trial := config.stash.get(account.TRIAL, None):
        trial.finish(Path(config.option.xmlpath))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.e2e)
            if item.path.name not in MAIN_PATH:
                item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: item.get_closest_marker("destroys") is not None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredRun:
    """Read the files of a run without a task: tasks need seconds of CPU time that the ranks compete for."""

    path: Path

    @property
    def state(self) -> str:
        """Return the state in the run's state file."""
        return str(json.loads((self.path / "state.json").read_text())["state"])

    @property
    def checkpoints(self) -> list[str]:
        """Return the names of the complete checkpoints, oldest first."""
        return sorted(found.parent.name for found in self.path.glob("checkpoints/step-*/manifest.json"))

    def last_epoch(self) -> int:
        """Return the last epoch with a recorded step or end, or 0 before the first one."""
        metrics = self.path / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("}")]
        return max((int(record.get("epoch", 0)) for record in whole), default=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment(abc.ABC):
    """A cluster on some cloud, and the laptop that controls it."""

    stack: str = "deepcdk"
    settings: tuple[str, ...] = tuple(demo.settings(2))
    """The settings that a user would write to cdk.json."""

    @abc.abstractmethod
    def laptop(
        self, *command: str, check: bool = True, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the laptop."""

    @abc.abstractmethod
    def ask(self, service: str, operation: str, **given: Any) -> Any:
        """Call the AWS API in this process."""

    def fab(self, *words: str, check: bool = True, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Run a fab task with the cluster's settings. The fixture `cluster` has already checked the templates."""
        at = words.index("--") if "--" in words else len(words)
        command = ("env", "CDK_VALIDATION=false", "fab", *words[:at], *self.settings, *words[at:])
        return self.laptop(*command, check=check, timeout_s=timeout_s)

    def instances(self, role: str, stack: str = "") -> list[dict[str, Any]]:
        """List the running instances with a role, oldest first, of one stack or of all."""
        wanted = {"tag:deepcdk:role": role, "instance-state-name": "running"}
        wanted |= {"tag:deepcdk:cluster": stack} if stack else {}
        filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
        pages = self.ask("ec2", "describe_instances", Filters=filters)["Reservations"]
        found = [instance for page in pages for instance in page["Instances"]]
        return sorted(found, key=lambda instance: (instance["LaunchTime"], instance["InstanceId"]))

    def outputs(self) -> dict[str, str]:
        """Return the deployed stack's outputs."""
        stack = self.ask("cloudformation", "describe_stacks", StackName=self.stack)["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account(Deployment):
    """A cluster on the AWS account of this process's credentials. This machine is the laptop."""

    def laptop(
        self, *command: str, check: bool = True, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here. On AWS, nodes take minutes to boot."""
        return checked(account.run(command, timeout_s=max(timeout_s, SLOW_S)), check=check)

    def ask(self, service: str, operation: str, **given: Any) -> Any:
        """Call the AWS API."""
        session: Any = boto3.Session(region_name=os.environ.get("AWS_REGION"))
        return getattr(session.client(service), operation)(**given)

    def instances(self, role: str, stack: str = "") -> list[dict[str, Any]]:
        """List this cluster's running instances with a role: the account may have other clusters."""
        return super().instances(role, stack or self.stack)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddedCloud(Deployment):
    """A running embedded cloud, identified by name."""

    name: str

    def localcloud(
        self, verb: str, *words: str, check: bool = True, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the `localcloud` CLI."""
        return execute(demo.localcloud(verb, "--name", self.name, *words), check=check, timeout_s=timeout_s)

    def laptop(
        self, *command: str, check: bool = True, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the laptop as `localcloud run` does, but without starting another Python."""
        enter = ("nsenter", f"--net={self.described['laptop_namespace']}", "--")
        return execute((*enter, *command), check=check, timeout_s=timeout_s, variables=self._variables)

    @functools.cached_property
    def described(self) -> dict[str, Any]:
        """Return the cloud's addresses, credentials and directories, which do not change while it runs."""
        return dict(json.loads(self.localcloud("status", "--json").stdout))

    @functools.cached_property
    def _variables(self) -> dict[str, str]:
        """Return the environment for commands on the laptop."""
        printed = self.localcloud("run", "--", "env", "--null").stdout
        return dict(line.split("=", 1) for line in printed.split("\0") if line)

    @property
    def file_systems(self) -> Path:
        """Return the directory that contains one directory per shared file system."""
        return Path(self.described["file_systems"])

    def log(self) -> str:
        """Return the cloud's log."""
        return Path(self.described["log"]).read_text(encoding="utf-8")

    def on(self, instance: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in a host as root."""
        return self.localcloud("exec", instance, "--", *command, check=check)

    def aws(self, *words: str) -> Any:
        """Run the AWS CLI on the laptop; return its JSON answer."""
        answer = self.laptop("aws", "--output", "json", *words).stdout
        return json.loads(answer) if answer.strip() else None

    def ask(self, service: str, operation: str, **given: Any) -> Any:
        """Call the API from the laptop's network in this process: five times as fast as the AWS CLI."""
        cloud = self.described

        def inside() -> Any:
            fd = os.open(cloud["laptop_namespace"], os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None).setns(fd, 0) != 0:  # affects only this thread
                    raise OSError(f"cannot enter {cloud['laptop_namespace']}")
            finally:
                os.close(fd)
            session: Any = boto3.Session(
                cloud["access_key_id"], cloud["secret_access_key"], region_name=cloud["region"]
            )
            # A cloud with API faults also throttles the tests. botocore's default of three attempts is not always
            # enough.
            patient = Config(retries={"mode": "standard", "total_max_attempts": 10})
            client = session.client(service, endpoint_url=cloud["endpoint"], config=patient)
            return getattr(client, operation)(**given)

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(inside).result()

    def run(self, run_id: str) -> StoredRun:
        """Return the files of a run, read on this machine."""
        (found,) = self.file_systems.glob(f"*/runs/{run_id}")
        return StoredRun(path=found)


def execute(
    command: Sequence[str],
    *,
    check: bool = True,
    timeout_s: float = PATIENCE_S,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command and capture its output; fail the test with the output if the command fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=demo.environment() if variables is None else dict(variables),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return checked(done, check=check)


def checked(done: subprocess.CompletedProcess[str], *, check: bool) -> subprocess.CompletedProcess[str]:
    """Return a finished command; fail the test with its output if it failed."""
    if check and done.returncode:
        command = " ".join(done.args)
        pytest.fail(f"{command} ended with {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}")
    return done


def up(name: str, *options: str, runtime: bool = True, timeout_s: float = PATIENCE_S) -> EmbeddedCloud:
    """Start an embedded cloud with an SSH key on its laptop. Without `runtime`, its nodes create their environments."""
    embedded = EmbeddedCloud(name=name)
    embedded.localcloud("start", *(demo.runtime_mount() if runtime else ()), *options, timeout_s=timeout_s)
    embedded.laptop("sh", "-c", demo.shell(demo.SSH_KEYGEN))
    return embedded


def check_answered(log: str) -> None:
    """Fail the test if a call got no answer because the embedded cloud does not implement it or cannot authorize it."""
    named = {match[1] or match[2] for match in ABSENT_CALL.finditer(log)}
    absent = sorted(each for each in named if each not in WITH_ANOTHER_SOURCE)
    if absent:
        pytest.fail(f"calls that the embedded cloud lacks: {', '.join(absent)}; implement them in localcloud/")


@contextmanager
def start_cloud(
    name: str, *options: str, runtime: bool = True, timeout_s: float = PATIENCE_S
) -> Iterator[EmbeddedCloud]:
    """Run an embedded cloud for the duration of a block, as `up` does; `timeout_s`: how long its start may take.

    It stops even if the block does not end: pytest-xdist kills a process that does not exit within 15 s of Ctrl-C.
    """
    try:
        embedded = up(name, *demo.owned(), *options, runtime=runtime, timeout_s=timeout_s)
        yield embedded
        if Path(embedded.described["log"]).exists():  # A test that stops the cloud checks its log first.
            check_answered(embedded.log())
    finally:
        execute(demo.localcloud("stop", "--name", name), check=False)


@pytest.fixture(scope="session")
def cloud() -> Iterator[EmbeddedCloud]:
    """Start the embedded cloud that the tests share, or use the one in DEEPCDK_CLOUD and leave it running."""
    if kept := os.environ.get(KEPT_CLOUD):
        running = execute(demo.localcloud("status", "--name", kept), check=False).returncode == 0
        yield EmbeddedCloud(name=kept) if running else up(kept)
        return
    with start_cloud(f"e2e{os.getpid()}") as embedded:
        yield embedded


@pytest.fixture(scope="session")
def cluster(cloud: EmbeddedCloud) -> EmbeddedCloud:
    """Deploy a cluster of two workers on the cloud as a user does; the CDK checks the templates.

    If the cloud in DEEPCDK_CLOUD already has a cluster, the tests use it unchanged.
    """
    stacks = cloud.ask("cloudformation", "list_stacks")["StackSummaries"]
    deployed = {
        stack["StackName"] for stack in stacks if stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    }
    if "deepcdk" not in deployed:
        cloud.laptop("fab", "up", "--yes", *cloud.settings)
    return cloud


@pytest.fixture(scope="session")
def deployment(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """Return the cluster for tests marked `aws`: the shared one, or one on the AWS account with `--aws`.

    A cluster on AWS is destroyed after the last test. Ctrl-C destroys it too, because pytest then finalizes the
    fixtures.
    """
    trial = request.config.stash.get(account.TRIAL, None)
    if trial is None:
        yield request.getfixturevalue("cluster")
        return
    deployed = Account(stack=trial.name, settings=tuple(account.overrides(trial.given)))
    with trial.cleaned_up() as problems:
        deployed.laptop("fab", "up", "--yes", *deployed.settings)
        yield deployed
    if problems and request.session.exitstatus != pytest.ExitCode.INTERRUPTED:
        pytest.fail("\n".join(problems), pytrace=False)
