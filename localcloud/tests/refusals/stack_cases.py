"""Templates that AWS rejects while it creates a stack."""

from __future__ import annotations

from typing import Any, Final

from refusals.templates import (
    ACCOUNT,
    REGION,
    Case,
    Template,
    arn_of,
    group,
    launch_template,
    mixed,
    network,
    only,
    ref,
    resource,
    statement,
    template,
    trust,
)

_ELSEWHERE: Final = f"arn:aws:sns:eu-west-1:{ACCOUNT}:words"
_HERE: Final = f"arn:aws:sns:{REGION}:{ACCOUNT}:words"
_SEARCH: Final = "SEARCH('{AWS/EC2,InstanceId} MetricName=\"CPUUtilization\"', 'Average', 300)"
_IMAGE: Final = "ami-03cf127a"
"""An image in moto."""


def _twice(port: int) -> Template:
    """Return a security group with a rule for port 22, and a rule for `port` with another description."""
    ssh = {"GroupId": ref("Group"), "IpProtocol": "tcp", "CidrIp": "198.18.0.0/24"}
    rules: dict[str, Any] = {
        name: resource("EC2::SecurityGroupIngress", **ssh, FromPort=number, ToPort=number, Description=name)
        for name, number in (("One", 22), ("Other", port))
    }
    return network(**rules)


def _launched(**data: Any) -> Template:
    """Return a group without instances, from a launch template with this data."""
    return network(Launch=launch_template(**data), Workers=group())


def _group(**properties: Any) -> Template:
    return network(Launch=launch_template(), Workers=group(**properties))


def _notified(topic: str) -> Template:
    kinds = ["autoscaling:EC2_INSTANCE_LAUNCH_ERROR"]
    return _group(NotificationConfigurations=[{"TopicARN": topic, "NotificationTypes": kinds}])


def _rolling(**policy: Any) -> Template:
    made = _group(MaxSize="2")
    made["Resources"]["Workers"]["UpdatePolicy"] = {"AutoScalingRollingUpdate": policy}
    return made


def _interfaces(*devices: int) -> dict[str, Any]:
    """Return network interfaces with these device indexes. The last interface has a public address."""
    public = {"AssociatePublicIpAddress": True}
    listed = [{"DeviceIndex": device, "Groups": [ref("Group")]} for device in devices]
    return {"NetworkInterfaces": [*listed[:-1], {**listed[-1], **public}]}


def _with_profile(**named: Any) -> Template:
    role = resource("IAM::Role", AssumeRolePolicyDocument=trust(Service="ec2.amazonaws.com"))
    made = _launched(IamInstanceProfile=named)
    made["Resources"] |= {"Role": role, "Profile": resource("IAM::InstanceProfile", Roles=[ref("Role")])}
    return made


def _volume(**ebs: Any) -> Template:
    return _launched(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8, **ebs}}])


def _spot(protected: bool) -> Template:
    """Return a group with one spot instance, with or without termination protection."""
    policy = mixed([{"InstanceType": "t3.micro"}], OnDemandPercentageAboveBaseCapacity=0)
    return network(
        Launch=launch_template(ImageId=_IMAGE, DisableApiTermination=protected),
        Workers=group(MinSize="1", MixedInstancesPolicy=policy),
    )


def _alarm(action: str) -> Template:
    return only(
        "CloudWatch::Alarm",
        AlarmActions=[action],
        Namespace="AWS/EC2",
        MetricName="CPUUtilization",
        Statistic="Average",
        Period=300,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
    )


def _expression(text: str, *, stat: str = "Average", both: bool = False) -> Template:
    """Return an alarm on an expression over a metric with a statistic. `both`: the metric returns data too."""
    metric = {"Namespace": "AWS/EC2", "MetricName": "CPUUtilization"}
    return only(
        "CloudWatch::Alarm",
        Metrics=[
            {"Id": "a", "MetricStat": {"Metric": metric, "Period": 300, "Stat": stat}, "ReturnData": both},
            {"Id": "e", "Expression": text},
        ],
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
    )


def _mount(network_of_group: str) -> Template:
    """Return a mount target in the VPC, with a security group of this VPC or of another one."""
    more = {
        "Other": resource("EC2::VPC", CidrBlock="10.1.0.0/16"),
        "Foreign": resource("EC2::SecurityGroup", GroupDescription="foreign", VpcId=ref(network_of_group)),
        "Files": resource("EFS::FileSystem"),
    }
    given = {"FileSystemId": ref("Files"), "SubnetId": ref("A"), "SecurityGroups": [ref("Foreign")]}
    return network(**more, Target=resource("EFS::MountTarget", **given))


