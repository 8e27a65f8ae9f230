"""The CDK's bootstrap: it is found by its qualifier, and an incomplete one is reported before any question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cluster.aws.client import Aws
from cluster.deploy import bootstrap
from cluster.deploy.bootstrap import Bootstrap, Names
from cluster.deploy.cdk import CdkError
from cluster.errors import DeepcdkError, NoAnswerError


def there(**changes: Any) -> Bootstrap:
    values: dict[str, Any] = {
        "names": Names(), "account": "123456789012", "region": "us-east-1", "version": 33, "bucket_exists": True,
        "status": "CREATE_COMPLETE",
    }  # fmt: skip
    return Bootstrap(**{**values, **changes})


def put(aws: Aws, qualifier: str, *, bucket: bool = True, version: str = "33", stack: str = "") -> None:
    if bucket:
        aws.client("s3").create_bucket(Bucket=Names(qualifier=qualifier).bucket("123456789012", "us-east-1"))
    if version:
        aws.client("ssm").put_parameter(Name=f"/cdk-bootstrap/{qualifier}/version", Value=version, Type="String")
    if stack:
        template = json.dumps({"Resources": {"T": {"Type": "AWS::SNS::Topic"}}})
        aws.client("cloudformation").create_stack(StackName=stack, TemplateBody=template)


def test_account_is_bootstrapped_without_running_an_app(aws: Aws, project: Path) -> None:
    found, told = bootstrap.examine(aws, Names()), list[str]()
    found.check()
    assert not found.is_complete
    assert "bootstrap account 123456789012 in us-east-1 for the CDK, once: stack CDKToolkit" in found.question()
    bootstrap.make(aws, project, found, told.append)
    (call,) = (project / "calls").read_text().splitlines()
    assert call.endswith("bootstrap aws://123456789012/us-east-1")
    assert not call.startswith(f"{project} ")
    assert "123456789012" in told[0]


def test_bootstrap_is_found_by_qualifier_not_stack_name(aws: Aws) -> None:
    """Source: aws-cdk #26588."""
    put(aws, "corp01", stack="Corp")
    assert bootstrap.examine(aws, Names(qualifier="corp01")).is_complete
    assert bootstrap.examine(aws, Names(qualifier="corp01", toolkit="Corp")).is_complete
    assert not bootstrap.examine(aws, Names()).is_complete


def test_names_are_read_as_the_cdk_cli_reads_them(tmp_path: Path) -> None:
    """Source: aws-cdk #26588, #18975."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    assert Names.read(project, home, {}) == Names()
    key = "@aws-cdk/core:bootstrapQualifier"
    (home / ".cdk.json").write_text(json.dumps({"toolkitStackName": "Corp", "context": {key: "corp01"}}))
    assert Names.read(project, home, {}) == Names(toolkit="Corp", qualifier="corp01")
    (project / "cdk.json").write_text(json.dumps({"context": {key: "team02"}}))
    assert Names.read(project, home, {"CDK_TOOLKIT_STACK_NAME": "Mine"}) == Names(toolkit="Mine", qualifier="team02")
    command = there(names=Names.read(project, home, {})).command(Path("cdk"))
    assert command[3:] == ["--toolkit-stack-name", "Corp", "--qualifier", "team02"]


@pytest.mark.parametrize(
    "text", ['{"context": {"@aws-cdk/core:bootstrapQualifier": "a b"}}', "{", '{"context": ', "[" * 100_000]
)
def test_settings_that_the_cdk_cli_would_reject_are_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "cdk.json").write_text(text)
    with pytest.raises(DeepcdkError) as caught:
        Names.read(tmp_path, tmp_path, {})
    assert "cdk.json" in caught.value.where


def test_unreadable_settings_are_reported_with_fix(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").mkdir()
    with pytest.raises(DeepcdkError, match=r"cdk\.json cannot be read: Is a directory") as caught:
        Names.read(tmp_path, tmp_path, {})
    assert (caught.value.where, caught.value.remedy) == (str(tmp_path / "cdk.json"), "make it a readable file")


@pytest.mark.parametrize(
    ("bucket", "version", "stack", "missing", "advice"),
    [
        (True, "", "", "its stack CDKToolkit does not", "in the S3 console"),
        (False, "33", "CDKToolkit", "its bucket cdk-hnb659fds-assets-123456789012-us-east-1 does not", "delete-stack"),
        (False, "33", "", "its bucket", "delete-stack"),
        (False, "", "CDKToolkit", "its bucket", "delete-stack"),
    ],
)
def test_incomplete_bootstrap_is_reported_with_missing_parts(
    aws: Aws, bucket: bool, version: str, stack: str, missing: str, advice: str
) -> None:
    """Source: aws-cdk #24143, #18261, #1270."""
    put(aws, "hnb659fds", bucket=bucket, version=version, stack=stack)
    with pytest.raises(CdkError, match=f"the CDK's bootstrap is incomplete.*{missing}") as caught:
        bootstrap.examine(aws, Names()).check()
    assert advice in caught.value.remedy


