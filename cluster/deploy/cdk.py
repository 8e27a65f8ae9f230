"""Deploy and destroy with the CDK CLI. Its output is shown as a progress line, or in full with --verbose."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

from agent.polling import terminate
from cluster.aws.instance_console import last_boot_messages
from cluster.aws.launch_failures import describe_since
from cluster.cli import CODE, REINSTALL, packaged_node
from cluster.errors import AwsError, DeepcdkError
from cluster.terminal import status_line
from cluster.terminal.units import duration

if TYPE_CHECKING:
    from cluster.aws.client import Aws

COMPLETE: Final = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")
"""States of a stack that can be used and changed."""
CLI: Final = Path("node_modules", "aws-cdk", "bin", "cdk")
"""Path of the CDK CLI in a checkout or a wheel."""
LAST_LINES: Final = 30
"""Number of lines of the CLI's output in an error, if its output was not shown."""
_EVENT: Final = re.compile(
    r"\S+ \| +(?:(?P<done>\d+)(?:/ *(?P<total>\d+))? \| )?[^|]+ \| (?P<state>[A-Z_]+) *(?P<skipped>\(skipped\))? *"
    r"\| (?P<type>\S+) *\| (?P<name>\S+) ?(?:\(\w+\) ?)?(?P<reason>.*)"
)
"""A line of the CLI's output that reports a CloudFormation event."""
_OF_STACK: Final = "AWS::CloudFormation::Stack"
_CANCELLED: Final = re.compile(r"Resource (?:creation|update|deletion) cancelled")
"""CloudFormation's reason for a resource that was cancelled because another one failed."""


class CdkError(DeepcdkError, RuntimeError):
    """Report that the CDK CLI is missing or failed."""


def find_cli(project: Path) -> Path:
    """Return the path of the CDK CLI: the project's own, else deepcdk's pinned version, else the one in PATH.

    Raises CdkError if there is none.
    """
    pinned = (project / "node_modules" / ".bin" / "cdk", CODE / CLI)
    found = next((path for path in pinned if path.exists()), Path(shutil.which("cdk") or ""))
    if not found.name:
        raise CdkError("the CDK CLI is not installed", where=str(pinned[-1]), remedy=REINSTALL)
    return found


def find_node() -> Path:
    """Return the path of Node.js: from its Python package, else from this Python environment, else from PATH.

    Raises CdkError if there is none.
    """
    environments = Path(sys.prefix, "bin", "node")
    found = packaged_node() or (environments if environments.exists() else Path(shutil.which("node") or ""))
    if not found.name:
        raise CdkError("Node.js is not installed, but the CDK CLI needs it", remedy=REINSTALL)
    return found


def environment(node: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for the CLI, from `inherited`.

    This Python and Node.js are first in PATH, because the CLI starts `python app.py`.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), str(node.parent), inherited.get("PATH", "/usr/bin:/bin")])
    return {**inherited, "PATH": path}


def become_cli(words: Sequence[str]) -> NoReturn:
    """Replace this process with deepcdk's CDK CLI, with the arguments `words`. If that fails, exit with a message.

    This is the command `cdk` of the wheel.
    """
    try:
        node = find_node()
        os.execve(node, [str(node), str(CODE / CLI), *words], environment(node, os.environ))
    except (CdkError, OSError) as error:
        sys.exit(f"deepcdk: {error}")


def context(overrides: Mapping[str, str]) -> list[str]:
    """Return the CLI's arguments for overrides of cdk.json: `-c KEY=VALUE` for each."""
    return [word for key, value in overrides.items() for word in ("-c", f"{key}={value}")]


def prepare_command(cli: Path, stack: str, change_set: str, assembly: Path, overrides: Mapping[str, str]) -> list[str]:
    """Return the command that creates a change set, but changes no resource. Templates are written to `assembly`."""
    prepare = ["--method", "prepare-change-set", "--change-set-name", change_set, "--output", str(assembly)]
    return [str(cli), "deploy", stack, "--require-approval", "never", *prepare, *context(overrides)]