def _budget(*subscribers: tuple[str, str]) -> Template:
    who = [{"SubscriptionType": kind, "Address": address} for kind, address in subscribers]
    what = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80}
    limit = {"BudgetLimit": {"Amount": 10, "Unit": "USD"}, "BudgetType": "COST", "TimeUnit": "MONTHLY"}
    notified = [{"Notification": what, "Subscribers": who}]
    return only("Budgets::Budget", Budget=limit, NotificationsWithSubscribers=notified)


def _routes(*destinations: str) -> Template:
    routes: dict[str, Any] = {
        name: resource(
            "EC2::Route", RouteTableId=ref("Table"), DestinationCidrBlock=destination, GatewayId=ref("Gateway")
        )
        for name, destination in zip(("One", "Other"), destinations, strict=True)
    }
    for route in routes.values():
        route["DependsOn"] = "Attachment"
    return network(
        Gateway=resource("EC2::InternetGateway"),
        Attachment=resource("EC2::VPCGatewayAttachment", VpcId=ref("Vpc"), InternetGatewayId=ref("Gateway")),
        Table=resource("EC2::RouteTable", VpcId=ref("Vpc")),
        **routes,
    )


def _lustre(version: str, port: int = 988) -> Template:
    """Return a Lustre file system. Its security group allows one port from itself."""
    inside = {"GroupId": ref("Group"), "IpProtocol": "tcp", "FromPort": port, "ToPort": port}
    system = resource(
        "FSx::FileSystem",
        FileSystemType="LUSTRE",
        FileSystemTypeVersion=version,
        StorageCapacity=1200,
        SubnetIds=[ref("A")],
        SecurityGroupIds=[ref("Group")],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
    )
    return network(
        In=resource("EC2::SecurityGroupIngress", **inside, SourceSecurityGroupId=ref("Group")),
        System={**system, "DependsOn": "In"},
    )


def _role(**more: Any) -> Template:
    given = {"AssumeRolePolicyDocument": trust(Service="ec2.amazonaws.com"), **more}
    return only("IAM::Role", **given)


def _tagged(*keys: str) -> Template:
    return _role(Tags=[{"Key": key, "Value": "a"} for key in keys])


def _bucket(owner: str) -> Template:
    return only(
        "S3::Bucket",
        AccessControl="LogDeliveryWrite",
        OwnershipControls={"Rules": [{"ObjectOwnership": owner}]},
    )


def _noncurrent(days: int) -> Template:
    rule = {"Id": "old", "Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": days}}
    return only("S3::Bucket", LifecycleConfiguration={"Rules": [rule]})


def _topic_policy(action: str) -> Template:
    allowed = statement(Principal={"Service": "budgets.amazonaws.com"}, Action=action, Resource=ref("Words"))
    return template(
        Words=resource("SNS::Topic"),
        Policy=resource("SNS::TopicPolicy", Topics=[ref("Words")], PolicyDocument=allowed),
    )


def _exports(*names: str) -> Template:
    made = template(Words=resource("SNS::Topic"))
    made["Outputs"] = {
        name: {"Value": ref("Words"), "Export": {"Name": export}}
        for name, export in zip(("One", "Other"), names, strict=True)
    }
    return made


