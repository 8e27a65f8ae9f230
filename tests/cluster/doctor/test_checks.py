"""The doctor: each check has a line, unanswered checks are unknown, and nothing hides a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.aws.client import Aws
from cluster.doctor import checks, quotas
from cluster.doctor.checks import document, examine, findings_table, summary
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Finding, Subject
from cluster.errors import AwsError
from cluster.terminal.tables import plain_lines
from stacks.config import ClusterConfig

FINDINGS = (
    Finding(check="stack", state=OK, what="is not deployed"),
    Finding(check="vCPU quota", state=FAIL, what="64 vCPUs, 60 in use", remedy="ask for more"),
    Finding(check="images", state=UNKNOWN, what="denied", remedy="request this permission"),
)


def subject(aws: Aws, home: Path) -> Subject:
    config = ClusterConfig(ssh_cidr=("198.18.0.7/32",))
    return Subject(aws=aws, config=config, project=home, home=home, key="")


def test_every_check_is_reported_and_unknown_if_it_cannot_run(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise AwsError(
            "AWS denied the request: why", where="reading the quotas of ec2", remedy="request this permission"
        )

    monkeypatch.setattr(quotas, "read_quotas", denied)
    found = {each.check: each for each in examine(subject(aws, tmp_path))}
    assert found["credentials"].state == OK
    assert found["CDK bootstrap"].state == WARN
    unknown = found["vCPU quota"]
    assert (unknown.state, unknown.remedy) == (UNKNOWN, "request this permission")
    assert unknown.what == "reading the quotas of ec2: AWS denied the request: why"
    assert {"configuration", "stack", "key pair", "master image", "worker image", "network quotas"} <= found.keys()


def test_other_checks_are_skipped_without_credentials(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    *_, refused, rest = examine(subject(Aws(), tmp_path))
    assert (refused.check, refused.state, "aws configure" in refused.remedy) == ("credentials", FAIL, True)
    assert rest.state == UNKNOWN
    assert all(name in rest.what for name, _ in checks.REMOTE)


def test_table_has_fix_for_every_problem() -> None:
    lines = list(plain_lines(findings_table("this laptop", FINDINGS)))
    assert "1 failed, 1 unknown, 1 ok" in lines
    assert lines[-2:] == ["  vCPU quota: ask for more", "  images: request this permission"]
    well = list(plain_lines(findings_table("this laptop", FINDINGS[:1])))
    assert well[-1] == summary(FINDINGS[:1]) == "1 ok"


def test_document_counts_failures() -> None:
    found = json.loads(json.dumps(document(FINDINGS)))
    assert found["failed"] == 1
    assert found["findings"][1] == {
        "check": "vCPU quota", "state": "fail", "what": "64 vCPUs, 60 in use", "remedy": "ask for more",
    }  # fmt: skip
