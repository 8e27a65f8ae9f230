"""The deployed stack: its status, outputs and template, as CloudFormation reports them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from cluster.aws.client import Aws, IgnoredCodes
from cluster.aws.errors import aws_errors
from cluster.errors import AwsError, DeepcdkError, NoStackError
from stacks.config import Output
from stacks.config_keys.network import SSH_PORT_OPEN

DELETING: Final = "DELETE_IN_PROGRESS"
"""Status of a stack that is being destroyed."""


class BeingDestroyedError(DeepcdkError):
    """Report that the cluster is being destroyed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"stack {name} is being destroyed, by `fab down` on this machine or another",
            where=f"CloudFormation ({DELETING})",
            remedy="wait until it is deleted (`fab status`), then deploy it again with `fab up`",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack:
    """The deployed stack and its outputs."""

    name: str
    status: str
    """CloudFormation's status, such as CREATE_COMPLETE."""
    account: str
    """Id of its AWS account, 12 digits."""
    master_group: str
    worker_group: str
    efs_mount: str
    bucket: str
    login_user: str
    max_workers: int
    ssh_access: str = SSH_PORT_OPEN
    """How the master is reached: `port` or `session-manager`."""
    stop_policy: str = ""
    """ARN of the scaling policy that terminates all workers."""
    topics: tuple[str, ...] = ()
    """ARNs of the topics that the cluster's alarms notify. The master may publish to them."""
    scratch_mount: str = ""
    """Directory where the workers mount their instance store; "" if they do not."""

    @property
    def runs_root(self) -> str:
        """Return the directory of all runs, on the nodes."""
        return f"{self.efs_mount}/runs"

    @property
    def payloads_root(self) -> str:
        """Return the directory of the pushed trees, on the nodes."""
        return f"{self.efs_mount}/payloads"


def parse_stack(description: Mapping[str, Any]) -> Stack:
    """Parse one entry of DescribeStacks.

    Raises AwsError if an output is missing or invalid. The remedy depends on the stack's status.
    """
    outputs = {o["OutputKey"]: o.get("OutputValue", "") for o in description.get("Outputs", [])}
    name, status = description["StackName"], description["StackStatus"]
    wanted = (
        Output.MASTER_GROUP,
        Output.WORKER_GROUP,
        Output.EFS_MOUNT,
        Output.BUCKET,
        Output.LOGIN_USER,
        Output.MAX_WORKERS,
    )
    missing = [key for key in wanted if not outputs.get(key)]
    if missing or not outputs[Output.MAX_WORKERS].isdecimal():
        raise AwsError(
            f"stack {name} ({status}) lacks the outputs {', '.join(missing) or Output.MAX_WORKERS}",
            where="CloudFormation",
            remedy="the last deployment failed and was rolled back; fix the cause and repeat `fab up`"
            if "ROLLBACK" in status
            else "wait until the deployment has ended (`fab status`), then repeat the command"
            if status.endswith("_IN_PROGRESS")
            else "repeat `fab up`",
        )
    return _stack(description)


def find_stack(aws: Aws, name: str) -> Stack:
    """Find a stack in any state. Missing outputs are "", or 0 for `max_workers`. Raises NoStackError or AwsError."""
    description = describe_stack(aws, name)
    if description is None or description["StackStatus"] == "DELETE_COMPLETE":
        raise NoStackError(name, aws.region)
    return _stack(description)


def _stack(description: Mapping[str, Any]) -> Stack:
    """Build a stack from its entry of DescribeStacks. Missing outputs are "", or 0 for `max_workers`."""
    outputs = {o["OutputKey"]: o.get("OutputValue", "") for o in description.get("Outputs", [])}
    return Stack(
        name=description["StackName"],
        status=description["StackStatus"],
        account=description["StackId"].split(":")[4],  # arn:aws:cloudformation:REGION:ACCOUNT:stack/NAME/UUID
        master_group=outputs.get(Output.MASTER_GROUP, ""),
        worker_group=outputs.get(Output.WORKER_GROUP, ""),
        efs_mount=outputs.get(Output.EFS_MOUNT, ""),
        bucket=outputs.get(Output.BUCKET, ""),
        login_user=outputs.get(Output.LOGIN_USER, ""),
        max_workers=int(outputs.get(Output.MAX_WORKERS) or 0),
        ssh_access=outputs.get(Output.SSH_ACCESS) or SSH_PORT_OPEN,
        stop_policy=outputs.get(Output.STOP_POLICY, ""),
        topics=tuple(filter(None, outputs.get(Output.ALARM_TOPICS, "").split(","))),
        scratch_mount=outputs.get(Output.SCRATCH_MOUNT, ""),
    )


def describe_stack(aws: Aws, name: str) -> Mapping[str, Any] | None:
    """Return the entry of DescribeStacks for a stack; None if the stack does not exist. Raises AwsError."""
    with aws_errors(f"looking for stack {name}"), IgnoredCodes("ValidationError"):
        return next(iter(aws.client("cloudformation").describe_stacks(StackName=name)["Stacks"]), None)
    return None


def read_template(aws: Aws, name: str) -> Mapping[str, Any]:
    """Return the template of a deployed stack; {} for a stack that has only a change set. Raises AwsError."""
    with aws_errors(f"reading the template of {name}"):
        # botocore parses JSON and leaves other text as it is. The stubs know only the parsed form.
        body: Any = aws.client("cloudformation").get_template(StackName=name)["TemplateBody"]
    # A stack that has only a change set has no template.
    template: Mapping[str, Any] = json.loads(body or "{}") if isinstance(body, str) else body
    return template