CASES: Final[tuple[Case[Template], ...]] = (
    Case("AS-16", _notified(_ELSEWHERE), "Invalid parameter: TopicArn", _notified(_HERE)),
    Case("AS-32", _rolling(PauseTime="PT90M"), "must be no greater than PT3600S seconds", _rolling(PauseTime="PT1H")),
    Case(
        "AS-33",
        _rolling(MinInstancesInService=2),
        "MinInstancesInService must be less than the autoscaling group's MaxSize",
        _rolling(MinInstancesInService=1),
    ),
    Case(
        "AS-35",
        _group(AutoScalingGroupName="lab:workers"),
        "ValidationError",
        _group(AutoScalingGroupName="lab-workers"),
    ),
    Case(
        "BUD-01",
        _budget(("SNS", _HERE), ("SNS", f"{_HERE}2")),
        "one notification can only have 1 subscribers with type of SNS",
        _budget(("SNS", _HERE), ("EMAIL", "a@example.com")),
    ),
    Case(
        "BUD-07",
        _budget(("EMAIL", "a@example.com"), ("EMAIL", "a@example.com")),
        "DuplicateRecordException",
        _budget(("EMAIL", "a@example.com"), ("EMAIL", "b@example.com")),
    ),
    Case(
        "CF-08",
        _exports("lab-x", "lab-x"),
        "The Outputs section contains duplicate Export names: [lab-x]. Specify a unique name for each export.",
        _exports("lab-x", "lab-y"),
    ),
    Case("CW-04", _expression("a + 1", both=True), "ValidationError", _expression("a + 1")),
    Case("CW-07", _expression(_SEARCH), "ValidationError", _expression("a * 2")),
    Case("CW-08", _expression("a + 1", stat="Avg"), "ValidationError", _expression("a + 1", stat="Maximum")),
    Case("CW-10", _alarm(f"arn:aws:sqs:{REGION}:{ACCOUNT}:words"), "ValidationError", _alarm(_HERE)),
    Case(
        "CW-11",
        _alarm(_ELSEWHERE),
        "Invalid region eu-west-1 specified. Only us-east-1 is supported.",
        _alarm(_HERE),
    ),
    Case("CW-13", _expression("a + b"), "ValidationError", _expression("a + 1")),
    Case("EC2-06", _twice(22), "InvalidPermission.Duplicate", _twice(23)),
    Case(
        "EC2-17",
        _routes("0.0.0.0/0", "0.0.0.0/0"),
        "RouteAlreadyExists",
        _routes("0.0.0.0/0", "198.18.0.0/16"),
    ),
    Case(
        "EC2-30",
        _volume(VolumeType="gp3", Iops=8000),
        "Iops to volume size ratio of 1000.000000 is too high; maximum is 500",
        _volume(VolumeType="gp3", Iops=4000),
    ),
    Case(
        "EC2-31",
        _volume(VolumeType="gp3", Iops=3000, Throughput=1000),
        "Throughput (MiBps) to iops ratio of 0.333333 is too high; maximum is 0.250000 MiBps per iops.",
        _volume(VolumeType="gp3", Iops=3000, Throughput=750),
    ),
    Case(
        "EC2-33",
        _volume(Encrypted=False, KmsKeyId="alias/lab"),
        "The parameter [KmsKeyId] requires the parameter Encrypted to be set.",
        _volume(Encrypted=True, KmsKeyId="alias/lab"),
    ),
    Case(
        "EC2-36",
        _launched(**_interfaces(1)),
        "can only be specified for the network interface with DeviceIndex 0",
        _launched(**_interfaces(0)),
    ),
    Case(
        "EC2-37",
        _launched(SecurityGroupIds=[ref("Group")], **_interfaces(0)),
        "Network interfaces and an instance-level security groups may not be specified on the same request",
        _launched(SecurityGroupIds=[ref("Group")]),
    ),
    Case(
        "EC2-38",
        _with_profile(Arn=arn_of("Profile"), Name=ref("Profile")),
        "The parameter 'iamInstanceProfile.name' may not be used in combination with 'iamInstanceProfile.arn'",
        _with_profile(Arn=arn_of("Profile")),
    ),
    Case("EC2-39", _spot(protected=True), "enable termination protection for Spot Instances", _spot(protected=False)),
    Case(
        "EC2-45",
        _launched(KeyName="nobodys-key"),
        "You must use a valid fully-formed launch template. The key pair 'nobodys-key' does not exist",
        _launched(),
    ),
    Case(
        "EC2-46",
        _launched(ImageId="ami-00000000000000000"),
        "The image id '[ami-00000000000000000]' does not exist",
        _launched(ImageId=_IMAGE),
    ),
    Case(
        "EC2-49",
        _launched(MetadataOptions={"HttpPutResponseHopLimit": 65}),
        "InvalidParameterValue",
        _launched(MetadataOptions={"HttpPutResponseHopLimit": 64}),
    ),
    Case(
        "EC2-60",
        _launched(IamInstanceProfile={"Name": "nobodys-profile"}),
        "Value (nobodys-profile) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        _with_profile(Name=ref("Profile")),
    ),
    Case("EFS-11", _mount("Other"), "SecurityGroupNotFound", _mount("Vpc")),
    Case("FSX-03", _lustre("2.15", port=989), "do not permit Lustre LNET network traffic on port 988", _lustre("2.15")),
    Case("FSX-09", _lustre("2.10"), "BadRequest", _lustre("2.12")),
    Case("IAM-19", _tagged("Team", "team"), "Duplicate tag keys found", _tagged("Team", "group")),
    Case(
        "S3-18",
        _bucket("BucketOwnerEnforced"),
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        _bucket("BucketOwnerPreferred"),
    ),
    Case("S3-20", _noncurrent(0), "InvalidArgument", _noncurrent(1)),
    Case(
        "SNS-01",
        _topic_policy("sns:*"),
        "Policy statement action out of service scope!",
        _topic_policy("sns:Publish"),
    ),
    Case(
        "SSM-04",
        only("SSM::Parameter", Name="lab/agent", Type="String", Value="v"),
        "Parameter name must be a fully qualified name.",
        only("SSM::Parameter", Name="/lab/agent", Type="String", Value="v"),
    ),
)
