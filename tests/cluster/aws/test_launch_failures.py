"""Failed launches: AWS's reason and the fix are shown, even if the group no longer exists."""

from __future__ import annotations

import datetime
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError

from cluster.aws.launch_failures import LaunchFailures, describe_missing, describe_since, last_failure, remedy
from tests.factories import make_instance, make_inventory, make_master_instance, make_stack

SINCE = datetime.datetime(2026, 11, 28, 12, tzinfo=datetime.UTC)
VERIFIED = (
    "Your account is currently being verified. Verification normally takes less than 2 hours. Until your account is "
    "verified, you may not be able to launch additional instances or create additional volumes."
)
VCPUS = (
    "You have requested more vCPU capacity than your current vCPU limit of 16 allows for the instance bucket that the "
    "specified instance type belongs to. Launching EC2 instance failed."
)


def activity(
    group: str, message: str, *, status: str = "Failed", after_s: int = 60, what: str = "Launching a new EC2 instance"
) -> dict[str, Any]:
    start = SINCE + datetime.timedelta(seconds=after_s)
    named = {"AutoScalingGroupName": group, "Description": what}
    return {**named, "StatusCode": status, "StatusMessage": message, "StartTime": start}


def aws_with(*activities: dict[str, Any]) -> mock.Mock:
    """Return a fake AWS with these activities, filtered as by DescribeScalingActivities."""

    def describe(*, AutoScalingGroupName: str = "", MaxRecords: int, **_: object) -> dict[str, Any]:
        found = [each for each in activities if AutoScalingGroupName in ("", each["AutoScalingGroupName"])]
        return {"Activities": found[:MaxRecords]}

    aws = mock.Mock()
    aws.client.return_value.describe_scaling_activities.side_effect = describe
    return aws


@pytest.mark.parametrize(
    ("message", "todo"),
    [
        (VERIFIED, "wait for the e-mail from AWS"),
        (
            "PendingVerification - Your request for accessing resources in this region is being validated, and you "
            "will not be able to launch additional resources in this region until the validation is complete.",
            "wait for the e-mail from AWS",
        ),
        (
            "The specified instance type is not eligible for Free Tier. For a list of Free Tier instance types, run "
            "'describe-instance-types' with the filter 'free-tier-eligible=true'. Launching EC2 instance failed.",
            "upgrade the account from the free plan",
        ),
        (
            "OptInRequired - In order to use this AWS Marketplace product you need to accept terms and subscribe.",
            "accept the terms",
        ),
        ("This account is currently blocked and not recognized as a valid account.", "ask AWS Support to unblock"),
        (VCPUS, "quota of vCPUs"),
        (f"Could not launch On-Demand Instances. VcpuLimitExceeded - {VCPUS}", "quota of vCPUs"),
        ("Max spot instance count exceeded. Launching EC2 instance failed.", "quota of spot vCPUs"),
        ("Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot", "quota of spot vCPUs"),
        (
            "We currently do not have sufficient c5.2xlarge capacity in the Availability Zone you requested "
            "(us-east-1a). Launching EC2 instance failed.",
            "worker_alternatives",
        ),
        ("Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity", "worker_alternatives"),
        (
            "InsufficientInstanceCapacity - There is no Spot capacity available that matches your request.",
            "worker_alternatives",
        ),
        (
            "InvalidFleetConfiguration - Your requested instance type (p3.8xlarge) is not supported in your requested "
            "Availability Zone (us-east-2c).",
            "`fab doctor`",
        ),
        ("The requested configuration is currently not supported.", "`fab doctor`"),
        ("InvalidParameterCombination - The parameters do not fit.", "`fab doctor`"),
        ("Client.InternalError: Client error on launch", "kms_key"),
        ("You are not authorized to perform this operation.", "administrators"),
        ("InsufficientFreeAddressesInSubnet - There are not enough free addresses in subnet", "larger subnets"),
    ],
)
def test_known_launch_failures_have_advice(message: str, todo: str) -> None:
    """Sources: cloudlaunch #150, skyplane #799, attack_range #1302, sagemaker-examples #1858, aws-ethereum-miner #23.

    Only the group's activities contain the reason (kops #3606).
    """
    assert todo in remedy(message)


def test_unknown_reason_is_shown_without_advice() -> None:
    assert remedy("The Moon is in the wrong phase") == ""
    failures = LaunchFailures(aws_with(activity("workers", "The Moon is in the wrong phase")), "workers")
    assert failures.explain(0) == "; EC2 Auto Scaling retries after: The Moon is in the wrong phase"


def test_failed_termination_is_not_a_failed_launch() -> None:
    refused = activity("deepcdk-WorkerGroup-1", "The instance is protected", what="Terminating EC2 instance: i-1")
    assert last_failure(aws_with(refused), "deepcdk-WorkerGroup-1") == ""
    assert describe_since(aws_with(refused), "deepcdk", SINCE) == []
    earlier = activity("deepcdk-WorkerGroup-1", VCPUS)
    assert last_failure(aws_with(refused, earlier), "deepcdk-WorkerGroup-1") == VCPUS


def test_group_is_polled_every_ten_seconds() -> None:
    aws = aws_with(activity("workers", VERIFIED))
    failures = LaunchFailures(aws, "workers")
    explained = [failures.explain(waited_s) for waited_s in (0.0, 1.0, 9.0, 10.0)]
    assert len(set(explained)) == 1
    assert explained[0].endswith(
        "; do: wait for the e-mail from AWS, which can take some hours; if no e-mail arrives, ask AWS Support"
    )
    assert aws.client.return_value.describe_scaling_activities.call_count == 2


def test_only_missing_nodes_of_groups_are_explained() -> None:
    stack = make_stack()
    aws = aws_with(activity(stack.master_group, VERIFIED), activity(stack.worker_group, VCPUS))
    complete = make_inventory(2, instances=(make_master_instance(), make_instance(1), make_instance(2)))
    assert describe_missing(aws, complete) == []
    lines = describe_missing(aws, make_inventory(2, instances=()))
    assert [line.partition(" cannot launch an instance: ")[0] for line in lines] == [
        stack.master_group, stack.worker_group,
    ]  # fmt: skip
    assert all("; do: " in line for line in lines)


def test_group_whose_last_activity_succeeded_is_not_explained() -> None:
    stack = make_stack()
    aws = aws_with(*(activity(group, "", status="Successful") for group in (stack.master_group, stack.worker_group)))
    assert describe_missing(aws, make_inventory(2, instances=())) == []


def test_failures_of_the_stacks_groups_since_the_deployment_began_are_listed_once() -> None:
    mine = "lab-WorkerGroup-1A"
    aws = aws_with(
        activity(mine, VCPUS), activity(mine, VCPUS), activity("lab-MasterGroup-2B", VERIFIED),
        activity("lab-two-WorkerGroup-3C", VERIFIED), activity("labx", VERIFIED), activity(mine, VERIFIED, after_s=-1),
    )  # fmt: skip
    lines = describe_since(aws, "lab", SINCE)
    assert [line.partition(" ")[0] for line in lines] == [mine, "lab-MasterGroup-2B"]
    (call,) = aws.client.return_value.describe_scaling_activities.call_args_list
    assert call.kwargs["IncludeDeletedGroups"] is True


def test_without_permission_for_activities_there_is_no_explanation() -> None:
    aws = mock.Mock()
    refused = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeScalingActivities")
    aws.client.return_value.describe_scaling_activities.side_effect = refused
    assert (describe_since(aws, "lab", SINCE), describe_missing(aws, make_inventory(2, instances=()))) == ([], [])
