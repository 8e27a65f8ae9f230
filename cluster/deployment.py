"""A deployment in two steps: a change set that says what would happen, then its execution or its end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster import cdk, changes, effects, inventory
from cluster.activity import doing
from cluster.aws import aws_errors
from cluster.cdk import CdkError
from cluster.differences import changed_parameters

if TYPE_CHECKING:
    from cluster.aws import Aws

NAME: Final = "deepcdk"
"""Of the change set; there is one at a time."""

# What CloudFormation says of a change set that changes nothing (the same words as in the CDK CLI).
_UNCHANGED: Final = ("didn't contain changes", "No updates are to be performed")
_NEW: Final = ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE")
# A stack of these has never been whole: the CDK CLI removes it before it looks at anything.
FAILED_CREATION: Final = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a deployment would do."""

    stack: str
    assembly: Path
    """Directory of the templates from which the change set was made."""
    unchanged: bool
    effects: tuple[effects.Effect, ...]
    parsed: tuple[changes.Change, ...] = ()
    """What the effects were told from."""
    after: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The template after the change."""

    @property
    def ends_run(self) -> tuple[str, ...]:
        """Return why no live run would survive it; empty where one does."""
        return tuple(each.ends_run for each in self.effects if each.ends_run)

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "stack": self.stack,
            "unchanged": self.unchanged,
            "changes": [dataclasses.asdict(each) for each in self.effects],
        }


def is_new(description: Mapping[str, Any] | None) -> bool:
    """Tell whether there is nothing yet that a deployment could change, or only the remains of a failed one."""
    return description is None or description["StackStatus"] in (*_NEW, *FAILED_CREATION)


@contextlib.contextmanager
def planned(aws: Aws, project: Path, stack: str, overrides: Mapping[str, str]) -> Iterator[Plan]:
    """Make a change set and say what it would do; whatever was not executed inside is gone afterwards.

    Raises CdkError, with what the CDK CLI said.
    """
    before = inventory.describe_stack(aws, stack)
    with tempfile.TemporaryDirectory(prefix="deepcdk-") as assembly:
        try:
            comparing = "comparing the cluster with cdk.json"
            with doing(comparing):
                cdk.run_quietly(
                    cdk.prepare_command(cdk.find_cli(project), stack, NAME, Path(assembly), overrides),
                    project,
                    comparing,
                )
                found = _read(aws, stack, before, Path(assembly))
            yield found
        finally:
            _discard(aws, stack, before)


def _read(aws: Aws, stack: str, before: Mapping[str, Any] | None, assembly: Path) -> Plan:
    with aws_errors(f"reading the change set of {stack}"):
        client = aws.client("cloudformation")
        told = client.describe_change_set(StackName=stack, ChangeSetName=NAME)
        token = told.get("NextToken")
        while token:
            page = client.describe_change_set(StackName=stack, ChangeSetName=NAME, NextToken=token)
            told["Changes"] += page["Changes"]
            token = page.get("NextToken")
        after = _template(client.get_template(StackName=stack, ChangeSetName=NAME)["TemplateBody"])
    if told["Status"] == "FAILED":
        reason = str(told.get("StatusReason", ""))
        if any(words in reason for words in _UNCHANGED):
            return Plan(stack=stack, assembly=assembly, unchanged=True, effects=())
        raise CdkError(f"CloudFormation refuses the change: {reason}", where=f"change set {NAME} of stack {stack}")
    former = {} if is_new(before) else inventory.read_template(aws, stack)
    parameters = changed_parameters((before or {}).get("Parameters", ()), told.get("Parameters", ()))
    found = changes.parse(told, former, after, parameters)
    plan = Plan(stack=stack, assembly=assembly, unchanged=False, effects=(), parsed=found, after=after)
    return read_sizes(aws, plan)


def read_sizes(aws: Aws, plan: Plan) -> Plan:
    """Return the plan with what it does to the groups as large as they are now.

    CloudFormation sets a group's size whatever the size is: where a group has grown since a plan was shown, its
    execution ends nodes of which the plan said nothing. So it is read again after the answer; what another machine
    sets in the seconds from then to the execution is overwritten.
    """
    sizes = _sizes(aws, plan.parsed)
    told = tuple(effects.effect(each, plan.after, sizes.get(each.physical_id)) for each in plan.parsed)
    return dataclasses.replace(plan, effects=told)


def _template(body: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(body) if isinstance(body, str) else body
    return found


def _sizes(aws: Aws, found: Sequence[changes.Change]) -> dict[str, int]:
    """Return how many nodes each group among the changes is to have now, by name."""
    names = [each.physical_id for each in found if each.type == changes.GROUP and each.physical_id]
    if not names:
        return {}
    with aws_errors("asking for the groups' sizes"):
        groups = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)
    return {group["AutoScalingGroupName"]: group["DesiredCapacity"] for group in groups["AutoScalingGroups"]}


def _discard(aws: Aws, stack: str, before: Mapping[str, Any] | None) -> None:
    """Remove a change set that was not executed, and what its making has left of a stack that never was.

    The CDK CLI sets termination protection while it makes a change set: that is taken back too.
    """
    now = inventory.describe_stack(aws, stack)
    if now is None:
        return
    with aws_errors(f"removing the change set of {stack}"):
        client = aws.client("cloudformation")
        listed = client.list_change_sets(StackName=stack)["Summaries"]
        left = [each for each in listed if each["ChangeSetName"] == NAME]
        if not left or left[0].get("ExecutionStatus", "").startswith("EXECUTE_"):
            return  # It was executed, or never made.
        client.delete_change_set(StackName=stack, ChangeSetName=NAME)
        if now["StackStatus"] == "REVIEW_IN_PROGRESS" and len(listed) == 1:
            if now.get("EnableTerminationProtection"):
                client.update_termination_protection(StackName=stack, EnableTerminationProtection=False)
            client.delete_stack(StackName=stack)
        elif before is not None:
            was = bool(before.get("EnableTerminationProtection"))
            if bool(now.get("EnableTerminationProtection")) != was:
                client.update_termination_protection(StackName=stack, EnableTerminationProtection=was)