def execute_command(cli: Path, stack: str, change_set: str, assembly: Path) -> list[str]:
    """Return the command that executes a change set, given by name or ARN, and shows its progress.

    `assembly` is the directory with its templates.
    """
    execute = ["--method", "execute-change-set", "--change-set-name", change_set, "--app", str(assembly)]
    return [str(cli), "deploy", stack, "--require-approval", "never", "--no-logs", *execute]


def destroy_command(cli: Path, stack: str, assembly: Path, overrides: Mapping[str, str]) -> list[str]:
    """Return the command that destroys a stack without a question. Templates are written to `assembly`."""
    return [str(cli), "destroy", stack, "--force", "--output", str(assembly), *context(overrides)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """Descriptions of what the CLI does to a stack, for messages."""

    noun: str
    """As in "the deployment failed"."""
    doing: str
    """As in "deploying stack deepcdk"."""
    remedy: str
    """What to do if it fails."""


class Activity:
    """Show the progress of a stack and collect the failures of its resources, from the CLI's output."""

    def __init__(self, title: str) -> None:
        self._title, self._part, self._in_reason = title, 0, ""
        self.failures = dict[str, str]()
        """Reasons, by the resource's name."""
        self.skipped = list[str]()
        """Resources that an update did not delete. They may still cost money."""

    def read(self, line: str) -> None:
        """Parse one line of output: store failures and skipped resources, and update the progress line.

        A reason that continues on further lines is stored whole. The failure of the stack itself is not stored, nor are
        resources that were cancelled because another one failed.
        """
        event = _EVENT.match(line)
        if event is None:
            if not line.strip() or "\N{CROSS MARK}" in line:
                self._in_reason = ""
            elif self._in_reason and not line.startswith("\t"):  # After a tab is where the CDK app made the resource.
                self.failures[self._in_reason] += f" {line.strip()}"
            return
        self._in_reason = ""
        name, resource, of_stack = event["name"], f"{event['name']} ({event['type']})", event["type"] == _OF_STACK
        if event["skipped"]:
            self.skipped.append(resource)
        elif event["state"].endswith("_FAILED") and not (of_stack or _CANCELLED.match(event["reason"])):
            self._in_reason = resource
            self.failures[resource] = event["reason"].strip()
        if event["done"]:
            self._show(int(event["done"]), int(event["total"] or 0), "" if of_stack else f", {name}")

    def _show(self, done: int, total: int, name: str) -> None:
        title = f"{self._title} failed; rolling back" if self.failures else self._title
        text = f"{title}: {done} of {total} resources" if total else f"{title}: {done} resources"
        status_line.now(text + name)
        part = done * 4 // total if total else done // 20
        if part > self._part:
            self._part = part
            status_line.plain(text)


def run(
    command: Sequence[str],
    directory: Path,
    operation: Operation,
    inherited: Mapping[str, str],
    *,
    events: TextIO | None = None,
) -> None:
    """Run the CLI in a directory and show its progress, or its whole output on `events`.

    `operation` has the texts for messages. `inherited` are the CLI's environment variables. Prints a warning for each
    resource that could not be deleted. Raises CdkError if the CLI fails; without `events`, it contains the reasons of
    failed resources. Raises KeyboardInterrupt on Ctrl-C, after the CLI has exited.
    """
    activity, remedy = Activity(operation.doing), f"{operation.remedy}; --verbose shows all events of CloudFormation"
    showing = status_line.doing(operation.doing, plain=False) if events is None else contextlib.nullcontext()
    try:
        with showing:
            call(command, directory, operation.noun, inherited, activity.read, events=events)
    except CdkError as error:
        reasons = [f"{name}: {reason}" for name, reason in activity.failures.items()]
        what = "\n  ".join([f"{operation.noun} failed", *reasons]) if reasons else error.what
        remedy = remedy if events is None else f"read its messages above; {operation.remedy}"
        raise CdkError(what, where=error.where, remedy=remedy) from None
    for each in dict.fromkeys(activity.skipped):
        status_line.warn(
            f"CloudFormation could not delete {each}, which may still cost money; delete it in the AWS console"
        )


def call(
    command: Sequence[str],
    directory: Path,
    what: str,
    inherited: Mapping[str, str],
    read: Callable[[str], None] = lambda _: None,
    *,
    events: TextIO | None = None,
) -> None:
    """Run the CLI, and pass each line of its output to `read`, or write the whole output to `events`.

    `inherited` are the CLI's environment variables. `what` names the operation in errors. If the CLI fails, CdkError is
    raised with the last LAST_LINES lines or, with `events`, with the exit status. On Ctrl-C, waits until the CLI has
    exited, then raises KeyboardInterrupt.
    """
    variables, streams = environment(find_node(), inherited), dict[str, Any]()
    if events is None:
        variables["FORCE_COLOR"] = "0"
        streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    else:
        sys.stdout.flush()
    stdout = events or subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=directory, env=variables, stdout=stdout, text=True, errors="replace", **streams
    )
    last = collections.deque[str](maxlen=LAST_LINES)
    try:
        for line in process.stdout or ():
            read(line)
            if line.strip():
                last.append(line.rstrip())
        status = process.wait()
    except KeyboardInterrupt:
        _wait_for_end(process)
        raise
    if status != 0:
        told = f"{what} failed" if events is None else f"{what} failed: the CDK CLI exited with status {status}"
        raise CdkError(
            "\n  ".join([told, *last]),
            where=" ".join(command[:3]),
            remedy="fix the cause that these lines show, then repeat the command",
        )


