"""What is deployed: the stack's outputs and the nodes of its Auto Scaling groups, as AWS reports them."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

from cluster.aws.client import Aws, aws_errors
from cluster.errors import AwsError, NoStackError
from stacks.config import CLUSTER_TAG, MASTER, ROLE_TAG, WORKER, Output
from stacks.config_keys.network import SESSION_MANAGER, SSH_PORT_OPEN

BOOT_WORD: Final = "deepcdk: "
"""With which the boot script begins what it says."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack:
    """Hold what the deployed stack says of itself."""

    name: str
    status: str
    """CloudFormation's status, such as CREATE_COMPLETE."""
    master_group: str
    worker_group: str
    efs_mount: str
    bucket: str
    login_user: str
    max_workers: int
    ssh_access: str = SSH_PORT_OPEN
    """The way to the master: `port`, or `session-manager`."""
    scratch_mount: str = ""
    """Where the workers have their instance store; empty: they mount none."""

    @property
    def runs_root(self) -> str:
        """Return the directory that holds all runs, on the nodes."""
        return f"{self.efs_mount}/runs"

    @property
    def payloads_root(self) -> str:
        """Return the directory that holds the pushed trees, on the nodes."""
        return f"{self.efs_mount}/payloads"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """Hold one EC2 instance of the cluster."""

    id: str
    role: str
    """master or worker."""
    state: str
    """EC2's state: pending, running, ..."""
    lifecycle: str
    """Auto Scaling's state: InService, Pending, Terminating, ..."""
    type: str
    private_ip: str
    public_ip: str
    zone: str
    launched: datetime.datetime
    spot: bool = False
    """Bought on spot: AWS may take it back, and its price is the on-demand price at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """Hold a deployed cluster: its stack, its instances, and how many workers its group is to have."""

    stack: Stack
    desired_workers: int
    instances: tuple[Instance, ...]
    group_maximum: int | None = None
    """MaxSize of the worker group, as EC2 Auto Scaling reports it; None where it does not list the group."""

    @property
    def max_workers(self) -> int:
        """Return how many workers the deployed cluster takes: EC2 Auto Scaling refuses more than the group's MaxSize.

        The stack's output is what the last deployment set; the group can have been changed since.
        """
        return self.stack.max_workers if self.group_maximum is None else self.group_maximum

    @property
    def workers(self) -> tuple[Instance, ...]:
        """Return the workers, oldest first."""
        return tuple(i for i in self.instances if i.role == WORKER)

    def _is_reachable(self, instance: Instance) -> bool:
        return bool(instance.public_ip) or self.stack.ssh_access == SESSION_MANAGER

    @property
    def master(self) -> Instance:
        """Return the running master. Raises AwsError when there is none that can be reached."""
        masters = [i for i in self.instances if i.role == MASTER and i.state == "running" and self._is_reachable(i)]
        if not masters:
            states = (
                ", ".join(f"{i.id} is {i.state}" for i in self.instances if i.role == MASTER) or "its group is empty"
            )
            without = " with a public address" if self.stack.ssh_access == SSH_PORT_OPEN else ""
            raise AwsError(
                f"the master is not running{without}: {states}",
                where=f"Auto Scaling group {self.stack.master_group}",
                remedy="its group starts a new one within minutes; watch `fab status`",
            )
        return masters[-1]


def parse_stack(description: Mapping[str, Any]) -> Stack:
    """Parse one entry of DescribeStacks. Raises AwsError naming the outputs that are missing."""
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
            remedy="the last deployment failed and was undone; mend its cause and repeat `fab up`"
            if "ROLLBACK" in status
            else f"wait for a deployment under way, else repeat `fab up`; status now: {status}",
        )
    return _stack(description)


def find_stack(aws: Aws, name: str) -> Stack:
    """Find a stack in any state, its missing outputs empty. Raises NoStackError."""
    description = describe_stack(aws, name)
    if description is None or description["StackStatus"] == "DELETE_COMPLETE":
        raise NoStackError(name, aws.region)
    return _stack(description)


def _stack(description: Mapping[str, Any]) -> Stack:
    outputs = {o["OutputKey"]: o.get("OutputValue", "") for o in description.get("Outputs", [])}
    return Stack(
        name=description["StackName"],
        status=description["StackStatus"],
        master_group=outputs.get(Output.MASTER_GROUP, ""),
        worker_group=outputs.get(Output.WORKER_GROUP, ""),
        efs_mount=outputs.get(Output.EFS_MOUNT, ""),
        bucket=outputs.get(Output.BUCKET, ""),
        login_user=outputs.get(Output.LOGIN_USER, ""),
        max_workers=int(outputs.get(Output.MAX_WORKERS) or 0),
        ssh_access=outputs.get(Output.SSH_ACCESS) or SSH_PORT_OPEN,  # stacks of earlier versions do not say
        scratch_mount=outputs.get(Output.SCRATCH_MOUNT, ""),
    )


def describe_stack(aws: Aws, name: str) -> Mapping[str, Any] | None:
    """Return DescribeStacks' entry for a stack, or None where there is none."""
    from botocore.exceptions import ClientError

    with aws_errors(f"looking for stack {name}"):
        try:
            stacks = aws.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":
                return None
            raise
    return stacks[0] if stacks else None


def read_template(aws: Aws, name: str) -> Mapping[str, Any]:
    """Return the template of a deployed stack."""
    with aws_errors(f"reading the template of {name}"):
        body = aws.client("cloudformation").get_template(StackName=name)["TemplateBody"]
    # A stack that has a change set only has no template yet.
    template: Mapping[str, Any] = json.loads(body or "{}") if isinstance(body, str) else body
    return template


