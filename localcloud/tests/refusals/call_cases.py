"""Requests that AWS rejects when an operation is called."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any, Final

from refusals.templates import ACCOUNT, Calls, Case, Client, statement, trust

_NOBODY: Final = f"arn:aws:iam::{ACCOUNT}:role/nobody"
_RSA: Final = (
    b"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCqrD9+YPo3MpZMYAjbQOr3Q9ynDxSfbT4nRzfDgLrlDvQsqgmVxzZrDw3PPvZLO5VAhk3b"
    b"PTe5VxRUxe+QHU8Wab0JTE5ge/yW3fQdQ0cOZzqmF6xOVoYtlBQrvhH0vKcCvI3wmmGhLlO5nTKYxtw3O9Zb6n2Jn9bKGvd5JYIMUw== one"
)
_ECDSA: Final = (
    b"ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBHkbUC8iEk1nE2l1bYzHYKKdQvFUg4nD9WMu"
    b"NzRZRM2iDxYIKRbOZf2m0z9k0j2JmnoxWm2SjAlhV7jVFZ4LyKE= one"
)


def call(service: str, method: str, **parameters: Any) -> Calls:
    """Return one call of a service."""
    return lambda client: getattr(client(service), method)(**parameters)


def _parameters(count: int) -> Calls:
    """Return a call that asks for `count` parameters."""
    return call("ssm", "get_parameters", Names=[f"/lab/p{n}" for n in range(count)])


def _filter(values: int) -> Calls:
    given = [f"i-{number:08x}" for number in range(values)]
    return call("ec2", "describe_instances", Filters=[{"Name": "instance-id", "Values": given}])


def _key(name: str, material: bytes = _RSA) -> Calls:
    def imported(client: Client) -> None:
        client("ec2").import_key_pair(KeyName=name, PublicKeyMaterial=material)
        client("ec2").delete_key_pair(KeyName=name)

    return imported


def _template(client: Client, name: str, **data: Any) -> dict[str, str]:
    """Create a launch template; return the parameter LaunchTemplate of a group."""
    made = client("ec2").create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)["LaunchTemplate"]
    return {"LaunchTemplateId": made["LaunchTemplateId"], "Version": "1"}


def _group(*names: str, metrics: Sequence[str] = (), **data: Any) -> Calls:
    """Return calls that create and delete groups without instances, from a launch template with this data.

    `metrics` are collected for each group.
    """

    def made(client: Client) -> None:
        scaling = client("autoscaling")
        launched = _template(client, f"for-{'-'.join(names)}", InstanceType="t3.micro", **data)
        (subnet, *_) = client("ec2").describe_subnets()["Subnets"]
        for name in names:
            where = {"VPCZoneIdentifier": subnet["SubnetId"], "LaunchTemplate": launched}
            scaling.create_auto_scaling_group(AutoScalingGroupName=name, MinSize=0, MaxSize=1, **where)
            if metrics:
                scaling.enable_metrics_collection(AutoScalingGroupName=name, Granularity="1Minute", Metrics=metrics)
        for name in names:
            scaling.delete_auto_scaling_group(AutoScalingGroupName=name)

    return made


def _spot(kind: str) -> Calls:
    spot = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": kind}}
    return _group(f"spot-{kind}", InstanceMarketOptions=spot)


def _points(age: datetime.timedelta) -> Calls:
    def put(client: Client) -> None:
        moment = datetime.datetime.now(datetime.UTC) - age
        datum = {"MetricName": "loss", "Value": 1.0, "Timestamp": moment}
        client("cloudwatch").put_metric_data(Namespace="lab", MetricData=[datum])

    return put


def _statistics(period: int) -> Calls:
    end = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    span = {"StartTime": end - datetime.timedelta(hours=1), "EndTime": end}
    return call(
        "cloudwatch",
        "get_metric_statistics",
        Namespace="lab",
        MetricName="loss",
        Period=period,
        Statistics=["Sum"],
        **span,
    )


def _entries(most: int, *networks: str) -> Calls:
    """Return calls that allow a prefix list (`most` entries at most), then each network, in a new security group."""

    def authorized(client: Client) -> None:
        ec2 = client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        group = ec2.create_security_group(GroupName="lists", Description="lists", VpcId=vpc)["GroupId"]
        made = ec2.create_managed_prefix_list(PrefixListName="lab", MaxEntries=most, AddressFamily="IPv4")
        permission = {
            "IpProtocol": "tcp",
            "FromPort": 22,
            "ToPort": 22,
            "PrefixListIds": [{"PrefixListId": made["PrefixList"]["PrefixListId"]}],
        }
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[permission])
        for each in networks:
            ranges = {**permission, "PrefixListIds": [], "IpRanges": [{"CidrIp": each}]}
            ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[ranges])

    return authorized


def _inline(*lengths: int) -> Calls:
    """Return calls that add inline policies of about these lengths, without whitespace, to a role."""

    def put(client: Client) -> None:
        iam, name = client("iam"), f"long-{'-'.join(map(str, lengths))}"
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust(Service="ec2.amazonaws.com")))
        for number, length in enumerate(lengths):
            allowed = statement(Action="s3:GetObject", Resource="arn:aws:s3:::" + "b" * length)
            iam.put_role_policy(RoleName=name, PolicyName=f"p{number}", PolicyDocument=json.dumps(allowed))

    return put


def _keys(count: int) -> Calls:
    def deleted(client: Client) -> None:
        s3 = client("s3")
        s3.create_bucket(Bucket="lab-runs")
        s3.delete_objects(Bucket="lab-runs", Delete={"Objects": [{"Key": f"k{n}"} for n in range(count)]})

    return deleted


def _queues(*names: str) -> Calls:
    def made(client: Client) -> None:
        sqs = client("sqs")
        for name in names:
            sqs.delete_queue(QueueUrl=sqs.create_queue(QueueName=name)["QueueUrl"])

    return made


def _assume(exists: bool) -> Calls:
    def assumed(client: Client) -> None:
        if exists:
            iam, trusted = client("iam"), json.dumps(trust(Service="ec2.amazonaws.com"))
            iam.create_role(RoleName="node", AssumeRolePolicyDocument=trusted)
        arn = _NOBODY.replace("nobody", "node") if exists else _NOBODY
        client("sts").assume_role(RoleArn=arn, RoleSessionName="lab")

    return assumed


def _deletion(days: int) -> Calls:
    def scheduled(client: Client) -> None:
        kms = client("kms")
        kms.schedule_key_deletion(KeyId=kms.create_key()["KeyMetadata"]["KeyId"], PendingWindowInDays=days)

    return scheduled


def _lustre(deployment: str, **more: Any) -> Calls:
    def made(client: Client) -> None:
        (subnet, *_) = client("ec2").describe_subnets()["Subnets"]
        speed = {"PerUnitStorageThroughput": 125} if deployment == "PERSISTENT_2" else {}
        client("fsx").create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=1200,
            SubnetIds=[subnet["SubnetId"]],
            LustreConfiguration={"DeploymentType": deployment, **speed, **more},
        )

    return made


def _stack(body: str = "", tags: int = 0, name: str = "lab", key: str = "t") -> Calls:
    """Return calls that create and delete a stack, with this body and number of tags."""
    topic = json.dumps({"Resources": {"Words": {"Type": "AWS::SNS::Topic"}}})

    def made(client: Client) -> None:
        formation = client("cloudformation")
        given = [{"Key": f"{key}{number}", "Value": "v"} for number in range(tags)]
        stack = formation.create_stack(StackName=name, TemplateBody=body or topic, Tags=given)["StackId"]
        formation.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig={"Delay": 0.1})
        formation.delete_stack(StackName=stack)
        formation.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig={"Delay": 0.1})

    return made


def _padded(size: int) -> str:
    """Return the template of a topic with a size of `size` bytes."""
    body = json.dumps({"Description": "", "Resources": {"Words": {"Type": "AWS::SNS::Topic"}}})
    blanks = " " * (size - len(body))
    return body + blanks


def _change_set(*names: str) -> Calls:
    def made(client: Client) -> None:
        formation, body = client("cloudformation"), _padded(100)
        for name in names:
            formation.create_change_set(
                StackName=f"lab-{len(set(names))}", ChangeSetName=name, ChangeSetType="CREATE", TemplateBody=body
            )

    return made


def _kind_of_change_set(kind: str) -> Calls:
    return call(
        "cloudformation",
        "create_change_set",
        StackName="not-there",
        ChangeSetName="first",
        ChangeSetType=kind,
        TemplateBody=_padded(100),
    )


def _role(**more: Any) -> Calls:
    def made(client: Client) -> None:
        given = {"AssumeRolePolicyDocument": json.dumps(trust(Service="ec2.amazonaws.com")), **more}
        client("iam").create_role(RoleName="made", **given)
        client("iam").delete_role(RoleName="made")

    return made


def _long_trust(count: int) -> Calls:
    one = trust(Service="ec2.amazonaws.com")["Statement"]
    return _role(AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": one * count}))


def _policy_of_bucket(principal: str) -> Calls:
    def put(client: Client) -> None:
        client("s3").create_bucket(Bucket="lab-words")
        document = statement(Principal={"AWS": principal}, Action="s3:GetObject", Resource="arn:aws:s3:::lab-words/*")
        client("s3").put_bucket_policy(Bucket="lab-words", Policy=json.dumps(document))

    return put


def _policy_of_queue(principal: str) -> Calls:
    def made(client: Client) -> None:
        document = statement(Principal={"AWS": principal}, Action="sqs:SendMessage", Resource="*")
        client("sqs").create_queue(QueueName=f"lab-{len(principal)}", Attributes={"Policy": json.dumps(document)})

    return made


_ROOT: Final = f"arn:aws:iam::{ACCOUNT}:root"
_BOUNDARY: Final = "arn:aws:iam::aws:policy/AmazonEC2ReadOnlyAccess"


def _latest_console(instance_type: str) -> Calls:
    def read(client: Client) -> None:
        ec2 = client("ec2")
        (image, *_) = ec2.describe_images(Owners=["amazon"])["Images"]
        made = ec2.run_instances(ImageId=image["ImageId"], InstanceType=instance_type, MinCount=1, MaxCount=1)
        ids = [made["Instances"][0]["InstanceId"]]
        try:
            ec2.get_console_output(InstanceId=ids[0], Latest=True)
        finally:
            ec2.terminate_instances(InstanceIds=ids)

    return read


CASES: Final[tuple[Case[Calls], ...]] = (
    Case("AS-11", _spot("persistent"), "InvalidQueryParameter", _spot("one-time")),
    Case(
        "AS-14",
        _group("m1", metrics=["GroupHealthyInstances"]),
        "Valid metrics collection types are: [GroupMinSize, ",
        _group("m2", metrics=["GroupInServiceInstances"]),
    ),
    Case("AS-39", _group("g1", "g1"), "AlreadyExists", _group("g2", "g3")),
    Case(
        "AS-43",
        call("autoscaling", "describe_scaling_activities", MaxRecords=101),
        "ValidationError",
        call("autoscaling", "describe_scaling_activities", MaxRecords=100),
    ),
    Case(
        "CF-02", _stack(_padded(51_201)), "Member must have length less than or equal to 51200", _stack(_padded(51_200))
    ),
    Case("CF-17", _kind_of_change_set("UPDATE"), "Stack [not-there] does not exist", _kind_of_change_set("CREATE")),
    Case("CF-18", _change_set("one", "one"), "AlreadyExistsException", _change_set("one", "other")),
    Case("CF-25", _stack(tags=1, key="aws:"), "aws: prefixed tag key names", _stack(tags=1)),
    Case("CF-25", _stack(tags=51), "Member must have length less than or equal to 50", _stack(tags=50)),
    Case("CW-26", _statistics(45), "InvalidParameterValue", _statistics(60)),
    Case("CW-29", _points(datetime.timedelta(days=15)), "InvalidParameterValue", _points(datetime.timedelta(days=13))),
    Case("EC2-53", _key(" deepcdk"), "Invalid value ' deepcdk' for keyName. It should be trimmed", _key("deepcdk")),
    Case("EC2-54", _key("kind", _ECDSA), "InvalidKey.Format", _key("kind")),
    Case("EC2-95", _latest_console("t2.micro"), "UnsupportedOperation", _latest_console("t3.micro")),
    Case("EC2-57", _filter(201), "FilterLimitExceeded", _filter(200)),
    Case(
        "EC2-58",
        call("ec2", "describe_instances", InstanceIds=["i-0123456789abcdef0"]),
        "InvalidInstanceID.NotFound",
        call("ec2", "describe_instances"),
    ),
    Case(
        "EC2-59",
        call("ec2", "describe_instances", InstanceIds=["i-xyz"]),
        "InvalidInstanceID.Malformed",
        call("ec2", "describe_instances"),
    ),
    Case("IAM-01", _inline(6000, 6000), "Maximum policy size of 10240 bytes exceeded", _inline(6000, 4000)),
    Case("EC2-67", _entries(61), "RulesPerSecurityGroupLimitExceeded", _entries(60)),
    Case("EC2-67", _entries(60, "10.1.0.0/16"), "RulesPerSecurityGroupLimitExceeded", _entries(59, "10.1.0.0/16")),
    Case(
        "FSX-05",
        _lustre("PERSISTENT_2", ImportPath="s3://records"),
        "BadRequest",
        _lustre("PERSISTENT_1", ImportPath="s3://records", PerUnitStorageThroughput=50),
    ),
    Case("FSX-08", _lustre("SCRATCH_2", AutomaticBackupRetentionDays=7), "BadRequest", _lustre("SCRATCH_2")),
    Case(
        "IAM-18",
        _role(PermissionsBoundary=f"arn:aws:iam::{ACCOUNT}:policy/none"),
        "NoSuchEntity",
        _role(PermissionsBoundary=_BOUNDARY),
    ),
    Case("IAM-21", _long_trust(40), "Cannot exceed quota for ACLSizePerRole: 2048", _long_trust(4)),
    Case("IAM-23", _role(AssumeRolePolicyDocument=json.dumps(trust(AWS=_NOBODY))), "MalformedPolicyDocument", _role()),
    Case("KMS-08", _deletion(6), "Member must have value greater than or equal to 7", _deletion(7)),
    Case("S3-08", _policy_of_bucket(_NOBODY), "MalformedPolicy", _policy_of_bucket(_ROOT)),
    Case("S3-21", _keys(1001), "MalformedXML", _keys(1000)),
    Case("SQS-05", _policy_of_queue(_NOBODY), "InvalidAttributeValue", _policy_of_queue(_ROOT)),
    Case("SQS-07", _queues("words", "words"), "QueueDeletedRecently", _queues("one", "other")),
    Case("SSM-07", _parameters(11), "ValidationException", _parameters(10)),
    Case("STS-02", _assume(exists=False), "AccessDenied", _assume(exists=True)),
)
