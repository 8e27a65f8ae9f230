"""`app.py` as the CDK CLI runs it, and the acknowledged findings of cdk-nag."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from stacks.config import ClusterConfig
from tests.stacks.clusters import synthesis
from tests.stacks.clusters.eight import SSH_CIDR
from tests.stacks.clusters.synthesis import PREFLIGHT, PROJECT

# The findings of cdk-nag in the default cluster. Each is acknowledged in the code that causes it, with the reason.
ACKNOWLEDGED = {
    "AwsSolutions-AS3",
    "AwsSolutions-IAM5[Resource::*]",
    "AwsSolutions-IAM5[Resource::<RunBucket.Arn>/runs/*]",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:autoscaling:<AWS::Region>:<AWS::AccountId>:"
    "autoScalingGroup:*:autoScalingGroupName/<WorkerGroup>]",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*]",
    "AwsSolutions-S1",
    "AwsSolutions-VPC7",
}


def test_each_acknowledgment_has_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_cdk import Validations

    monkeypatch.setattr(Validations, "acknowledge", lambda self, *rules: None)
    found = synthesis.inspect(ClusterConfig(ssh_cidr=SSH_CIDR)).findings[synthesis.NAG]
    assert {text.rsplit(": ", 1)[0] for text in found} == ACKNOWLEDGED


def run_app(
    outdir: Path, *, command: Sequence[str] = ("app.py",), checked: bool = True, **context: object
) -> subprocess.CompletedProcess[str]:
    """Run app.py, or another Python command, as the CDK CLI does, with cdk.json's context and more.

    `checked`: with the CDK's own rules, which takes three seconds.
    """
    flags = json.loads((PROJECT / "cdk.json").read_text(encoding="utf-8"))["context"]
    environment = {key: value for key, value in os.environ.items() if key != "CDK_VALIDATION"}
    if not checked:
        environment["CDK_VALIDATION"] = "false"
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env={**environment, "CDK_CONTEXT_JSON": json.dumps({**flags, **context}), "CDK_OUTDIR": str(outdir)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_app_rejects_topic_outside_the_region_of_the_cdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-west-1")
    topic = "arn:aws:sns:us-east-1:123456789012:ops"
    result = run_app(tmp_path, checked=False, ssh_cidr=SSH_CIDR, alarms=True, alarm_topic=topic)
    assert result.returncode == 1
    assert "cluster.alarm_topic" in result.stderr and "the cluster is in eu-west-1" in result.stderr


# A firewall rule that EC2 rejects because of its description.
SPOILT = "The master's port"
SPOIL = f"""
from aws_cdk import aws_ec2 as ec2
import app
from stacks.firewall import Firewall

admit = Firewall._admit_ranks

def spoilt(self):
    admit(self)
    self.master.add_ingress_rule(self.workers, ec2.Port.udp(9), {SPOILT!r})

Firewall._admit_ranks = spoilt
app.main()
"""


def test_app_rejects_template_invalid_for_aws_and_reports_resource(tmp_path: Path) -> None:
    result = run_app(tmp_path, command=("-c", SPOIL), ssh_cidr=SSH_CIDR)
    assert result.returncode != 0
    assert f"ERROR Security group rule description '{SPOILT}' is rejected" in result.stderr
    assert "Firewall/Master" in result.stderr
    (report,) = json.loads((tmp_path / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]
    assert (report["pluginName"], report["conclusion"]) == (PREFLIGHT, "failure")
    assert [violation["ruleName"] for violation in report["violations"]] == ["pf-ec2-sg-rule-description"]


def test_app_writes_a_template_and_warns_if_no_network_reaches_the_master(tmp_path: Path) -> None:
    result = run_app(tmp_path, checked=False, workers="3")
    assert result.returncode == 0, result.stderr
    document = json.loads((tmp_path / "deepcdk.template.json").read_text(encoding="utf-8"))
    assert document["Resources"]["WorkerGroup"]["Properties"]["DesiredCapacity"] == "3"
    metadata = json.loads((tmp_path / "deepcdk.metadata.json").read_text(encoding="utf-8"))
    (warning,) = [each["data"] for each in metadata["/deepcdk"] if each["type"] == "aws:cdk:warning"]
    assert warning.startswith("cluster.ssh_cidr = []: empty")


def test_invalid_configuration_fails_with_one_line(tmp_path: Path) -> None:
    result = run_app(tmp_path, ssh_cidr=SSH_CIDR, worker="3")
    assert result.returncode == 1
    (said,) = result.stderr.splitlines()
    assert said.startswith("deepcdk: cluster.worker = '3': unknown key; did you mean workers?")
    assert not list(tmp_path.iterdir())


def test_cdk_json_has_defaults_and_no_ssh_cidr() -> None:
    cluster = json.loads((PROJECT / "cdk.json").read_text(encoding="utf-8"))["context"]["cluster"]
    assert "ssh_cidr" not in cluster
    assert ClusterConfig(ssh_cidr=SSH_CIDR, **cluster) == ClusterConfig(ssh_cidr=SSH_CIDR)