def find(aws: Aws, name: str) -> Inventory:
    """Find the cluster of that name. Raises NoStackError, or AwsError when AWS cannot be asked."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        warming = pool.submit(_warm, aws)  # Building a client costs 0.1 s of parsing: do it while the first one waits.
        description = describe_stack(aws, name)
        warming.result()
    if description is None or description["StackStatus"] in ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS"):
        raise NoStackError(name, aws.region)
    stack = parse_stack(description)
    return refresh(aws, stack)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leader:
    """Hold what a task needs to reach the cluster: its stack, and its master."""

    stack: Stack
    master: Instance


def find_leader(aws: Aws, name: str) -> Leader:
    """Find the cluster of that name, and the master by its tags, both at once. Raises as `find` and its `master`."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        masters = pool.submit(_tagged_masters, aws, name)
        description = describe_stack(aws, name)
        found = masters.result()
    if description is None or description["StackStatus"] in ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS"):
        raise NoStackError(name, aws.region)
    stack = parse_stack(description)
    members = {"AutoScalingGroupName": stack.master_group, "DesiredCapacity": 1, "Instances": found}
    leaders = parse_inventory(stack, [members], [{"Instances": found}])
    try:
        return Leader(stack=stack, master=leaders.master)
    except AwsError:
        return Leader(stack=stack, master=refresh(aws, stack).master)  # Its group knows more of what became of it.


def _tagged_masters(aws: Aws, name: str) -> list[dict[str, Any]]:
    """Return the running masters' descriptions, as their group would list them."""
    tags = {f"tag:{CLUSTER_TAG}": name, f"tag:{ROLE_TAG}": MASTER, "instance-state-name": "running"}
    filters = [{"Name": key, "Values": [value]} for key, value in tags.items()]
    with aws_errors(f"looking for the master of {name}"):
        answer = aws.client("ec2").describe_instances(Filters=filters)
    found = [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
    return [{**instance, "LifecycleState": "InService"} for instance in found]


def _warm(aws: Aws) -> None:
    with aws_errors("making clients"):
        aws.client("autoscaling")
        aws.client("ec2")


def refresh(aws: Aws, stack: Stack) -> Inventory:
    """Ask anew for the instances of a known stack."""
    with aws_errors(f"listing the nodes of {stack.name}"):
        groups = aws.client("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[stack.master_group, stack.worker_group]
        )["AutoScalingGroups"]
        ids = [member["InstanceId"] for group in groups for member in group["Instances"]]
        reservations: list[Mapping[str, Any]] = []
        if ids:
            for page in aws.client("ec2").get_paginator("describe_instances").paginate(InstanceIds=ids):
                reservations += page["Reservations"]
    return parse_inventory(stack, groups, reservations)


def parse_inventory(stack: Stack, groups: list[Mapping[str, Any]], reservations: list[Mapping[str, Any]]) -> Inventory:
    """Join the answers of DescribeAutoScalingGroups and DescribeInstances; master first, then workers by age."""
    members = {
        member["InstanceId"]: (
            MASTER if group["AutoScalingGroupName"] == stack.master_group else WORKER,
            member["LifecycleState"],
        )
        for group in groups
        for member in group["Instances"]
    }
    instances = [
        Instance(
            id=found["InstanceId"],
            role=members[found["InstanceId"]][0],
            state=found["State"]["Name"],
            lifecycle=members[found["InstanceId"]][1],
            type=found["InstanceType"],
            private_ip=found.get("PrivateIpAddress", ""),
            public_ip=found.get("PublicIpAddress", ""),
            zone=found["Placement"]["AvailabilityZone"],
            launched=found["LaunchTime"],
            spot=found.get("InstanceLifecycle") == "spot",
        )
        for reservation in reservations
        for found in reservation["Instances"]
        if found["InstanceId"] in members
    ]
    sizes = [group for group in groups if group["AutoScalingGroupName"] == stack.worker_group]
    instances.sort(key=lambda i: (i.role != MASTER, i.launched, i.id))
    return Inventory(
        stack=stack,
        desired_workers=sum(group["DesiredCapacity"] for group in sizes),
        instances=tuple(instances),
        group_maximum=sizes[0].get("MaxSize") if sizes else None,
    )


def words_of_boots(aws: Aws, name: str, since: datetime.datetime) -> list[str]:
    """Return what the boot script said last on each of a cluster's instances launched since, ended ones too."""
    with aws_errors(f"looking for instances of {name}"):
        answer = aws.client("ec2").describe_instances(Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [name]}])
    ids = [i["InstanceId"] for r in answer["Reservations"] for i in r["Instances"] if i["LaunchTime"] >= since]
    said = []
    for id in sorted(ids):
        words = [line.partition(BOOT_WORD)[2] for line in console(aws, id).splitlines() if BOOT_WORD in line]
        if words:
            said.append(f"{id}: {'; '.join(dict.fromkeys(words[-3:]))}")
    return said


def console(aws: Aws, instance_id: str) -> str:
    """Return an instance's console output so far, "" when there is none yet."""
    from botocore.exceptions import ClientError

    with aws_errors(f"reading the console of {instance_id}"):
        ec2 = aws.client("ec2")
        try:
            answer = ec2.get_console_output(InstanceId=instance_id, Latest=True)
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("UnsupportedOperation", "InvalidParameterCombination"):
                raise
            answer = ec2.get_console_output(InstanceId=instance_id)  # Xen instances know no Latest.
    return str(answer.get("Output", "") or "")
