"""Entries of metrics, messages, storage, identities and keys that cdk-preflight refuses."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.refusals.case import Case, Template
from tests.refusals.templates import arn_of, only, ref, resource, statement, template, trust

_BUCKET: Final = "arn:aws:s3:::data-lake-of-the-vision-group-"
_ROOT: Final = {
    "Sid": "Root",
    "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
    "Action": "kms:*",
    "Resource": "*",
}


def _metric(key: str, **more: Any) -> dict[str, Any]:
    stat = {"Metric": {"Namespace": "AWS/EC2", "MetricName": "CPUUtilization"}, "Period": 300, "Stat": "Average"}
    return {"Id": key, "MetricStat": {**stat, **more}, "ReturnData": False}


def _alarm(*metrics: dict[str, Any], **more: Any) -> Template:
    comparison = {"ComparisonOperator": "GreaterThanThreshold", "EvaluationPeriods": 1, "Threshold": 1}
    return only("CloudWatch::Alarm", **comparison, Metrics=list(metrics), **more)


def _sum(count: int) -> Template:
    """Return an alarm on the sum of so many metrics."""
    names = [f"m{n}" for n in range(count)]
    return _alarm(*map(_metric, names), {"Id": "e", "Expression": "+".join(names)})


def _math(expression: str) -> Template:
    return _alarm(_metric("a"), {"Id": "e", "Expression": expression})


def _acting(action: str) -> Template:
    return _alarm({**_metric("a"), "ReturnData": True}, AlarmActions=[action])


def _widget(width: int = 24, period: int = 60) -> Template:
    """Return a dashboard of one widget."""
    shown = {"metrics": [["AWS/EC2", "CPUUtilization"]], "region": "us-east-1", "period": period}
    body = {"widgets": [{"type": "metric", "width": width, "properties": shown}]}
    return only("CloudWatch::Dashboard", DashboardBody=json.dumps(body))


def _subscription(protocol: str, endpoint: Any) -> Template:
    given = {"TopicArn": ref("Topic"), "Protocol": protocol, "Endpoint": endpoint}
    return template(
        Topic=resource("SNS::Topic"), Queue=resource("SQS::Queue"), It=resource("SNS::Subscription", **given)
    )


def _queue_policy(queue: Any) -> Template:
    policy = statement(Principal={"Service": "sns.amazonaws.com"}, Action="sqs:SendMessage", Resource=arn_of("Queue"))
    it = resource("SQS::QueuePolicy", Queues=[queue], PolicyDocument=policy)
    return template(Queue=resource("SQS::Queue"), It=it)


def _bucket(**properties: Any) -> Template:
    return only("S3::Bucket", **properties)


def _expiring(days: int) -> Template:
    rule: dict[str, Any] = {"Status": "Enabled", "ExpirationInDays": days}
    rule["Transitions"] = [{"StorageClass": "STANDARD_IA", "TransitionInDays": 30}]
    return _bucket(LifecycleConfiguration={"Rules": [rule]})


def _encrypted(algorithm: str) -> Template:
    default = {"SSEAlgorithm": algorithm, "KMSMasterKeyID": "1234abcd-12ab-34cd-56ef-1234567890ab"}
    rules = [{"ServerSideEncryptionByDefault": default}]
    return _bucket(BucketEncryption={"ServerSideEncryptionConfiguration": rules})


def _files(**properties: Any) -> Template:
    return only("EFS::FileSystem", **properties)


def _files_policy(resource_arn: Any) -> Template:
    allowed = statement(Principal={"AWS": "*"}, Action="elasticfilesystem:ClientMount", Resource=resource_arn)
    return _files(FileSystemPolicy=allowed)


def _role(**properties: Any) -> Template:
    return only("IAM::Role", **{"AssumeRolePolicyDocument": trust(Service="ec2.amazonaws.com"), **properties})


def _policy(buckets: int) -> Template:
    """Return a role whose policy names so many buckets."""
    names = [f"{_BUCKET}{n:03}" for n in range(buckets)]
    document = statement(Action="s3:GetObject", Resource=names)
    role = resource("IAM::Role", AssumeRolePolicyDocument=trust(Service="ec2.amazonaws.com"))
    return template(
        Role=role, It=resource("IAM::Policy", PolicyName="read", PolicyDocument=document, Roles=[ref("Role")])
    )


def _key(sid: str = "Root", **properties: Any) -> Template:
    return only("KMS::Key", KeyPolicy=statement(**{**_ROOT, "Sid": sid}), **properties)


def _exports(*names: str) -> Template:
    outputs = {f"Out{n}": {"Value": "x", "Export": {"Name": name}} for n, name in enumerate(names)}
    return {**only("SNS::Topic"), "Outputs": outputs}


_SEARCH: Final = "SEARCH('{AWS/EC2,InstanceId} MetricName=\"CPUUtilization\"', 'Average', 300)"
_WORDS: Final = "us-east-1:123456789012:words"
_COLD: Final = {"TransitionToIA": "AFTER_30_DAYS"}
_WARM: Final = {"TransitionToPrimaryStorageClass": "AFTER_1_ACCESS"}
_MIB_S: Final = {"ProvisionedThroughputInMibps": 64}

CASES: Final[tuple[Case[Template], ...]] = (
    Case(
        "CW-04",
        _alarm({**_metric("a"), "ReturnData": True}, {**_metric("b"), "ReturnData": True}),
        "pf-cloudwatch-metric-query-returndata",
        _alarm({**_metric("a"), "ReturnData": True}, _metric("b")),
    ),
    Case("CW-06", _sum(11), "pf-cloudwatch-alarm-metrics-max", _sum(10)),
    Case("CW-07", _math(_SEARCH), "pf-cloudwatch-alarm-search-expression", _math("a * 2")),
    Case(
        "CW-08",
        _alarm({**_metric("a", Stat="Avg"), "ReturnData": True}),
        "pf-cloudwatch-metricstat-stat-syntax",
        _alarm({**_metric("a", Stat="p99"), "ReturnData": True}),
    ),
    Case(
        "CW-10",
        _acting(f"arn:aws:sqs:{_WORDS}"),
        "pf-cloudwatch-alarm-action-vendor",
        _acting(f"arn:aws:sns:{_WORDS}"),
    ),
    Case("CW-19", _widget(width=25), "pf-cloudwatch-dashboard-widget-position", _widget(width=24)),
    Case("CW-21", _widget(period=45), "pf-cloudwatch-dashboard-widget-period", _widget(period=60)),
    Case(
        "SNS-04",
        _subscription("sqs", "https://sqs.us-east-1.amazonaws.com/123456789012/words"),
        "pf-sns-subscription-endpoint",
        _subscription("sqs", arn_of("Queue")),
    ),
    Case(
        "SNS-07",
        _subscription("email", "ops at example.com"),
        "pf-sns-subscription-endpoint",
        _subscription("email", "ops@example.com"),
    ),
    Case(
        "SQS-02",
        only("SQS::Queue", SqsManagedSseEnabled=True, KmsMasterKeyId="alias/words"),
        "pf-sqs-sse-exclusive",
        only("SQS::Queue", KmsMasterKeyId="alias/words"),
    ),
    Case("SQS-03", _queue_policy(arn_of("Queue")), "pf-sqs-queue-policy-queues", _queue_policy(ref("Queue"))),
    Case(
        "EFS-02",
        _files(ThroughputMode="bursting", **_MIB_S),
        "pf-efs-throughput-mode",
        _files(ThroughputMode="provisioned", **_MIB_S),
    ),
    Case(
        "EFS-05",
        _files(LifecyclePolicies=[{**_COLD, **_WARM}]),
        "pf-efs-lifecycle-policy",
        _files(LifecyclePolicies=[_COLD, _WARM]),
    ),
    Case(
        "EFS-07",
        _files_policy("arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/fs-000"),
        "pf-efs-file-system-policy",
        _files(FileSystemPolicy=statement(Principal={"AWS": "*"}, Action="elasticfilesystem:ClientMount")),
    ),
    *(
        Case(
            "S3-01",
            _bucket(BucketName=f"{prefix}lab-runs"),
            "pf-s3-bucket-name-reserved-prefix",
            _bucket(BucketName="lab-runs"),
        )
        for prefix in ("xn--", "sthree-", "amzn-s3-demo-")
    ),
    *(
        Case(
            "S3-02",
            _bucket(BucketName=f"lab-runs{suffix}"),
            "pf-s3-bucket-name-reserved-suffix",
            _bucket(BucketName="lab-runs"),
        )
        for suffix in ("-s3alias", "--ol-s3", "--x-s3", ".mrap", "--table-s3")
    ),
    Case("S3-04", _bucket(BucketName="10.0.0.7"), "pf-s3-bucket-name-ip-address", _bucket(BucketName="10.0.0.7.runs")),
    Case("S3-11", _encrypted("AES256"), "pf-s3-encryption-kms-key-with-aes256", _encrypted("aws:kms")),
    Case("S3-17", _expiring(30), "pf-s3-lifecycle-days-order", _expiring(31)),
    Case("IAM-01", _policy(220), "pf-iam-inline-policy-size", _policy(200)),
    Case(
        "IAM-11",
        _role(AssumeRolePolicyDocument=trust(Service="ec2.example.com")),
        "pf-iam-trust-policy-service-principal",
        _role(),
    ),
    Case(
        "IAM-17",
        _role(PermissionsBoundary="arn:aws:iam::111122223333:role/boundary"),
        "pf-iam-permissions-boundary-policy-arn",
        _role(PermissionsBoundary="arn:aws:iam::111122223333:policy/boundary"),
    ),
    Case("KMS-03", _key("All — to the root"), "pf-kms-key-policy-charset", _key("All to the root")),
    Case(
        "KMS-05",
        _key(KeySpec="RSA_2048", KeyUsage="SIGN_VERIFY", EnableKeyRotation=True),
        "pf-kms-key-rotation",
        _key(EnableKeyRotation=True),
    ),
    Case(
        "SSM-05",
        only("SSM::Parameter", Type="String", Value="v", AllowedPattern="^[0-9]+$"),
        "pf-ssm-parameter-allowed-pattern",
        only("SSM::Parameter", Type="String", Value="7", AllowedPattern="^[0-9]+$"),
    ),
    Case("CF-08", _exports("lab-x", "lab-x"), "pf-cfn-export-name-duplicate", _exports("lab-x", "lab-y")),
)
