"""The nodes of a deployed cluster: the instances of its Auto Scaling groups, as AWS reports them."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cluster.aws.client import Aws, entries
from cluster.aws.errors import aws_errors
from cluster.aws.stack import DELETING, BeingDestroyedError, Stack, describe_stack, parse_stack
from cluster.errors import AwsError, NoStackError
from cluster.polling import poll
from cluster.terminal.status_line import doing
from stacks.config import CLUSTER_TAG, MASTER, ROLE_TAG, WORKER
from stacks.config_keys.network import SESSION_MANAGER

AZ_REBALANCE: Final = "AZRebalance"
"""The Auto Scaling process that balances the number of instances per zone."""
GROUP_TAG: Final = "aws:autoscaling:groupName"
"""Tag with the name of an instance's Auto Scaling group. Only Auto Scaling can set it."""


MASTER_WITHIN_S: Final = 60.0
"""Maximum wait for a starting master. Most instances run after half of this time."""
MASTER_POLL_S: Final = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """One EC2 instance of the cluster."""

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
    """Whether it is a spot instance, which costs at most the on-demand price."""
    key_name: str = ""
    """The EC2 key pair that it was launched with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """A deployed cluster: its stack, its instances, and the desired number of workers."""

    stack: Stack
    desired_workers: int
    instances: tuple[Instance, ...]
    """In any state, the master first, then the workers, oldest first. There may be two masters or none."""
    group_maximum: int | None = None
    """MaxSize of the worker group in EC2 Auto Scaling; None if the group is not listed."""
    rebalances_zones: bool = False
    """Whether Auto Scaling may terminate workers to balance the group's zones."""

    unlisted_masters: tuple[str, ...] = ()
    """Ids of instances in the master's group that EC2 does not list (yet)."""

    @property
    def max_workers(self) -> int:
        """Return the maximum number of workers: the group's MaxSize, which may have changed since the last deployment.

        If the group does not report it, the deployed number is returned.
        """
        return self.stack.max_workers if self.group_maximum is None else self.group_maximum

    @property
    def workers(self) -> tuple[Instance, ...]:
        """Return the workers, oldest first. They include workers that are starting or being terminated."""
        return tuple(i for i in self.instances if i.role == WORKER)

    def _is_reachable(self, instance: Instance) -> bool:
        return bool(instance.public_ip) or self.stack.ssh_access == SESSION_MANAGER

    @property
    def master(self) -> Instance:
        """Return the running master, the newest if there are two. Raises AwsError if none can be reached."""
        masters = [i for i in self.instances if i.role == MASTER and i.state == "running" and self._is_reachable(i)]
        if not masters:
            raise self._no_master()
        return masters[-1]

    def _no_master(self) -> AwsError:
        """Return the error for a cluster without a running master that can be reached."""
        where = f"Auto Scaling group {self.stack.master_group}"
        if running := [i.id for i in self.instances if i.role == MASTER and i.state == "running"]:
            return AwsError(
                f"the running master {running[-1]} has no public address, so SSH cannot reach it",
                where=where,
                remedy="wait until the deployment has ended (`fab status`), then repeat the command"
                if self.stack.status.endswith("_IN_PROGRESS")
                else "associate an Elastic IP address with it in the EC2 console. Or terminate it there: its Auto "
                "Scaling group starts a new master with a public address, which continues the runs that have a "
                "restart left and no secrets",
            )
        known = [f"{i.id} is {i.state}" for i in self.instances if i.role == MASTER]
        states = ", ".join(known + [f"{id} is not in EC2's list yet" for id in self.unlisted_masters])
        return AwsError(
            f"no master is running: {states or 'its Auto Scaling group is empty'}",
            where=where,
            remedy="the Auto Scaling group starts a new master within minutes; `fab status` shows it, or why no "
            "instance can be launched",
        )

    @property
    def master_is_starting(self) -> bool:
        """Return whether the only masters are pending, or too new to be listed by EC2."""
        states = {i.state for i in self.instances if i.role == MASTER}
        return "running" not in states and ("pending" in states or bool(self.unlisted_masters))


def find(aws: Aws, name: str) -> Inventory:
    """Return the inventory of the cluster whose stack has this name, also while the stack is being changed or deleted.

    Raises NoStackError if it is not deployed, or AwsError, for example if its first deployment is incomplete.
    """
    aws.client("cloudformation")  # first, because only one client is made at a time
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        clients = pool.submit(_make_clients, aws)  # creating a client takes 0.1 s, so do it while the first call waits
        description = describe_stack(aws, name)
        clients.result()
    if description is None or description["StackStatus"] in ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS"):
        raise NoStackError(name, aws.region)
    stack = parse_stack(description)
    return refresh(aws, stack)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeployedMaster:
    """The running master and its stack, which are needed to connect."""

    stack: Stack
    master: Instance


