"""A deployment in two steps: a change set that says what would happen, then its execution or its end.

Each deployment has a change set of its own, which it executes, or deletes, by its ARN: several people may compare one
stack at the same time. CloudFormation executes one; it deletes the others, which no longer fit the stack.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import aws_errors
from cluster.aws.stack import describe_stack, read_template
from cluster.deploy import cdk, changes, effects
from cluster.deploy.cdk import CdkError
from cluster.deploy.differences import changed_parameters
from cluster.errors import DeepcdkError
from cluster.terminal.status_line import doing

if TYPE_CHECKING:
    from cluster.aws.client import Aws

PREFIX: Final = "deepcdk-"
"""With which the name of each change set begins."""

# What the CDK CLI ends with where a rule refuses a template; the assembly is written by then.
_SYNTHESIS_FAILED: Final = "Synthesis finished with errors"
# What CloudFormation says of a change set that changes nothing (the same words as in the CDK CLI).
_UNCHANGED: Final = ("didn't contain changes", "No updates are to be performed")
_NEW: Final = ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE")
# A stack of these has never been whole: the CDK CLI removes it before it looks at anything.
FAILED_CREATION: Final = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED")


class OvertakenError(DeepcdkError):
    """Report that another deployment has changed the stack since this one was compared with it."""

    def __init__(self, stack: str, status: str, said: str = "") -> None:
        self.stack, self.status = stack, status
        what = f"stack {stack} has been changed meanwhile, or is being changed; CloudFormation no longer takes this one"
        super().__init__(
            f"{what}, and nothing of it was done" + (f"\n  {said}" if said else ""),
            where=f"stack {stack} ({status or 'it is gone'})",
            remedy="`fab status` shows the cluster; once the other change has ended, repeat `fab up`",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a deployment would do."""

    stack: str
    change_set: str = ""
    """ARN of the change set."""
    new: bool = False
    """Whether it creates the stack."""
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


def change_set_name(now: datetime.datetime) -> str:
    """Return a name that no other change set has, by CloudFormation's rule: [a-zA-Z][-a-zA-Z0-9]*, 128 at most."""
    return f"{PREFIX}{now:%Y%m%d-%H%M%S}-{secrets.token_hex(8)}"


@contextlib.contextmanager
def planned(aws: Aws, project: Path, stack: str, overrides: Mapping[str, str]) -> Iterator[Plan]:
    """Make a change set and say what it would do; what was not executed inside is gone afterwards.

    Raises OvertakenError, or CdkError with what the CDK CLI said.
    """
    before = describe_stack(aws, stack)
    name = change_set_name(datetime.datetime.now(datetime.UTC))
    with tempfile.TemporaryDirectory(prefix="deepcdk-") as assembly:
        try:
            comparing = "comparing the cluster with cdk.json"
            with doing(comparing):
                command = cdk.prepare_command(cdk.find_cli(project), stack, name, Path(assembly), overrides)
                try:
                    cdk.run_quietly(command, project, comparing)
                except CdkError as error:
                    if _is_synthesised(Path(assembly), error):
                        _refuse_where_overtaken(aws, stack, before, error)
                    raise
                found = _read(aws, stack, name, Path(assembly))
            yield found
        finally:
            _discard(aws, stack, name, before)


def execute(aws: Aws, project: Path, plan: Plan, tell: Callable[[str], None], *, aside: bool = False) -> None:
    """Execute a plan's change set and no other one.

    Raises OvertakenError where another deployment has changed the stack since the plan was made, or CdkError.
    """
    _refuse_unless_current(aws, plan)
    try:
        cdk.execute(aws, project, plan.stack, plan.change_set, plan.assembly, tell, aside=aside)
    except CdkError:
        _refuse_unless_current(aws, plan)
        raise


def _refuse_unless_current(aws: Aws, plan: Plan) -> None:
    """Raise OvertakenError where a change set has gone or no longer fits, other than by its own execution."""
    now = describe_stack(aws, plan.stack) or {}
    if now.get("ChangeSetId") == plan.change_set:
        return
    told = _describe(aws, plan.stack, ChangeSetName=plan.change_set)
    if told["ExecutionStatus"] == "OBSOLETE":
        raise OvertakenError(plan.stack, str(now.get("StackStatus", "")))


def _describe(aws: Aws, stack: str, **which: str) -> dict[str, Any]:
    """Return a change set's description. Raises OvertakenError where the execution of another one has deleted it."""
    from botocore.exceptions import ClientError

    with aws_errors(f"reading the change set of {stack}"):
        try:
            told: dict[str, Any] = aws.client("cloudformation").describe_change_set(**which)
        except ClientError as error:
            if not error.response["Error"]["Code"].startswith("ChangeSetNotFound"):
                raise
            now = describe_stack(aws, stack) or {}
            raise OvertakenError(stack, str(now.get("StackStatus", ""))) from None
    return told