def _wait_for_end(process: subprocess.Popen[str]) -> None:
    """Wait until the CLI exits after Ctrl-C, which the terminal sends to it too. It is terminated after 10 s."""
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        terminate(process)


def execute(
    aws: Aws,
    project: Path,
    stack: str,
    change_set: str,
    assembly: Path,
    report: Callable[[str], None],
    *,
    events: TextIO | None = None,
) -> None:
    """Execute a change set, given by name or ARN, and wait until it is done. Raises CdkError if it fails, or AwsError.

    The CdkError names failed launches and the last boot messages of new nodes. `report` is called with the result, or
    on Ctrl-C with a note that the deployment may continue. `events` is the stream for the CLI's output. None: only a
    progress line is shown.
    """
    began, clock = datetime.datetime.now(datetime.UTC).replace(microsecond=0), time.monotonic()
    command = execute_command(find_cli(project), stack, change_set, assembly)
    operation = Operation(
        noun="the deployment", doing=f"deploying stack {stack}", remedy="fix the cause, then repeat `fab up`"
    )
    try:
        run(command, project, operation, aws.environment(), events=events)
    except KeyboardInterrupt:
        report("\nthe deployment may continue in CloudFormation; `fab status` shows it, `fab down` removes the stack")
        raise
    except CdkError as error:
        messages = describe_since(aws, stack, began)
        with contextlib.suppress(AwsError):  # it must not hide why the deployment failed
            messages += last_boot_messages(aws, stack, began)
        if not messages:
            raise
        raise CdkError("\n  ".join([str(error.what), *messages]), where=error.where, remedy=error.remedy) from None
    report(f"stack {stack}: deployed in {duration(time.monotonic() - clock)}")


def destroy(
    aws: Aws,
    project: Path,
    stack: str,
    overrides: Mapping[str, str],
    report: Callable[[str], None],
    *,
    events: TextIO | None = None,
) -> None:
    """Destroy a stack without a question, and wait until it is deleted. Raises CdkError if that fails, or AwsError.

    `report` is called at the start and with the result, or on Ctrl-C with a note that the deletion may continue.
    `events` is the stream for the CLI's output. None: only a progress line is shown.

    The templates are written to a temporary directory, so that several stacks can be destroyed at once.
    """
    report(f"destroying stack {stack}")
    clock = time.monotonic()
    operation = Operation(
        noun="the deletion", doing=f"destroying stack {stack}", remedy="fix the cause, then repeat `fab down`"
    )
    try:
        with tempfile.TemporaryDirectory(prefix="deepcdk-") as assembly:
            command = destroy_command(find_cli(project), stack, Path(assembly), overrides)
            run(command, project, operation, aws.environment(), events=events)
    except KeyboardInterrupt:
        report("\nthe deletion may continue in CloudFormation; `fab status` shows it, `fab down` repeats it")
        raise
    report(f"stack {stack}: destroyed in {duration(time.monotonic() - clock)}")
