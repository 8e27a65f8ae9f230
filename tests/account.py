"""Run the end-to-end tests on an AWS account: confirm the price first, record all API calls, and always clean up.

`tests/e2e/conftest.py` uses this module for `pytest tests/e2e --aws`.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cluster import demo
from cluster.aws.client import Aws, entries
from cluster.aws.errors import aws_errors
from cluster.aws.stack import describe_stack
from cluster.deploy import retained_data
from cluster.deploy.cost import describe_deployment
from cluster.errors import DeepcdkError
from cluster.session import Session
from stacks.config import ConfigError

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import FilterTypeDef

RESULTS: Final = demo.ROOT / "aws-test"
TAG: Final = "deepcdk-test"
"""Key of the tag on each resource; its value is the cluster's name."""
MAX_HOURS: Final = 3
"""All workers are terminated after this time, even if this machine is lost."""
CHANGE_S: Final = 2400.0
"""How long to wait for a stack change to end before the stack is destroyed."""
END_S = 60.0
"""How long a command may take to exit after an interruption."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GONE: Final = ("terminated", "shutting-down", "deleted", "deleting", "DELETE_COMPLETE")
BUSY: Final = re.compile(r"(?:UPDATE|ROLLBACK|DELETE)_.*IN_PROGRESS")
"""States in which CloudFormation cannot delete a stack. (A creation in progress can be interrupted.)"""
RECORDED: Final = (
    *("Timestamp", "Service", "Api", "Region", "Latency", "AttemptCount", "FinalHttpStatusCode"),
    *("FinalAwsException", "FinalAwsExceptionMessage", "FinalSdkException", "FinalSdkExceptionMessage"),
)
"""The parts of botocore's call reports that are recorded. The reports also contain the access key and session token."""
SECRETS: Final = (
    (re.compile(r"\b(?:A3T|A[KSB]IA|A[GINPR][A-Z]A|A[CS]CA)[A-Z0-9]{12,}"), "ACCESS-KEY-OR-ID"),
    (re.compile(r"(X-Amz-(?:Credential|Security-Token|Signature)=)[^&\s\"'<]+"), r"\1REMOVED"),
    (re.compile(r"([Ee]ncoded authorization failure message: )\S+"), r"\1REMOVED"),
    (re.compile(r"(assumed-role|user)/[^\s\"'<>]+"), r"\1/REMOVED"),
    (re.compile(r"(?<![\w.-])\d{12}(?![\w.-])"), "ACCOUNT"),
)
"""Patterns of credentials and account numbers, and their replacements."""


def settings(name: str, given: Sequence[str]) -> dict[str, str]:
    """Return the settings of the test cluster, with overrides given as KEY=VALUE.

    The number of vCPUs fits the quotas of a new account. Without `ssh_cidr` the cluster has no open port and the tests
    connect through Session Manager.
    """
    chosen = dict(each.split("=", 1) for each in given)
    reached = {} if "ssh_cidr" in chosen else {"ssh_access": "session-manager"}
    return {
        "name": name,
        "key_name": name,
        "tags": f"{TAG}={name}",
        "workers": "2",
        "max_workers": "16",
        "worker_instance_type": "m6i.large",
        "spot": "true",
        "on_demand_workers": "1",
        "kms_key": "create",
        "alarms": "true",
        "termination_notice_s": "30",
        "max_hours": str(MAX_HOURS),
        "retain_data": "false",
        **reached,
        **chosen,
    }


def overrides(given: Mapping[str, str]) -> list[str]:
    """Return settings as arguments of `fab`."""
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


def redact(text: str, known: Mapping[str, str]) -> str:
    """Return the text without credentials and account numbers; `known` maps further text to its replacement."""
    for secret in sorted(filter(None, known), key=len, reverse=True):
        text = text.replace(secret, known[secret])
    for pattern, replacement in SECRETS:
        text = pattern.sub(replacement, text)
    return text


class Recorder:
    """Write each AWS call of this process and its child processes to a file, one JSON document per line.

    botocore reports its calls over UDP if these variables are set ("SDK Metrics", AWS SDKs reference guide).
    """

    def __init__(self, path: Path, known: Mapping[str, str]) -> None:
        self._path, self._known = path, known
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind(("127.0.0.1", 0))
        host, port = self._socket.getsockname()
        os.environ |= {"AWS_CSM_ENABLED": "true", "AWS_CSM_HOST": host, "AWS_CSM_PORT": str(port)}
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._thread.start()

    def _record(self) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            while text := self._socket.recv(1 << 16):
                report = json.loads(text)
                if report["Type"] == "ApiCall":
                    kept = json.dumps({key: report[key] for key in RECORDED if key in report})
                    file.write(redact(kept, self._known) + "\n")
                    file.flush()

    def close(self) -> None:
        """Write the last calls."""
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()


