"""The catalogue of what AWS refuses and linters mostly do not: each entry is refused in a test, or why it is not."""

from __future__ import annotations

from typing import Final

ENTRIES: Final = {
    "EC2-01": (
        "a security group's rule, Description: only a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*: no apostrophe, no "
        "quotes, nothing beyond ASCII"
    ),
    "EC2-04": "EC2::SecurityGroup name, given or made out of the stack's: must not begin with sg-",
    "EC2-05": "EC2::SecurityGroup.GroupName: default is reserved",
    "EC2-06": "EC2::SecurityGroupIngress: the same protocol, ports and source may be in a group once",
    "EC2-07": (
        "EC2::SecurityGroupIngress, standalone: FromPort must not exceed ToPort; TCP and UDP ports lie in 0-65535"
    ),
    "EC2-67": (
        "EC2::SecurityGroupIngress from a prefix list: a prefix list counts with its MaxEntries, full or "
        "empty, against the same 60"
    ),
    "EC2-12": "EC2::VPC.CidrBlock: nothing within 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4",
    "EC2-17": "EC2::Route: one route for a destination in a table",
    "EC2-21": "EC2::VPCEndpoint, Interface: PrivateDnsEnabled wants both DNS attributes of the VPC",
    "EC2-23": "EC2::VPCEndpoint, Interface: one subnet for each zone",
    "EC2-24": "EC2::VPCEndpoint, Gateway: S3 and DynamoDB alone have gateways",
    "EC2-26": "EC2::FlowLog: cloud-watch-logs wants LogGroupName and DeliverLogsPermissionArn, s3 wants LogDestination",
    "EC2-29": "EC2::LaunchTemplate UserData: 16,384 bytes before base64",
    "EC2-30": "EC2::LaunchTemplate BlockDeviceMappings: gp3: 500 IOPS for each GiB at most",
    "EC2-31": "EC2::LaunchTemplate BlockDeviceMappings: gp3: 0.25 MiB/s for each of the IOPS at most",
    "EC2-33": "EC2::LaunchTemplate BlockDeviceMappings: KmsKeyId wants Encrypted: true",
    "EC2-36": (
        "EC2::LaunchTemplate NetworkInterfaces: AssociatePublicIpAddress at DeviceIndex 0 alone; an interface "
        "at 0 there must be"
    ),
    "EC2-37": "EC2::LaunchTemplate: SecurityGroupIds and NetworkInterfaces exclude each other",
    "EC2-38": "EC2::LaunchTemplate IamInstanceProfile: Arn or Name, not both",
    "EC2-39": (
        "EC2::LaunchTemplate DisableApiTermination: termination protection cannot be switched on for spot instances"
    ),
    "EC2-43": "EC2::LaunchTemplate NetworkInterfaces: the primary interface must not be efa-only",
    "EC2-45": "EC2::LaunchTemplate KeyName: the key pair must exist in the region",
    "EC2-46": "EC2::LaunchTemplate ImageId: the image must exist and be seen by the account",
    "EC2-47": "tags of EC2 resources: keys that begin with aws: are reserved",
    "EC2-49": "EC2::LaunchTemplate MetadataOptions: HttpPutResponseHopLimit is 1 to 64",
    "EC2-53": "ec2:ImportKeyPair: no blank at the name's ends",
    "EC2-54": "ec2:ImportKeyPair: RSA and ED25519 alone; no ECDSA, no DSA, no sk- keys",
    "EC2-57": "ec2:Describe*: 200 filter values in one call",
    "EC2-58": "ec2:DescribeInstances: one id that is unknown, or not yet known, fails the whole call",
    "EC2-59": "ec2:DescribeInstances: an id of the wrong form is another error than one that is gone",
    "EC2-60": "EC2::LaunchTemplate IamInstanceProfile: the profile must exist, and be known to EC2",
    "AS-39": "autoscaling:CreateAutoScalingGroup: names are unique in account and region",
    "AS-05": "AutoScaling::AutoScalingGroup Overrides: a type once",
    "AS-07": "AutoScaling::AutoScalingGroup Overrides: WeightedCapacity on all or on none",
    "AS-08": "AutoScaling::AutoScalingGroup InstancesDistribution: SpotInstancePools with lowest-price alone",
    "AS-09": "AutoScaling::AutoScalingGroup InstancesDistribution: OnDemandPercentageAboveBaseCapacity is 0 to 100",
    "AS-11": "EC2::LaunchTemplate InstanceMarketOptions in a group: spot in a group is one-time, without a duration",
    "AS-12": "AutoScaling::WarmPool: none for a group with spot, or with weights",
    "AS-14": "AutoScaling::AutoScalingGroup MetricsCollection: metrics out of the published list",
    "AS-15": "AutoScaling::AutoScalingGroup NotificationConfigurations: types out of the published five",
    "AS-16": "AutoScaling::AutoScalingGroup NotificationConfigurations: the topic lies in the group's region",
    "AS-19": "AutoScaling::LifecycleHook: RoleARN and NotificationTargetARN come together",
    "AS-21": "AutoScaling::ScalingPolicy StepAdjustments: no overlaps",
    "AS-22": "AutoScaling::ScalingPolicy StepAdjustments: steps above zero must go on to infinity",
    "AS-28": "AutoScaling::ScalingPolicy: MinAdjustmentMagnitude with PercentChangeInCapacity alone",
    "AS-30": "AutoScaling::AutoScalingGroup Tags: 50 tags of one's own",
    "AS-31": "AutoScaling::AutoScalingGroup: AvailabilityZones, where given, must be those of the subnets",
    "AS-32": "UpdatePolicy.AutoScalingRollingUpdate.PauseTime: PT1H at most",
    "AS-33": "UpdatePolicy.AutoScalingRollingUpdate: MinInstancesInService below the group's MaxSize",
    "AS-35": "AutoScaling::AutoScalingGroup name: no colon; ASCII 33 to 126",
    "AS-43": "autoscaling:DescribeScalingActivities and others: MaxRecords is 100 at most",
    "CW-04": "CloudWatch::Alarm Metrics: exactly one returns data; absent means true",
    "CW-06": "CloudWatch::Alarm Metrics: 10 MetricStats at most (and 10 expressions)",
    "CW-07": "CloudWatch::Alarm Metrics: no SEARCH",
    "CW-08": "CloudWatch::Alarm MetricStat.Stat: a statistic of CloudWatch: Average, not Avg",
    "CW-10": "CloudWatch::Alarm actions: only services that alarms can call (SNS, Auto Scaling, EC2, SSM, Lambda)",
    "CW-11": "CloudWatch::Alarm actions: the action lies in the alarm's region",
    "CW-13": "CloudWatch::Alarm Metrics: an expression names ids that are there",
    "CW-19": "CloudWatch::Dashboard body: x is 0 to 23, width 1 to 24",
    "CW-21": "CloudWatch::Dashboard body: period: 1, 5, 10, 20, 30 or a multiple of 60",
    "CW-26": "cloudwatch:GetMetricStatistics: period is 1, 5, 10, 30 or a multiple of 60",
    "CW-29": "cloudwatch:PutMetricData: timestamps from two weeks ago to two hours ahead",
    "LOG-05": "Logs::LogGroup LogGroupName: a group that was retained stays, and its name with it",
    "SNS-01": "SNS::TopicPolicy: only the actions of topics; sns:* is refused",
    "SNS-04": "SNS::Subscription: the endpoint fits the protocol: an ARN for sqs",
    "SNS-07": "SNS::Subscription email: an e-mail address",
    "SQS-02": "SQS::Queue: SSE by SQS or by KMS",
    "SQS-03": "SQS::QueuePolicy Queues: URLs, not ARNs",
    "SQS-05": "SQS::QueuePolicy: a principal by ARN must exist (also: a role made seconds ago)",
    "SQS-07": "sqs:CreateQueue: not within 60 s after the deletion of a queue of that name",
    "BUD-01": "Budgets::Budget Subscribers: one SNS subscriber for a notification",
    "BUD-06": "Budgets::Budget Subscribers: an address of type EMAIL is an e-mail address",
    "BUD-07": "Budgets::Budget Subscribers: an address once in a notification",
    "BUD-08": (
        "Budgets::Budget, update: other subscribers replace the budget, which fails under a BudgetName of one's own"
    ),
    "EFS-02": "EFS::FileSystem: ProvisionedThroughputInMibps with provisioned alone",
    "EFS-05": "EFS::FileSystem LifecyclePolicies: one transition in an object",
    "EFS-07": "EFS::FileSystem FileSystemPolicy: resource, where given, is this file system",
    "EFS-10": "EFS::MountTarget SecurityGroups: five at most",
    "EFS-11": "EFS::MountTarget: all in one VPC, and the groups in it too",
    "EFS-13": "EFS::FileSystem, update: the throughput mode, or less provisioned throughput, once in 24 h",
    "FSX-01": "FSx::FileSystem StorageCapacity: SCRATCH_2 and PERSISTENT on SSD: 1200 or a multiple of 2400",
    "FSX-02": (
        "LustreConfiguration.PerUnitStorageThroughput: PERSISTENT_1 has 50, 100, 200, PERSISTENT_2 125, 250, 500, 1000"
    ),
    "FSX-03": "FSx::FileSystem SecurityGroupIds: the groups must let LNET in from themselves, port 988",
    "FSX-05": "LustreConfiguration.ImportPath: not with PERSISTENT_2, which has data repository associations",
    "FSX-08": "LustreConfiguration backups: not with SCRATCH, not for a file system linked to S3",
    "FSX-09": "FSx::FileSystem FileSystemTypeVersion: PERSISTENT_2 wants 2.12 or 2.15",
    "S3-01": "S3::Bucket name, given or made out of the stack's: must not begin with xn--, sthree-, amzn-s3-demo-",
    "S3-02": "S3::Bucket name: must not end with -s3alias, --ol-s3, --x-s3, .mrap, --table-s3",
    "S3-04": "S3::Bucket name: not like an IP address",
    "S3-08": "S3::BucketPolicy: a principal by ARN must exist",
    "S3-11": "S3::Bucket BucketEncryption: KMSMasterKeyID with aws:kms alone",
    "S3-20": "S3::Bucket LifecycleConfiguration: NoncurrentDays are positive",
    "S3-17": "S3::Bucket LifecycleConfiguration: the expiration comes after every transition; Glacier 30 days after IA",
    "S3-18": "S3::Bucket AccessControl: no ACL with BucketOwnerEnforced, which is the default",
    "S3-21": "s3:DeleteObjects: 1,000 keys in a request",
    "S3-23": "S3::Bucket, deletion: only when empty, versions and delete markers included",
    "S3-24": "s3:CreateBucket: a name is free again only some time after a deletion",
    "IAM-01": "IAM::Policy: inline policies of a role together: 10,240 characters without blanks",
    "IAM-11": "IAM::Role trust: service principals lie under amazonaws.com",
    "IAM-17": "IAM::Role PermissionsBoundary: the ARN of a policy",
    "IAM-18": "IAM::Role PermissionsBoundary: the policy must exist",
    "IAM-19": "IAM::Role Tags: keys that differ by case alone are the same",
    "IAM-21": "IAM::Role trust: 2,048 characters without blanks (by default)",
    "IAM-23": "IAM::Role trust: a principal by ARN must exist",
    "STS-02": "sts:AssumeRole: the role must exist and trust the caller",
    "KMS-03": "KMS::Key KeyPolicy: tab, LF, CR and U+0020 to U+00FF",
    "KMS-05": "KMS::Key: EnableKeyRotation on symmetric keys alone",
    "KMS-08": "kms:ScheduleKeyDeletion; PendingWindowInDays: 7 to 30 days",
    "SSM-04": "SSM::Parameter Name: with a slash in it, it begins with one",
    "SSM-05": "SSM::Parameter: the value matches AllowedPattern",
    "SSM-07": "ssm:GetParameters: 10 names",
    "SSM-09": "ssm:StartSession: the agent must have registered, and its role must allow it",
    "CF-02": "cloudformation:CreateStack TemplateBody: 51,200 bytes inline, 1 MB from S3",
    "CF-08": "Outputs.Export.Name: once in a template",
    "CF-21": "Outputs.Export.Name: once in account and region",
    "CF-23": "cloudformation:DeleteStack: not while another stack imports from it",
    "CF-17": "cloudformation:CreateChangeSet: CREATE for a stack that is not there yet, UPDATE for one that is",
    "CF-18": "cloudformation:CreateChangeSet: a name once for a stack",
    "CF-24": "update that replaces a resource under a name of one's own: refused",
    "CF-25": "cloudformation:CreateStack Tags: 50 at most; none that begins with aws:",
    "CF-29": "cloudformation:UpdateStack, CreateChangeSet: a stack in ROLLBACK_COMPLETE can only be deleted",
    "CF-30": "deletion of groups, subnets, VPC: not while an interface or another group uses them",
}
"""Type or call, and its rule, by id."""

