"""Facts about the way over the CDK CLI: which commands, in which environment, and what a failure says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from cluster import cdk
from cluster.aws import Aws


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project whose CDK CLI writes down how it was called."""
    cli = tmp_path / "node_modules" / ".bin" / "cdk"
    cli.parent.mkdir(parents=True)
    cli.write_text(f'#!/bin/sh\necho "$PWD $*" >> {tmp_path}/calls\nexit $(cat {tmp_path}/status)\n')
    cli.chmod(0o755)
    (tmp_path / "status").write_text("0")
    return tmp_path


def calls(project: Path) -> list[str]:
    return (project / "calls").read_text().splitlines()


def test_overrides_reach_the_cli_as_context() -> None:
    cli = Path("cdk")
    assert cdk.deploy_command(cli, "deepcdk", {"workers": "4"}) == [
        "cdk", "deploy", "deepcdk", "--require-approval", "never", "-c", "workers=4",
    ]  # fmt: skip
    assert cdk.destroy_command(cli, "deepcdk", {}) == ["cdk", "destroy", "deepcdk", "--force"]


def test_this_python_comes_first_in_the_clis_path() -> None:
    path = cdk.environment(Path("/opt/node/bin/node"), {"PATH": "/bin", "HOME": "/root"})["PATH"].split(os.pathsep)
    assert path == [str(Path(sys.executable).parent), "/opt/node/bin", "/bin"]


def test_a_missing_cli_points_to_the_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(cdk.CdkError, match="not installed") as caught:
        cdk.find_cli(tmp_path)
    assert "make setup" in caught.value.remedy


def test_up_bootstraps_an_account_that_is_not(aws: Aws, project: Path) -> None:
    told: list[str] = []
    cdk.up(aws, project, "deepcdk", {}, told.append)
    bootstrap, deploy = calls(project)
    assert "bootstrap aws://123456789012/us-east-1" in bootstrap
    assert not bootstrap.startswith(f"{project} "), "the bootstrap runs no app"
    assert deploy.startswith(f"{project} deploy deepcdk")
    assert "123456789012" in told[0]


def test_up_bootstraps_once(aws: Aws, project: Path) -> None:
    template = json.dumps({"Resources": {"B": {"Type": "AWS::S3::Bucket"}}})
    aws.client("cloudformation").create_stack(StackName="CDKToolkit", TemplateBody=template)
    cdk.up(aws, project, "deepcdk", {}, lambda _: None)
    assert len(calls(project)) == 1


def test_a_failed_deployment_is_told_with_its_status(project: Path) -> None:
    (project / "status").write_text("7")
    with pytest.raises(cdk.CdkError, match=r"the destruction failed.*status 7"):
        cdk.down(project, "deepcdk", {}, print)


def test_a_bucket_is_emptied_of_all_versions(aws: Aws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="runs")
    s3.put_bucket_versioning(Bucket="runs", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"1", b"2"):
        s3.put_object(Bucket="runs", Key="a", Body=body)
    s3.delete_object(Bucket="runs", Key="a")
    assert cdk.empty_bucket(aws, "runs") == 3
    s3.delete_bucket(Bucket="runs")


def test_what_goes_with_a_stack_is_told_by_what_was_deployed() -> None:
    both = {"file system": False, "bucket": False}
    assert cdk.describe_fate(both) == "ITS FILE SYSTEM AND BUCKET GO TOO, WITH WHAT IS ON IT"
    assert cdk.describe_fate({"file system": True, "bucket": True}) == "its file system and bucket are kept"
    assert cdk.describe_fate({"bucket": True}) == "its bucket is kept"
    assert cdk.describe_fate({"file system": True, "bucket": False}) == (
        "its file system is kept, ITS BUCKET GOES TOO, WITH WHAT IS ON IT"
    )