def _is_synthesised(assembly: Path, error: CdkError) -> bool:
    """Return whether the CDK CLI got past the synthesis before it failed: what is wrong with a template is its own."""
    return (assembly / "manifest.json").exists() and _SYNTHESIS_FAILED not in error.what


def _refuse_where_overtaken(aws: Aws, stack: str, before: Mapping[str, Any] | None, error: CdkError) -> None:
    """Raise OvertakenError where no change set could be made because the stack is being changed, or was created."""
    now = describe_stack(aws, stack)
    if now is None or is_new(now):
        return
    if is_new(before) or str(now["StackStatus"]).endswith("_IN_PROGRESS"):
        raise OvertakenError(stack, now["StackStatus"], error.what) from None


def _read(aws: Aws, stack: str, name: str, assembly: Path) -> Plan:
    # Read now: others may have created the stack since the task began, and the change set is then an update.
    before = describe_stack(aws, stack)
    told = _describe(aws, stack, StackName=stack, ChangeSetName=name)
    change_set, token = told["ChangeSetId"], told.get("NextToken")
    while token:
        page = _describe(aws, stack, ChangeSetName=change_set, NextToken=token)
        told["Changes"] += page["Changes"]
        token = page.get("NextToken")
    with aws_errors(f"reading the change set of {stack}"):
        client = aws.client("cloudformation")
        after = _template(client.get_template(StackName=stack, ChangeSetName=change_set)["TemplateBody"])
    new = is_new(before)
    if told["Status"] == "FAILED":
        reason = str(told.get("StatusReason", ""))
        if any(words in reason for words in _UNCHANGED):
            return Plan(stack=stack, change_set=change_set, new=new, assembly=assembly, unchanged=True, effects=())
        raise CdkError(f"CloudFormation refuses the change: {reason}", where=f"change set {name} of stack {stack}")
    former = {} if new else read_template(aws, stack)
    parameters = changed_parameters((before or {}).get("Parameters", ()), told.get("Parameters", ()))
    found = changes.parse(told, former, after, parameters)
    plan = Plan(
        stack=stack,
        change_set=change_set,
        new=new,
        assembly=assembly,
        unchanged=False,
        effects=(),
        parsed=found,
        after=after,
    )
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


def _discard(aws: Aws, stack: str, name: str, before: Mapping[str, Any] | None) -> None:
    """Remove the change set of this name if it was not executed, and what its making has left of a stack.

    The CDK CLI sets termination protection while it makes a change set: that is taken back too, unless another
    deployment has changed the stack since. A stack that was never created goes once no change set is left in it. It is
    deleted by its ARN, and after a look at both; a change set that is made in the tenths of a second after that goes
    with it, and its own `fab up` reports that.
    """
    now = describe_stack(aws, stack)
    if now is None:
        return
    with aws_errors(f"removing the change set of {stack}"):
        client, arn = aws.client("cloudformation"), now["StackId"]
        own = next((each for each in _change_sets(client, arn) if each["ChangeSetName"] == name), None)
        if own is None or own.get("ExecutionStatus", "").startswith("EXECUTE_"):
            return  # It was executed, deleted with the execution of another one, or never made.
        client.delete_change_set(StackName=arn, ChangeSetName=own["ChangeSetId"])
        if own.get("ExecutionStatus") == "OBSOLETE":
            return
        left = _change_sets(client, arn)
    now = describe_stack(aws, arn)
    if now is None:
        return
    with aws_errors(f"removing what the change set has left of {stack}"):
        if now["StackStatus"] == "REVIEW_IN_PROGRESS":
            if not left:
                if now.get("EnableTerminationProtection"):
                    client.update_termination_protection(StackName=arn, EnableTerminationProtection=False)
                client.delete_stack(StackName=arn)
        elif before is not None:
            was = bool(before.get("EnableTerminationProtection"))
            if bool(now.get("EnableTerminationProtection")) != was:
                client.update_termination_protection(StackName=arn, EnableTerminationProtection=was)


def _change_sets(client: Any, stack: str) -> list[Mapping[str, Any]]:
    """List a stack's change sets: 0 and more, in pages."""
    found: list[Mapping[str, Any]] = []
    for page in client.get_paginator("list_change_sets").paginate(StackName=stack):
        found += page["Summaries"]
    return found
