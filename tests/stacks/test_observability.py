"""Log groups, the agents' parameters and permissions, and the dashboard, in the template."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stacks.clusters.template import Template, filled
from tests.stacks.conftest import Synthesise
from tests.stacks.test_dashboard import EVERYTHING

ALL: dict[str, Any] = {**EVERYTHING, "alarm_emails": ("ops@example.com",)}


@pytest.fixture
def whole(synthesise: Synthesise) -> Template:
    return synthesise(**ALL)


def statements(template: Template, group: str) -> list[dict[str, Any]]:
    """Return what the role of a group's nodes may do."""
    profile = template.of("AWS::IAM::InstanceProfile")[
        template.template_of(group)["IamInstanceProfile"]["Arn"]["Fn::GetAtt"][0]
    ]
    (role,) = profile["Roles"]
    policies = [item for item in template.of("AWS::IAM::Policy").values() if role in item["Roles"]]
    return [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]


def test_a_cluster_without_it_has_nothing_of_it(synthesise: Synthesise) -> None:
    template = synthesise(idle_minutes=0)
    services = {item["Type"].split("::")[1] for item in template.resources.values()}
    assert not services & {"CloudWatch", "Logs", "SNS"}
    assert [id[:-8] for id in template.of("AWS::SSM::Parameter")] == ["RolesAdmittedKey", "RolesHandover"]
    assert "DEEPCDK_AGENT" not in template.user_data("WorkerGroup")
    assert "MetricsCollection" not in template.resources["WorkerGroup"]["Properties"]


def test_log_groups_expire_and_outlive_a_cluster_whose_data_is_kept(whole: Template, synthesise: Synthesise) -> None:
    for name in ("NodeLogs", "RunLogs"):
        assert whole.resources[name]["DeletionPolicy"] == "Retain"
        assert whole.resources[name]["Properties"]["RetentionInDays"] == 30
        gone = synthesise(node_logs=True, retain_data=False, log_retention_days=7).resources[name]
        assert gone["DeletionPolicy"] == "Delete"
        assert gone["Properties"]["RetentionInDays"] == 7
        assert "LogGroupName" not in gone["Properties"], "a group that is kept would be in the next one's way"


def test_log_groups_are_encrypted_with_the_clusters_key_which_admits_them_alone(synthesise: Synthesise) -> None:
    template = synthesise(node_logs=True, kms_key="create")
    for name in ("NodeLogs", "RunLogs"):
        key = template.resources[name]["Properties"]["KmsKeyId"]
        assert key == {"Fn::GetAtt": ["StorageKey", "Arn"]}
    statements = template.resources["StorageKey"]["Properties"]["KeyPolicy"]["Statement"]
    (logs,) = [item for item in statements if item.get("Sid") == "LogsUseTheKey"]
    assert filled(logs["Principal"]["Service"]) == "logs.AWS-Region.AWS-URLSuffix"
    groups = filled(logs["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"])
    assert groups.endswith(":log-group:AWS-StackName-*")
    assert "LogsUseTheKey" not in synthesise(kms_key="create").text()


def test_a_key_that_exists_encrypts_log_groups_too(synthesise: Synthesise) -> None:
    arn = "arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
    assert synthesise(node_logs=True, kms_key=arn).resources["NodeLogs"]["Properties"]["KmsKeyId"] == arn


def test_each_role_boots_with_its_own_configuration_of_the_agent(whole: Template) -> None:
    found = {}
    for group in ("MasterGroup", "WorkerGroup"):
        (line,) = [line for line in whole.user_data(group).splitlines() if line.startswith("export DEEPCDK_AGENT=")]
        parameter = line.split("${")[1].split("}")[0]
        found[group] = json.loads(filled(whole.of("AWS::SSM::Parameter")[parameter]["Value"]))
    logs = {
        group: {entry["log_group_name"] for entry in document["logs"]["logs_collected"]["files"]["collect_list"]}
        for group, document in found.items()
    }
    assert logs == {"MasterGroup": {"NodeLogs", "RunLogs"}, "WorkerGroup": {"NodeLogs"}}
    assert {document["metrics"]["namespace"] for document in found.values()} == {"deepcdk/deepcdk"}


def test_nodes_may_write_to_their_log_groups_and_their_clusters_metrics_only(whole: Template) -> None:
    found = {str(item["Action"]): item for item in statements(whole, "WorkerGroup")}
    logs = found["['logs:CreateLogStream', 'logs:DescribeLogStreams', 'logs:PutLogEvents']"]
    assert logs["Resource"] == {"Fn::GetAtt": ["NodeLogs", "Arn"]}
    metrics = found["cloudwatch:PutMetricData"]
    assert metrics["Resource"] == "*"
    assert metrics["Condition"] == {"StringEquals": {"cloudwatch:namespace": "deepcdk/deepcdk"}}
    key, own = map(filled, found["ssm:GetParameter"]["Resource"])
    assert own.startswith("arn:AWS-Partition:ssm:AWS-Region:AWS-AccountId:parameter/TelemetryWorkerAgent")
    assert key.startswith("arn:AWS-Partition:ssm:AWS-Region:AWS-AccountId:parameter/RolesAdmittedKey")
    assert len(found) == 4, "these, and the signal to the stack"


def test_the_master_alone_ships_the_runs_logs(whole: Template) -> None:
    (logs,) = [item for item in statements(whole, "MasterGroup") if "logs:PutLogEvents" in item["Action"]]
    assert logs["Resource"] == [{"Fn::GetAtt": ["NodeLogs", "Arn"]}, {"Fn::GetAtt": ["RunLogs", "Arn"]}]


def test_logs_alone_take_no_permission_for_metrics(synthesise: Synthesise) -> None:
    template = synthesise(node_logs=True)
    assert "cloudwatch:PutMetricData" not in template.text()
    assert all('"metrics":' not in filled(item["Value"]) for item in template.of("AWS::SSM::Parameter").values())


def test_the_embedded_cloud_takes_all_of_it(synthesise: Synthesise) -> None:
    from localcloud.api.cloudformation.types.allowlist import check

    template = synthesise(**ALL)
    check(template.document, holds=lambda name: False)


def test_efa_is_measured_on_workers_alone(synthesise: Synthesise) -> None:
    template = synthesise(**ALL, worker_instance_type="p5.48xlarge", efa=True)
    with_efa = [id for id, item in template.of("AWS::SSM::Parameter").items() if '"efa"' in filled(item["Value"])]
    assert len(with_efa) == 1
    assert "Worker" in with_efa[0]