ELSEWHERE: Final[dict[str, str]] = {
    "EC2-54": (
        "tests/cluster/deploy/test_key_pair.py::"
        "test_a_key_of_a_kind_that_ec2_does_not_import_is_refused_before_the_call"
    ),
    "EC2-58": (
        "tests/cluster/aws/test_inventory.py::test_an_instance_that_only_its_group_knows_hides_none_of_the_others"
    ),
    "EC2-67": (
        "tests/cluster/doctor/test_firewall.py::test_a_list_counts_with_its_most_entries_beside_a_network_and_the_ranks"
    ),
    "IAM-18": (
        "tests/cluster/doctor/test_existing_resources.py::test_a_permissions_boundary_must_exist_in_the_account"
    ),
    "BUD-08": (
        "tests/refusals/cloud/test_states.py::test_other_subscribers_are_another_budget_which_a_name_of_its_own_forbids"
    ),
    "CF-21": ("tests/refusals/cloud/test_states.py::test_an_export_has_a_name_once_in_account_and_region"),
    "CF-23": ("tests/refusals/cloud/test_states.py::test_an_export_that_is_in_use_is_not_deleted"),
    "CF-24": ("tests/refusals/cloud/test_states.py::test_a_resource_with_a_name_of_its_own_is_not_replaced"),
    "CF-29": ("tests/refusals/cloud/test_states.py::test_a_stack_that_was_rolled_back_can_only_be_deleted"),
    "CF-30": ("tests/refusals/cloud/test_states.py::test_a_group_of_an_interface_is_not_deleted"),
    "EFS-13": ("tests/refusals/cloud/test_states.py::test_a_throughput_mode_is_changed_once_in_a_day"),
    "LOG-05": ("tests/refusals/cloud/test_states.py::test_the_name_of_a_log_group_that_was_retained_is_taken"),
    "S3-23": ("tests/refusals/cloud/test_states.py::test_a_bucket_with_a_delete_marker_is_not_deleted"),
    "SSM-09": ("tests/localcloud/api/test_session_manager.py::test_a_session_that_cannot_be_is_refused_with_awss_code"),
}
"""Entries about time or the state of an account, each with the test that proves what the module concerned does."""

NOT_MET: Final[dict[str, str]] = {
    "EC2-21": (
        "our VPCs have both attributes, which tests/stacks/test_network.py holds; the embedded cloud refuses interface "
        "endpoints by name"
    ),
    "EC2-43": (
        "the embedded cloud refuses interface types of EFA by name; the layout of our interfaces is tested in stacks/"
    ),
    "S3-24": ("AWS does not state after how long a name is free again; our buckets have names with a random part"),
}
"""Entries that nothing of ours can meet, or that nothing here can refuse, and why."""