def test_old_or_invalid_bootstrap_version_is_updated(aws: Aws) -> None:
    put(aws, "hnb659fds", version="5", stack="CDKToolkit")
    found = bootstrap.examine(aws, Names())
    found.check()
    assert not found.is_complete
    assert "from version 5" in found.question()


def test_version_comes_from_stack_if_parameter_is_forbidden(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.exceptions

    def refuse(**_: object) -> None:
        raise botocore.exceptions.ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetParameter")

    monkeypatch.setattr(aws.client("ssm"), "get_parameter", refuse)
    outputs = [{"OutputKey": "BootstrapVersion", "OutputValue": "33"}]
    stack = {"StackStatus": "CREATE_COMPLETE", "Outputs": outputs}
    monkeypatch.setattr(bootstrap, "describe_stack", lambda *_: stack)
    put(aws, "hnb659fds", version="")
    assert bootstrap.examine(aws, Names()).is_complete
    stack["Outputs"] = []
    with pytest.raises(DeepcdkError, match="AWS denied the request"):
        bootstrap.examine(aws, Names())


def test_failed_concurrent_bootstrap_waits_for_the_other(
    aws: Aws, project: Path, monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    told: list[str] = []
    statuses = ["CREATE_IN_PROGRESS", "CREATE_COMPLETE", "CREATE_COMPLETE"]
    monkeypatch.setattr(bootstrap, "describe_stack", lambda *_: {"StackStatus": statuses.pop(0)})
    (project / "status").write_text("1")
    put(aws, "hnb659fds")
    bootstrap.make(aws, project, there(version=None, bucket_exists=False, status=""), told.append)
    assert (statuses, told[-1]) == (
        [],
        "another machine has bootstrapped the account at the same time, so `fab up` continues",
    )


@pytest.mark.parametrize(("code", "exists"), [("404", False), ("403", None), ("AccessDenied", None), ("", True)])
def test_forbidden_bucket_is_unknown(aws: Aws, monkeypatch: pytest.MonkeyPatch, code: str, exists: bool | None) -> None:
    def answer(**_: object) -> None:
        if code:
            raise ClientError({"Error": {"Code": code}}, "HeadBucket")

    put(aws, "hnb659fds", bucket=False)
    monkeypatch.setattr(aws.client("s3"), "head_bucket", answer)
    found = bootstrap.examine(aws, Names())
    assert found.bucket_exists is exists
    if exists is not False:
        found.check()


def test_failed_bootstrap_is_reported_unless_another_one_succeeds(aws: Aws, project: Path) -> None:
    (project / "status").write_text("1")
    with pytest.raises(CdkError, match="the bootstrap failed"):
        bootstrap.make(aws, project, bootstrap.examine(aws, Names()), print)


def test_failed_bootstrap_is_reported_even_if_aws_no_longer_answers(
    aws: Aws, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise NoAnswerError("the AWS API does not answer")

    (project / "status").write_text("1")
    monkeypatch.setattr(bootstrap, "describe_stack", silent)
    with pytest.raises(CdkError, match="the bootstrap failed"):
        bootstrap.make(aws, project, there(version=None, bucket_exists=False, status=""), print)
