"""Flow logs: off, to a log group that expires, or to a bucket."""

from __future__ import annotations

from collections.abc import Callable

from tests.stacks.clusters.template import Template
from tests.stacks.clusters.test_template import EXISTING

BUCKET = "arn:aws:s3:::my-flow-logs/cluster"


def test_there_are_none_by_default(template: Template) -> None:
    assert template.of("AWS::EC2::FlowLog") == {}
    assert template.of("AWS::Logs::LogGroup") == {}


def test_a_log_group_gets_all_traffic_of_the_vpc_and_forgets_it(synthesise: Callable[..., Template]) -> None:
    template = synthesise(flow_logs="log-group", log_retention_days=7)
    (log,) = template.of("AWS::EC2::FlowLog").values()
    assert (log["ResourceType"], log["ResourceId"]["Ref"]) == ("VPC", template.only("AWS::EC2::VPC"))
    assert (log["TrafficType"], log["LogGroupName"]) == ("ALL", {"Ref": "FlowLogs"})
    assert template.of("AWS::Logs::LogGroup")["FlowLogs"]["RetentionInDays"] == 7


def test_the_service_writes_to_this_group_alone(synthesise: Callable[..., Template]) -> None:
    template = synthesise(flow_logs="log-group", log_retention_days=7)
    (log,) = template.of("AWS::EC2::FlowLog").values()
    role = template.of("AWS::IAM::Role")[log["DeliverLogsPermissionArn"]["Fn::GetAtt"][0]]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "vpc-flow-logs.amazonaws.com"}
    (statement,) = [each for each in template.statements() if "logs:PutLogEvents" in str(each)]
    assert statement["Resource"] == {"Fn::GetAtt": ["FlowLogs", "Arn"]}


def test_the_group_is_encrypted_with_the_clusters_key_where_there_is_one(synthesise: Callable[..., Template]) -> None:
    template = synthesise(flow_logs="log-group", kms_key="create")
    assert template.of("AWS::Logs::LogGroup")["FlowLogs"]["KmsKeyId"]["Fn::GetAtt"][0] == template.only("AWS::KMS::Key")
    assert "logs." in str(template.of("AWS::KMS::Key"))


def test_a_bucket_gets_them_without_a_role_or_a_group(synthesise: Callable[..., Template]) -> None:
    template = synthesise(flow_logs=BUCKET)
    (log,) = template.of("AWS::EC2::FlowLog").values()
    assert (log["LogDestinationType"], log["LogDestination"]) == ("s3", BUCKET)
    assert "DeliverLogsPermissionArn" not in log
    assert template.of("AWS::Logs::LogGroup") == {}


def test_in_an_existing_vpc_only_the_clusters_subnets_are_watched(synthesise: Callable[..., Template]) -> None:
    template = synthesise(**EXISTING, flow_logs=BUCKET)
    logged = {(log["ResourceType"], log["ResourceId"]) for log in template.of("AWS::EC2::FlowLog").values()}
    assert logged == {("Subnet", "subnet-0aaaaaaaaaaaaaaa1"), ("Subnet", "subnet-0bbbbbbbbbbbbbbb1")}
