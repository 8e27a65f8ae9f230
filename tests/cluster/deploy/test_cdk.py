"""Calling the CDK CLI: the commands, their environment, and the messages on failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cluster.aws.client import Aws
from cluster.cli import CODE
from cluster.deploy import cdk
from cluster.errors import AwsError
from tests.cluster.conftest import Proxy


def calls(project: Path) -> list[str]:
    return (project / "calls").read_text().splitlines()


def test_overrides_reach_the_cli_as_context() -> None:
    cli, assembly = Path("cdk"), Path("/tmp/assembly")
    assert cdk.prepare_command(cli, "deepcdk", "next", assembly, {"workers": "4"}) == [
        "cdk", "deploy", "deepcdk", "--require-approval", "never", "--method", "prepare-change-set",
        "--change-set-name", "next", "--output", "/tmp/assembly", "-c", "workers=4",
    ]  # fmt: skip
    assert cdk.execute_command(cli, "deepcdk", "next", assembly) == [
        "cdk", "deploy", "deepcdk", "--require-approval", "never", "--no-logs", "--method", "execute-change-set",
        "--change-set-name", "next", "--app", "/tmp/assembly",
    ]  # fmt: skip
    assert cdk.destroy_command(cli, "deepcdk", assembly, {"workers": "4"}) == [
        "cdk", "destroy", "deepcdk", "--force", "--output", "/tmp/assembly", "-c", "workers=4",
    ]  # fmt: skip


def test_this_python_comes_first_in_the_clis_path() -> None:
    path = cdk.environment(Path("/opt/node/bin/node"), {"PATH": "/bin", "HOME": "/root"})["PATH"].split(os.pathsep)
    assert path == [str(Path(sys.executable).parent), "/opt/node/bin", "/bin"]


def test_missing_cli_points_to_the_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cdk, "CODE", tmp_path)
    with pytest.raises(cdk.CdkError, match="not installed") as caught:
        cdk.find_cli(tmp_path)
    assert "make setup" in caught.value.remedy


def test_execution_runs_in_the_project_on_the_templates_of_the_plan(aws: Aws, project: Path) -> None:
    cdk.execute(aws, project, "deepcdk", "next", Path("/tmp/assembly"), print)
    (call,) = calls(project)
    assert call.startswith(f"{project} deploy deepcdk")
    assert call.endswith("--app /tmp/assembly")


def test_cli_output_is_shown_only_after_failure(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cli = project / "node_modules" / ".bin" / "cdk"
    cli.write_text(f"#!/bin/sh\necho out; echo why >&2\nexit $(cat {project}/status)\n")
    cdk.call([str(cli)], project, "the plan", os.environ)
    (project / "status").write_text("3")
    with pytest.raises(cdk.CdkError, match=r"(?s)the plan failed.*out.*why"):
        cdk.call([str(cli)], project, "the plan", os.environ)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_failed_deployment_is_reported_with_its_status(aws: Aws, project: Path) -> None:
    (project / "status").write_text("7")
    with pytest.raises(cdk.CdkError, match=r"the deletion failed.*status 7"):
        cdk.destroy(aws, project, "deepcdk", {}, print, events=sys.stderr)


RESOURCE = "deepcdk | {}{:<29} | {:<30} | {}\n"


def event(progress: str, state: str, kind: str, rest: str) -> str:
    """Return a line as the CDK CLI prints it (HistoryActivityPrinter)."""
    return RESOURCE.format(f"{progress} | " if progress else "", f"11:39:25 PM | {state}", kind, rest)


CREATED = (
    " \N{HOURGLASS WITH FLOWING SAND}  Bootstrapping environment aws://1/us-east-1...\n"
    + event("0/4", "REVIEW_IN_PROGRESS", "AWS::CloudFormation::Stack", "deepcdk User Initiated")
    + event(
        "0/4", "CREATE_IN_PROGRESS", "AWS::EC2::VPC", "Network/Vpc (NetworkVpc7FB7348F) Resource creation Initiated"
    )
    + event("1/4", "CREATE_COMPLETE", "AWS::EC2::VPC", "Network/Vpc (NetworkVpc7FB7348F) ")
    + event("2/4", "CREATE_COMPLETE", "AWS::S3::Bucket", "RunBucket ")
    + event("4/4", "CREATE_COMPLETE", "AWS::CloudFormation::Stack", "deepcdk ")
    + "\nStack ARN:\narn:aws:cloudformation:us-east-1:1:stack/deepcdk/1\n"
)
GROUP = "Workers/Group (WorkersGroup1A2B3C) "
FAILED = (
    event(
        "3/9", "CREATE_FAILED", "AWS::AutoScaling::AutoScalingGroup", f"{GROUP}Received 1 FAILURE signal(s)\n  in all"
    )
    + "\tnew Group (/project/app.py:7)\n\t\\_ main\n"
    + event("3/9", "CREATE_FAILED", "AWS::IAM::Role", "Role Resource creation cancelled")
    + event("3/9", "CREATE_FAILED", "AWS::CloudFormation::Stack", "deepcdk The following resource(s) failed")
    + event("2/9", "DELETE_FAILED", "AWS::EC2::Subnet", "Subnet has dependencies")
    + "\nFailed resources:\n"
    + event("", "CREATE_FAILED", "AWS::AutoScaling::AutoScalingGroup", f"{GROUP}Received 1 FAILURE signal(s)\n  in all")
    + "\n\N{CROSS MARK}  deepcdk failed: ToolkitError: The stack named deepcdk failed creation\n"
)


def prints(project: Path, text: str, status: int = 0) -> None:
    """Make the CLI of a project print a text."""
    (project / "says").write_text(text)
    cli = project / "node_modules" / ".bin" / "cdk"
    cli.write_text(f"#!/bin/sh\necho $FORCE_COLOR >{project}/color\ncat {project}/says\nexit {status}\n")


def test_deployment_prints_its_progress_in_quarters_and_its_end(
    aws: Aws, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prints(project, CREATED)
    told: list[str] = []
    cdk.execute(aws, project, "deepcdk", "next", Path("/tmp/assembly"), told.append)
    (end,) = told
    assert end.startswith("stack deepcdk: deployed in ")
    parts = [f"deploying stack deepcdk: {done} of 4 resources" for done in (1, 2, 4)]
    assert capfd.readouterr() == ("", "".join(f"{part}\n" for part in parts))
    assert (project / "color").read_text() == "0\n"


def test_destruction_of_unknown_size_prints_its_progress(
    aws: Aws, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prints(project, "".join(event(f"{done:3}", "DELETE_COMPLETE", "AWS::IAM::Role", "Role") for done in range(43)))
    cdk.destroy(aws, project, "deepcdk", {}, print)
    out, err = capfd.readouterr()
    first, last = out.splitlines()
    assert (first, last.partition(" in ")[0]) == ("destroying stack deepcdk", "stack deepcdk: destroyed")
    assert err.splitlines() == [f"destroying stack deepcdk: {done} resources" for done in (20, 40)]


def test_failure_is_reported_with_the_reason_of_each_resource(aws: Aws, project: Path) -> None:
    prints(project, FAILED, status=1)
    with pytest.raises(cdk.CdkError) as caught:
        cdk.execute(aws, project, "deepcdk", "next", Path("/tmp/assembly"), print)
    assert caught.value.what.splitlines() == [
        "the deployment failed",
        "  Workers/Group (AWS::AutoScaling::AutoScalingGroup): Received 1 FAILURE signal(s) in all",
        "  Subnet (AWS::EC2::Subnet): has dependencies",
    ]
    assert caught.value.remedy.startswith("fix the cause, then repeat `fab up`; --verbose shows all events")


def test_failure_without_events_is_reported_with_the_last_lines(aws: Aws, project: Path) -> None:
    prints(project, "reading\n\n\N{CROSS MARK}  deepcdk failed: AccessDenied: not for you\n", status=1)
    with pytest.raises(cdk.CdkError, match=r"(?s)the deletion failed\n  reading\n.*AccessDenied: not for you"):
        cdk.destroy(aws, project, "deepcdk", {}, print)


def test_failed_deployment_lists_failed_launches(aws: Aws, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        "deepcdk-WorkerGroup-1A cannot launch an instance: Max spot instance count exceeded; do: request a larger quota"
    )
    monkeypatch.setattr(cdk, "describe_since", lambda *_: [line])
    (project / "status").write_text("1")
    with pytest.raises(cdk.CdkError) as caught:
        cdk.execute(aws, project, "deepcdk", "next", Path("/tmp/assembly"), print)
    assert caught.value.what.splitlines()[1:] == [f"  {line}"]


def test_failed_deployment_is_reported_even_if_the_consoles_cannot_be_read(
    aws: Aws, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> list[str]:
        raise AwsError("AWS denied the request: ec2:GetConsoleOutput")

    monkeypatch.setattr(cdk, "last_boot_messages", denied)
    prints(project, FAILED, status=1)
    with pytest.raises(cdk.CdkError, match=r"Received 1 FAILURE signal\(s\) in all"):
        cdk.execute(aws, project, "deepcdk", "next", Path("/tmp/assembly"), print)


def test_resource_that_an_update_could_not_delete_is_a_warning(
    aws: Aws, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prints(project, event("9/9", "DELETE_FAILED (skipped)", "AWS::EC2::Subnet", "Old (Old1) (this will take a few)"))
    cdk.execute(aws, project, "deepcdk", "next", Path("/tmp/assembly"), print)
    assert "warning: CloudFormation could not delete Old (AWS::EC2::Subnet)" in capfd.readouterr().err


def test_all_events_are_shown_on_request(aws: Aws, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prints(project, CREATED)
    cdk.execute(aws, project, "deepcdk", "next", Path("/tmp/assembly"), print, events=sys.stderr)
    assert capfd.readouterr().err == CREATED


@pytest.mark.skipif(not (CODE / cdk.CLI).exists(), reason="needs `make setup`")
@pytest.mark.parametrize(("no_proxy", "is_used"), [("", True), ("localhost,.invalid", False)])
def test_cli_uses_the_http_proxy(
    aws: Aws, tmp_path: Path, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch, no_proxy: str, is_used: bool
) -> None:
    monkeypatch.setenv("NO_PROXY", no_proxy)
    monkeypatch.setenv("CDK_DISABLE_CLI_TELEMETRY", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://aws.invalid")
    command = [str(CODE / cdk.CLI), "bootstrap", "aws://123456789012/us-east-1"]
    with pytest.raises(cdk.CdkError):
        cdk.call(command, tmp_path, "the bootstrap", aws.environment())
    assert ("aws.invalid" in proxy.seen) is is_used, proxy.seen  # it may also request its notices