def find_master(aws: Aws, name: str) -> DeployedMaster:
    """Return the cluster's stack and its running master. If no master is running, wait for one that is starting.

    Raises NoStackError, BeingDestroyedError, or AwsError, for example if no master is running after MASTER_WITHIN_S.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        masters = pool.submit(_tagged_masters, aws, name)
        description = describe_stack(aws, name)
        found = masters.result()
    if description is None or description["StackStatus"] in ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS"):
        raise NoStackError(name, aws.region)
    if description["StackStatus"] == DELETING:
        raise BeingDestroyedError(name)
    stack = parse_stack(description)
    members = {"AutoScalingGroupName": stack.master_group, "DesiredCapacity": 1, "Instances": found}
    inventory = parse_inventory(stack, [members], [{"Instances": found}])
    try:
        return DeployedMaster(stack=stack, master=inventory.master)
    except AwsError:  # the group knows why there is no master
        return DeployedMaster(stack=stack, master=await_master(aws, refresh(aws, stack)).master)


def await_master(aws: Aws, found: Inventory) -> Inventory:
    """Wait until the master is running or no longer starting, at most MASTER_WITHIN_S. Return the new inventory.

    The new inventory may have no running master. Raises AwsError.
    """
    for _ in poll(MASTER_WITHIN_S, every_s=MASTER_POLL_S):
        if not found.master_is_starting:
            break
        with doing("waiting for the instance of the master to start"):
            found = refresh(aws, found.stack)
    return found


def _tagged_masters(aws: Aws, name: str) -> list[dict[str, Any]]:
    """Return the descriptions of the running masters from EC2, in the form that parse_inventory expects. Raises
    AwsError.
    """
    tags = {f"tag:{CLUSTER_TAG}": name, f"tag:{ROLE_TAG}": MASTER, "instance-state-name": "running"}
    with aws_errors(f"looking for the master of {name}"):
        answer = aws.client("ec2").describe_instances(
            Filters=[{"Name": key, "Values": [value]} for key, value in tags.items()]
        )
    found = [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
    return [{**instance, "LifecycleState": "InService"} for instance in found]


def _make_clients(aws: Aws) -> None:
    with aws_errors("making clients"):
        aws.client("autoscaling")
        aws.client("ec2")


def refresh(aws: Aws, stack: Stack) -> Inventory:
    """Return the current instances and size of a known stack's groups. Raises AwsError.

    The stack is not read again, so the result has its former status. EC2 is asked by the tag that Auto Scaling sets on
    its instances. Asked by id, EC2 would reject the whole request for a single id that it does not know yet or any more
    (InvalidInstanceID.NotFound), and it accepts at most 1,000 ids. An instance that only its group knows is left out
    until EC2 knows it.
    """
    with aws_errors(f"listing the nodes of {stack.name}"):
        groups = aws.client("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[stack.master_group, stack.worker_group]
        )["AutoScalingGroups"]
        filled = [group["AutoScalingGroupName"] for group in groups if group["Instances"]]
        in_groups = [{"Name": f"tag:{GROUP_TAG}", "Values": filled}]
        ec2 = aws.client("ec2")
        reservations = entries(ec2, "describe_instances", "Reservations", Filters=in_groups) if filled else []
    return parse_inventory(stack, groups, reservations)


def parse_inventory(
    stack: Stack, groups: Sequence[Mapping[str, Any]], reservations: Sequence[Mapping[str, Any]]
) -> Inventory:
    """Return the inventory from the answers of DescribeAutoScalingGroups and DescribeInstances.

    The master comes first, then the workers, the oldest first. Instances that only one of the answers has are left out,
    except for `unlisted_masters`.
    """
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
            key_name=found.get("KeyName", ""),
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
        rebalances_zones=any(_rebalances(group) for group in sizes),
        unlisted_masters=tuple(
            sorted(id for id in members.keys() - {i.id for i in instances} if members[id][0] == MASTER)
        ),
    )


def _rebalances(group: Mapping[str, Any]) -> bool:
    """Return whether a group spans several zones and balances them."""
    suspended = {process["ProcessName"] for process in group.get("SuspendedProcesses", ())}
    return len(group.get("AvailabilityZones", ())) > 1 and AZ_REBALANCE not in suspended
