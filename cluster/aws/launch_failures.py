"""Failed launches in the cluster's Auto Scaling groups: AWS's reason, and what to do about it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from cluster.aws.errors import aws_errors
from cluster.errors import AwsError
from stacks.config import MASTER

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import ActivityTypeDef

    from cluster.aws.client import Aws
    from cluster.aws.inventory import Inventory

ACTIVITY_POLL_S: Final = 10.0
"""Seconds between two requests for the reason why a group lacks instances."""
_MAX_RECORDS: Final = 100
_QUOTAS: Final = "https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
_REMEDIES: Final = tuple(
    (re.compile(words, re.IGNORECASE), todo)
    for words, todo in (
        (
            r"PendingVerification|being verified|is being validated",
            "wait for the e-mail from AWS, which can take some hours; if no e-mail arrives, ask AWS Support",
        ),
        (
            r"eligible for Free Tier",
            "upgrade the account from the free plan to a paid plan in the Billing console; the free plan has no "
            "other instance types",
        ),
        (
            r"OptInRequired|accept terms|not subscribed",
            "accept the terms at the address in the message, or complete the account's registration in the AWS console",
        ),
        (r"\bBlocked\b|currently blocked|AccountProblem", "ask AWS Support to unblock the account"),
        (
            r"MaxSpotInstanceCount|Max spot instance count",
            f"request a larger quota of spot vCPUs ({_QUOTAS}), set spot = false, or `fab scale` to fewer nodes",
        ),
        (
            r"VcpuLimit|vCPU limit|InstanceLimitExceeded|current instance limit",
            f"request a larger quota of vCPUs ({_QUOTAS}), or `fab scale` to fewer nodes",
        ),
        (r"VolumeLimit|volume storage limit|MaxIOPSLimit", f"request a larger quota of EBS volumes ({_QUOTAS})"),
        (
            r"ReservationCapacityExceeded|capacity reservation",
            "`fab scale` to the number of nodes that the capacity reservation has room for",
        ),
        (
            r"InsufficientInstanceCapacity|UnfulfillableCapacity|sufficient .*capacity|no (?:\w+ )*capacity",
            "wait, because AWS's capacity changes within minutes or hours; or set more types in worker_alternatives, "
            "other zones or another region, and run `fab up`",
        ),
        (
            r"not supported|InvalidParameterCombination|InvalidFleetConfiguration",
            "compare types, zones and images with `fab doctor`; correct cdk.json, and run `fab up`",
        ),
        (r"InsufficientFreeAddresses|free addresses", "set larger subnets, or terminate unused resources in them"),
        (
            r"KMS|InternalError: Client error on launch",
            "correct the policy of kms_key as in docs/storage.md, or leave kms_key empty",
        ),
        (
            r"service-linked role",
            "create the role once: `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`",
        ),
        (
            r"UnauthorizedOperation|not authorized|AccessDenied",
            "a policy of the organization or a permissions boundary denies the launch; ask the administrators of the "
            "account",
        ),
    )
)
"""What to do, by words in the message of a scaling activity, which contains EC2's error code or text. The first match
is used (EC2 Auto Scaling user guide, "Troubleshoot issues in Amazon EC2 Auto Scaling"; EC2 API, "Error codes").
"""


def remedy(message: str) -> str:
    """Return what to do about a launch that failed with this message; "" if that is unknown."""
    return next((todo for words, todo in _REMEDIES if words.search(message)), "")


class LaunchFailures:
    """Explain why a group lacks instances while a task waits for them. AWS is asked every ACTIVITY_POLL_S seconds."""

    def __init__(self, aws: Aws, group: str) -> None:
        self._aws, self._group = aws, group
        self._ask_at_s, self._explanation = 0.0, ""

    def explain(self, waited_s: float) -> str:
        """Return the end of a sentence, which starts with `; `, about the group's last launch if it failed; ""
        otherwise, or if AWS does not answer.

        `waited_s` is how long the task has waited. Between two requests, the last text is returned again.
        """
        if waited_s >= self._ask_at_s:
            self._ask_at_s = waited_s + ACTIVITY_POLL_S
            failure = last_failure(self._aws, self._group)
            self._explanation = f"; EC2 Auto Scaling retries after: {_with_remedy(failure)}" if failure else ""
        return self._explanation


def last_failure(aws: Aws, group: str) -> str:
    """Return the message of a group's last launch if it failed; "" otherwise, or if AWS does not answer."""
    try:
        last = next(filter(_is_launch, _last_activities(aws, group, _MAX_RECORDS)), None)
    except AwsError:
        return ""
    return last.get("StatusMessage", "") if last is not None and last["StatusCode"] == "Failed" else ""


def last_activity(aws: Aws, group: str) -> ActivityTypeDef | None:
    """Return the last activity of a group; None if there is none. Raises AwsError."""
    return next(iter(_last_activities(aws, group, 1)), None)


def _last_activities(aws: Aws, group: str, count: int) -> list[ActivityTypeDef]:
    """Return the last `count` activities of a group, newest first. Raises AwsError."""
    with aws_errors(f"reading the activities of {group}"):
        return aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group, MaxRecords=count)[
            "Activities"
        ]


def _is_launch(activity: ActivityTypeDef) -> bool:
    """Return whether an activity launches an instance. Other activities terminate or move one."""
    return activity.get("Description", "").startswith("Launching")


def describe_missing(aws: Aws, found: Inventory) -> list[str]:
    """Return why nodes of a cluster are missing and what to do: a line for each group whose last launch failed.

    Groups without missing nodes are left out, and groups about which AWS does not answer.
    """
    stack = found.stack
    has_master = bool(found.unlisted_masters) or any(each.role == MASTER for each in found.instances)
    groups = [] if has_master else [stack.master_group]
    groups += [stack.worker_group] if len(found.workers) < found.desired_workers else []
    return _lines((group, failure) for group in groups if (failure := last_failure(aws, group)))


def describe_since(aws: Aws, stack: str, since: datetime.datetime) -> list[str]:
    """Return why launches in a stack's groups have failed since then and what to do: a line for each group and reason.

    Deleted groups are included. Only the last _MAX_RECORDS activities of the account's groups are searched. Returns []
    if AWS does not answer.
    """
    try:
        with aws_errors(f"reading the activities of the groups of {stack}"):
            activities = aws.client("autoscaling").describe_scaling_activities(
                IncludeDeletedGroups=True, MaxRecords=_MAX_RECORDS
            )["Activities"]
    except AwsError:
        return []
    # CloudFormation names a group by its stack and its logical id.
    own = re.compile(rf"{re.escape(stack)}-(?:Master|Worker)Group-")
    return _lines(
        (each["AutoScalingGroupName"], each.get("StatusMessage", ""))
        for each in activities
        if own.match(each["AutoScalingGroupName"])
        and _is_launch(each)
        and each["StatusCode"] == "Failed"
        and each["StartTime"] >= since
    )


def _lines(failures: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each different pair of group and message, with what to do."""
    return [f"{group} cannot launch an instance: {_with_remedy(each)}" for group, each in dict.fromkeys(failures)]


def _with_remedy(message: str) -> str:
    what = remedy(message)
    return f"{message}; do: {what}" if what else message