def run(command: Sequence[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command in its own session, and kill all its processes before an interruption propagates.

    Otherwise the CDK CLI could outlive `fab` and create the stack after the clean-up.
    """
    process = subprocess.Popen(
        command, cwd=demo.ROOT, env=demo.environment(), text=True, start_new_session=True,
        errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=END_S)
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def ignore_signals() -> None:
    """Ignore Ctrl-C, a closed terminal and `kill` from now on."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def interrupt_once(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt once and ignore later signals: a second Ctrl-C would interrupt the clean-up."""
    ignore_signals()
    raise KeyboardInterrupt


def is_tagged(tags: Iterable[Mapping[str, object]], name: str) -> bool:
    """Return whether a resource has the tag of this test cluster; `*` matches any test cluster."""
    return any(each["Key"] == TAG and name in ("*", each["Value"]) for each in tags)


def find_left(aws: Aws, name: str) -> list[str]:
    """List the remaining billed resources of a test cluster, one per line; `*` includes all test clusters."""
    tagged: list[FilterTypeDef] = [{"Name": f"tag:{TAG}", "Values": [name]}]
    with aws_errors("looking for what is left"):
        ec2 = aws.client("ec2")
        reservations = ec2.describe_instances(Filters=tagged)["Reservations"]
        gateways = [each for each in ec2.describe_nat_gateways()["NatGateways"] if is_tagged(each["Tags"], name)]
        found = [
            *((each["InstanceId"], each["State"]["Name"]) for page in reservations for each in page["Instances"]),
            *((each["VolumeId"], each["State"]) for each in ec2.describe_volumes(Filters=tagged)["Volumes"]),
            *((each["NatGatewayId"], each["State"]) for each in gateways),
            *((each["AllocationId"], "allocated") for each in ec2.describe_addresses(Filters=tagged)["Addresses"]),
        ]
        stacks = entries(aws.client("cloudformation"), "describe_stacks", "Stacks")
    for stack in stacks:
        if stack["StackName"] == name or is_tagged(stack.get("Tags", ()), name):
            found.append((f"stack {stack['StackName']}", stack["StackStatus"]))
    return [f"{what}: {state}" for what, state in found if state not in GONE]


@dataclasses.dataclass(kw_only=True)
class Trial:
    """One run of the tests on an account."""

    given: dict[str, str]
    """The cluster's settings."""
    known: dict[str, str] = dataclasses.field(default_factory=dict)
    """Further texts that `redact` replaces."""
    say: Callable[[str], None] = print
    recorder: Recorder | None = None
    """None until the question is answered."""
    destroyed: bool = False

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.given["name"]

    @property
    def directory(self) -> Path:
        """Return the directory for the results."""
        return RESULTS / self.name

    def agree(self, tests: int, ask: Callable[[str], str] | None) -> None:
        """Show the account and the price, ask for the cluster's name (unless `ask` is false), and start recording.

        Raises DeepcdkError if the answer is different or if there is no terminal.
        """
        try:
            session = Session(demo.ROOT, [f"{key}={value}" for key, value in self.given.items()], deploying=True)
        except ConfigError as error:
            raise DeepcdkError(str(error)) from None
        with aws_errors("asking for your identity"):
            caller = session.aws.client("sts").get_caller_identity()
        environment = session.aws.environment()
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        self.known |= {environment[key]: "CREDENTIAL" for key in keys if environment.get(key)}
        self.known |= {caller["Arn"]: "CALLER", caller["UserId"]: "CALLER", caller["Account"]: "ACCOUNT"}
        self.known |= {address.split("/")[0]: "ADDRESS" for address in self.given.get("ssh_cidr", "").split(",")}
        self.say(f"account {caller['Account']}, region {session.aws.region}, as {caller['Arn']}")
        self.say(describe_deployment(session))
        self.say(f"{tests} tests take about 45 minutes on AWS (an estimate). Workers end after {MAX_HOURS} hours.")
        if earlier := find_left(session.aws, "*"):
            self.say(f"left of earlier tests, or used by others: {', '.join(earlier)}")
        if ask is not None and ask(f"Type {self.name} to continue: ").strip() != self.name:
            raise DeepcdkError("Aborted.")
        self.directory.mkdir(parents=True)
        self.recorder = Recorder(self.directory / "calls.jsonl", self.known)

    @contextmanager
    def cleaned_up(self) -> Iterator[list[str]]:
        """Always destroy the cluster after the block; the yielded list then contains the errors."""
        atexit.register(self.destroy)  # in case pytest itself fails
        for each in SIGNALS:
            signal.signal(each, interrupt_once)
        problems: list[str] = []
        try:
            yield problems
        finally:
            ignore_signals()
            problems += self.destroy()

    def destroy(self) -> list[str]:
        """Destroy the cluster and its key pair once; print and return the errors and the remaining resources."""
        if self.destroyed:
            return []
        self.destroyed = True
        self.say(f"\ndestroying {self.name}; Ctrl-C is ignored meanwhile")
        try:
            problems = self._destroy(Aws())
        except DeepcdkError as error:
            problems = [str(error)]
        remedy = f"look into the AWS console, and repeat: fab down --force --set name={self.name}"
        self.say("\n".join([*problems, remedy] if problems else ["nothing with the test's tag is left"]))
        self.say(f"results to send back: {self.directory}")
        return problems

    def _destroy(self, aws: Aws) -> list[str]:
        problems = []
        if stack := self._settled_stack(aws):
            started = time.monotonic()
            # A change set can leave a stack without resources. Delete it directly with CloudFormation.
            if stack["StackStatus"] != "REVIEW_IN_PROGRESS":
                done = run(("fab", "down", "--yes", "--force", *overrides(self.given)), timeout_s=CHANGE_S)
                if done.returncode:
                    output = done.stdout[-3000:] + done.stderr[-3000:]
                    problems.append(
                        f"fab down ended with {done.returncode}, so the stack was deleted directly\n{output}"
                    )
            if self._settled_stack(aws):
                self._delete_stack(aws)
            self.say(f"the cluster was destroyed in {time.monotonic() - started:.0f} s")
            with aws_errors("reading the stack's events"):
                # Use the stack's id: after deletion its name no longer identifies it.
                client = aws.client("cloudformation")
                events = entries(client, "describe_stack_events", "StackEvents", StackName=stack["StackId"])
            text = json.dumps(events, default=str, indent=1)
            (self.directory / "events.json").write_text(redact(text, self.known), encoding="utf-8")
            kept = {each["LogicalResourceId"] for each in events if each["ResourceStatus"] == "DELETE_SKIPPED"}
            problems += [f"{each}: kept by CloudFormation" for each in sorted(kept)]
        with aws_errors(f"deleting key pair {self.name}"):
            aws.client("ec2").delete_key_pair(KeyName=self.name)
        return problems + find_left(aws, self.name)

    def _delete_stack(self, aws: Aws) -> None:
        """Delete the stack and everything on it. Try twice, because running nodes may write to the bucket again."""
        for _ in range(2):
            if stack := self._settled_stack(aws):
                if stack["StackStatus"] != "REVIEW_IN_PROGRESS":
                    for each in retained_data.find(aws, self.name):
                        if each.type == retained_data.BUCKET and not each.kept:
                            retained_data.empty_bucket(aws, each.physical_id)
                with aws_errors(f"deleting stack {self.name}"):
                    aws.client("cloudformation").delete_stack(StackName=self.name)

    def _settled_stack(self, aws: Aws) -> Mapping[str, Any] | None:
        """Return the stack once it can be deleted, or None if it does not exist."""
        deadline = time.monotonic() + CHANGE_S
        while stack := describe_stack(aws, self.name):
            status = stack["StackStatus"]
            if status == "DELETE_COMPLETE":
                return None
            if not BUSY.match(status) or time.monotonic() > deadline:
                return stack
            time.sleep(2)
        return None

    def finish(self, report: Path) -> None:
        """Redact credentials and account numbers in the JUnit report; delete all results if the user answered no."""
        if self.recorder is None:
            shutil.rmtree(self.directory, ignore_errors=True)
            return
        self.recorder.close()
        if report.exists():
            report.write_text(redact(report.read_text(encoding="utf-8"), self.known), encoding="utf-8")


TRIAL: Final = pytest.StashKey[Trial]()


def configure(config: pytest.Config) -> None:
    """Prepare `--aws`: select the marked tests, use one process, disable test timeouts, and write a JUnit report."""
    option = config.option
    if getattr(option, "numprocesses", None) or hasattr(config, "workerinput"):
        raise pytest.UsageError("--aws: the tests share one cluster, so leave -n out")
    if wrong := [each for each in option.aws_set if "=" not in each]:
        raise pytest.UsageError(f"--aws-set {wrong[0]}: must be KEY=VALUE, with a key of context.cluster in cdk.json")
    trial = Trial(given=settings(f"{TAG}-{secrets.token_hex(2)}", option.aws_set))
    option.markexpr = option.markexpr or "aws"
    option.timeout = 0
    option.xmlpath = option.xmlpath or str(trial.directory / "junit.xml")
    config.stash[TRIAL] = trial


def agree(config: pytest.Config, tests: int) -> None:
    """Show the price and ask, unless `--aws-yes` was given. If the answer is no, end the session without a cluster."""
    trial = config.stash[TRIAL]
    capture: Any = config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled(), suppress(OSError):  # The terminal may be closed.
            print(line, flush=True)

    def ask(question: str) -> str:
        capture.suspend_global_capture(in_=True)
        try:
            return input(question)
        except (EOFError, OSError):
            raise DeepcdkError("there is nobody to ask", remedy="give --aws-yes") from None
        finally:
            capture.resume_global_capture()
            capture.suspend_global_capture()

    trial.say = say
    try:
        trial.agree(tests, None if config.option.aws_yes else ask)
    except DeepcdkError as error:
        pytest.exit(f"error: {error}", returncode=1)
