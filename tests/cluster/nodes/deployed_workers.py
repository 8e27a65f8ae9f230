"""A worker group in the tests' AWS, and a master that lists its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.spec.nodes import Node
from cluster.aws import inventory
from cluster.aws.client import Aws
from cluster.nodes.logins import Logins
from cluster.ssh.master import Completed, Master
from tests.factories import make_stack


def start_workers(aws: Aws, count: int) -> list[str]:
    """Start a group of this many workers, at most 4; return their instance ids."""
    scaling, stack = aws.client("autoscaling"), make_stack()
    scaling.create_launch_configuration(LaunchConfigurationName="c", ImageId="ami-12c6146b", InstanceType="t3.medium")
    scaling.create_auto_scaling_group(
        AutoScalingGroupName=stack.worker_group, LaunchConfigurationName="c", MinSize=0, MaxSize=4,
        DesiredCapacity=count, AvailabilityZones=["us-east-1a"],
    )  # fmt: skip
    return [instance.id for instance in inventory.refresh(aws, stack).workers]


class ListingMaster(Master):
    """List nodes as in the next of these texts; the last one is repeated."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def check(self, argv: Any, *, directory: str = "", stdin: bytes = b"", doing: str) -> Completed:
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        return Completed(status=0, stdout=text.encode(), stderr="")


class AnsweringNodes(Logins):
    """Accept the master's logins on all nodes, after a number of checks that failed."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__(".")
        self.failures = failures

    def ready(self, master: Master, nodes: Sequence[Node]) -> tuple[Node, ...]:
        self.failures -= 1
        self.refused = dict.fromkeys((node.name for node in nodes), "Permission denied") if self.failures >= 0 else {}
        return () if self.refused else tuple(nodes)
