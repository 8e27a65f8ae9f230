"""The plan of a deployment: what the execution of its change set would do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import aws_errors
from cluster.deploy.changes import GROUP, Change
from cluster.deploy.effects import Effect, describe_effect

if TYPE_CHECKING:
    from cluster.aws.client import Aws

_ABSENT: Final = ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE")
FAILED_CREATION: Final = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
"""States of a stack whose creation failed: the CDK CLI deletes it before anything else."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a deployment would do to a stack."""

    stack: str
    change_set: str = ""
    """ARN of the change set."""
    is_new: bool = False
    """Whether it creates the stack."""
    assembly: Path
    """Directory of the templates of the change set."""
    unchanged: bool
    effects: tuple[Effect, ...] = ()
    changes: tuple[Change, ...] = ()
    """The changes that have these effects."""
    template: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The template after the change."""

    @property
    def ends_run(self) -> tuple[str, ...]:
        """Return why a live run would not survive it; empty if it would."""
        return tuple(each.ends_run for each in self.effects if each.ends_run)

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "stack": self.stack,
            "unchanged": self.unchanged,
            "changes": [dataclasses.asdict(each) for each in self.effects],
        }


def is_new(description: Mapping[str, Any] | None) -> bool:
    """Return whether there is no stack yet, or only the rest of one whose creation failed."""
    return description is None or description["StackStatus"] in (*_ABSENT, *FAILED_CREATION)


def with_current_sizes(aws: Aws, plan: Plan) -> Plan:
    """Return the plan with the effects on the groups as large as they are now.

    CloudFormation sets a group's size whatever it is. If a group has grown since the plan was shown, the execution
    terminates nodes that the plan did not mention. So the sizes are read again after the answer; a size that another
    machine sets in the seconds between that and the execution is overwritten.
    """
    sizes = _read_sizes(aws, plan.changes)
    effects = tuple(describe_effect(each, plan.template, sizes.get(each.physical_id)) for each in plan.changes)
    return dataclasses.replace(plan, effects=effects)


def _read_sizes(aws: Aws, changes: tuple[Change, ...]) -> dict[str, int]:
    """Return the desired size of each group among the changes, by name."""
    names = [each.physical_id for each in changes if each.type == GROUP and each.physical_id]
    if not names:
        return {}
    with aws_errors("reading the sizes of the groups"):
        groups = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)
    return {group["AutoScalingGroupName"]: group["DesiredCapacity"] for group in groups["AutoScalingGroups"]}
