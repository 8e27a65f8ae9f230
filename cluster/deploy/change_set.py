"""Deploy in two steps: create a change set and its plan of what would happen, then execute or delete it.

Each deployment has its own change set and uses it by ARN, so that several people can plan changes of one stack at the
same time. CloudFormation executes one of them, and deletes the others because they no longer fit the stack.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, Unpack

from cluster.aws.client import entries
from cluster.aws.errors import aws_errors
from cluster.aws.stack import describe_stack, read_template
from cluster.deploy import cdk, changed_resources, kept_images
from cluster.deploy.cdk import CdkError
from cluster.deploy.change_effects import Effect, describe_effect, describe_login_user
from cluster.deploy.changed_resources import GROUP, Change, changed_parameters
from cluster.errors import AwsError, DeepcdkError
from cluster.terminal.status_line import doing, warn
from stacks.config import Output

if TYPE_CHECKING:
    from types_boto3_cloudformation.type_defs import (
        DescribeChangeSetInputTypeDef,
        DescribeChangeSetOutputTypeDef,
    )

    from cluster.aws.client import Aws

PREFIX: Final = "deepcdk-"
"""Prefix of the names of change sets."""

# The CDK CLI prints this at its end if a rule rejects a template. The assembly has been written by then.
_SYNTHESIS_FAILED: Final = "Synthesis finished with errors"
# CloudFormation's reason for a change set without changes. The CDK CLI looks for the same words.
_UNCHANGED: Final = ("didn't contain changes", "No updates are to be performed")

_CHANGE_SETS: Final = ("list_change_sets", "Summaries")
_ABSENT: Final = ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE")
FAILED_CREATION: Final = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
"""States of a stack whose creation failed. The CDK CLI deletes such a stack first."""


class OvertakenError(DeepcdkError):
    """Report that another deployment has changed the stack since this one was planned."""

    def __init__(self, stack: str, status: str, output: str = "") -> None:
        self.stack, self.status = stack, status
        what = f"stack {stack} was changed by another deployment, so CloudFormation rejects this change"
        super().__init__(
            f"{what}, and none of it was made" + (f"\n  {output}" if output else ""),
            where=f"stack {stack} ({status or 'deleted'})",
            remedy="when the other change has ended (`fab status` shows the cluster), repeat `fab up`",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The changes that a deployment would make to a stack."""

    stack: str
    change_set: str = ""
    """ARN of the change set."""
    is_new: bool = False
    """Whether it creates the stack."""
    assembly: Path
    """Directory of the change set's templates."""
    unchanged: bool
    effects: tuple[Effect, ...] = ()
    changes: tuple[Change, ...] = ()
    """The changes that have these effects."""
    other_user: tuple[str, str] | None = None
    """The login user before and after, if it changes."""
    template: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The template after the change."""

    notes: tuple[str, ...] = ()
    """Lines about what the deployment leaves unchanged."""

    @property
    def stop_reasons(self) -> tuple[str, ...]:
        """Return a text for each reason why a live run would not survive the change; () if it would.

        Whether a run is live is not checked here.
        """
        return tuple(each.stops_run for each in self.effects if each.stops_run)

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON values: stack, unchanged, notes, and under changes the effects."""
        return {
            "stack": self.stack,
            "unchanged": self.unchanged,
            "changes": [dataclasses.asdict(each) for each in self.effects],
            "notes": list(self.notes),
        }


def change_set_name(now: datetime.datetime) -> str:
    """Return a unique name that follows CloudFormation's rule: [a-zA-Z][-a-zA-Z0-9]*, at most 128 characters."""
    return f"{PREFIX}{now:%Y%m%d-%H%M%S}-{secrets.token_hex(8)}"


@contextlib.contextmanager
def planned(
    aws: Aws, project: Path, stack: str, overrides: Mapping[str, str], *, update_images: bool = False
) -> Iterator[Plan]:
    """Create a change set with the CDK CLI, and yield its plan. After the block, delete it unless it was executed.

    A stack that exists only for this change set is deleted too. `overrides` replace keys of cdk.json. Existing clusters
    keep their deployed machine images, unless `update_images` is set. Raises OvertakenError if another deployment
    changes the stack, AwsError, or CdkError with the output of the CDK CLI. After an error, a change set that cannot be
    deleted is only reported with a warning.
    """
    before = describe_stack(aws, stack)
    name = change_set_name(datetime.datetime.now(datetime.UTC))
    with tempfile.TemporaryDirectory(prefix="deepcdk-") as assembly:
        try:
            comparing = "comparing the cluster with cdk.json"
            with doing(comparing):
                keeps = before is not None and not is_new(before) and not update_images
                images = kept_images.deployed(before, read_template(aws, stack)) if before and keeps else {}
                newest = kept_images.superseded(aws, images)
                given = {**overrides, **kept_images.context(images, newest)}
                command = cdk.prepare_command(cdk.find_cli(project), stack, name, Path(assembly), given)
                try:
                    cdk.call(command, project, comparing, aws.environment())
                except CdkError as error:
                    if _is_synthesized(Path(assembly), error):
                        with contextlib.suppress(AwsError):
                            _check_not_overtaken(aws, stack, before, error)
                    raise
                plan = _read_plan(aws, stack, name, Path(assembly))
                plan = dataclasses.replace(plan, notes=tuple(kept_images.describe(images, newest)))
            yield plan
        except BaseException:
            try:
                _delete(aws, stack, name, before)
            except AwsError as error:  # it must not hide the first error
                warn(
                    f"change set {name} of stack {stack} may be left: {error.what}. It costs nothing, and the next "
                    "deployment of the stack deletes it; check the stack's termination protection, because it may have "
                    "changed"
                )
            raise
        _delete(aws, stack, name, before)


def execute(
    aws: Aws, project: Path, plan: Plan, report: Callable[[str], None], *, events: TextIO | None = None
) -> None:
    """Execute the change set of a plan, and wait until it is done. `report` is called with the result.

    `events` is the stream for CloudFormation's events. None: only a progress line is shown. Raises OvertakenError if
    another deployment has changed the stack since the plan was made, CdkError if the deployment fails, or AwsError.
    """
    _check_current(aws, plan)
    try:
        cdk.execute(aws, project, plan.stack, plan.change_set, plan.assembly, report, events=events)
    except CdkError:
        with contextlib.suppress(AwsError):  # it must not hide why the deployment failed
            _check_current(aws, plan)
        raise


def _check_current(aws: Aws, plan: Plan) -> None:
    """Raise OvertakenError if the plan's change set is deleted or obsolete, unless its own execution is the reason."""
    now = describe_stack(aws, plan.stack) or {}
    if now.get("ChangeSetId") == plan.change_set:
        return
    description = _describe(aws, plan.stack, ChangeSetName=plan.change_set)
    if description["ExecutionStatus"] == "OBSOLETE":
        raise OvertakenError(plan.stack, str(now.get("StackStatus", "")))


def _describe(aws: Aws, stack: str, **which: Unpack[DescribeChangeSetInputTypeDef]) -> DescribeChangeSetOutputTypeDef:
    """Return a change set's description. `which` are the parameters of DescribeChangeSet.

    Raises OvertakenError if the execution of another change set has deleted it, or AwsError.
    """
    from botocore.exceptions import ClientError

    with aws_errors(f"reading the change set of {stack}"):
        try:
            description = aws.client("cloudformation").describe_change_set(**which)
        except ClientError as error:
            if not error.response["Error"]["Code"].startswith("ChangeSetNotFound"):
                raise
            now = describe_stack(aws, stack) or {}
            raise OvertakenError(stack, str(now.get("StackStatus", ""))) from None
    return description


def _is_synthesized(assembly: Path, error: CdkError) -> bool:
    """Return whether the CDK CLI failed with `error` after the synthesis, so that the templates are not the reason.

    `assembly` is the directory to which it writes the templates.
    """
    return (assembly / "manifest.json").exists() and _SYNTHESIS_FAILED not in error.what


def _check_not_overtaken(aws: Aws, stack: str, before: Mapping[str, Any] | None, error: CdkError) -> None:
    """Raise OvertakenError if no change set could be created because another deployment changes or has created the
    stack.

    `before` is the stack's description before the attempt, `error` the CLI's error.
    """
    now = describe_stack(aws, stack)
    if now is None or is_new(now):
        return
    if is_new(before) or str(now["StackStatus"]).endswith("_IN_PROGRESS"):
        raise OvertakenError(stack, now["StackStatus"], error.what) from None


def _read_plan(aws: Aws, stack: str, name: str, assembly: Path) -> Plan:
    """Return the plan of the change set with this name. Raises CdkError if CloudFormation rejects the change, or
    AwsError.

    A change set without changes gives a plan that is `unchanged`.
    """
    # Read now: another machine may have created the stack in the meantime, and the change set is then an update.
    before = describe_stack(aws, stack)
    description = _describe(aws, stack, StackName=stack, ChangeSetName=name)
    change_set, token = description["ChangeSetId"], description.get("NextToken")
    while token:
        page = _describe(aws, stack, ChangeSetName=change_set, NextToken=token)
        description["Changes"] += page["Changes"]
        token = page.get("NextToken")
    with aws_errors(f"reading the change set of {stack}"):
        client = aws.client("cloudformation")
        body: Any = client.get_template(StackName=stack, ChangeSetName=change_set)["TemplateBody"]
    template = json.loads(body) if isinstance(body, str) else body
    new = is_new(before)
    if description["Status"] == "FAILED":
        reason = str(description.get("StatusReason", ""))
        if any(words in reason for words in _UNCHANGED):
            return Plan(stack=stack, change_set=change_set, is_new=new, assembly=assembly, unchanged=True)
        raise CdkError(
            f"CloudFormation rejects the change: {reason}",
            where=f"change set {name} of stack {stack}",
            remedy="correct the key in cdk.json that causes it, then repeat `fab up`",
        )
    former = {} if new else read_template(aws, stack)
    parameters = changed_parameters((before or {}).get("Parameters", ()), description.get("Parameters", ()))
    plan = Plan(
        stack=stack,
        change_set=change_set,
        is_new=new,
        assembly=assembly,
        unchanged=False,
        changes=changed_resources.parse(description, former, template, parameters),
        other_user=_other_user(before or {}, template),
        template=template,
    )
    return with_current_sizes(aws, plan)


def _other_user(before: Mapping[str, Any], template: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the login user before and after, if the new template changes it; None otherwise. `before` is from
    DescribeStacks.
    """
    was = {each["OutputKey"]: each.get("OutputValue", "") for each in before.get("Outputs", ())}.get(Output.LOGIN_USER)
    becomes = template.get("Outputs", {}).get(Output.LOGIN_USER, {}).get("Value")
    return (was, becomes) if was and isinstance(becomes, str) and was != becomes else None


def _delete(aws: Aws, stack: str, name: str, before: Mapping[str, Any] | None) -> None:
    """Delete the change set with this name unless it was executed, and undo the side effects of its creation.

    The CDK CLI sets termination protection when it creates a change set. This is undone, unless another deployment has
    changed the stack since. A stack that was never created is deleted if it has no other change set. A change set that
    another machine creates within the tenths of a second before that deletion is lost, and its `fab up` reports it.
    """
    now = describe_stack(aws, stack)
    if now is None:
        return
    with aws_errors(f"removing the change set of {stack}"):
        client, arn = aws.client("cloudformation"), now["StackId"]
        own = next(
            (each for each in entries(client, *_CHANGE_SETS, StackName=arn) if each["ChangeSetName"] == name), None
        )
        if own is None or own.get("ExecutionStatus", "").startswith("EXECUTE_"):
            return  # it was executed, deleted by the execution of another change set, or never created
        client.delete_change_set(StackName=arn, ChangeSetName=own["ChangeSetId"])
        if own.get("ExecutionStatus") == "OBSOLETE":
            return
        left = entries(client, *_CHANGE_SETS, StackName=arn)
    now = describe_stack(aws, arn)
    if now is None:
        return
    with aws_errors(f"removing the remains of the change set of {stack}"):
        if now["StackStatus"] == "REVIEW_IN_PROGRESS":
            if not left:
                if now.get("EnableTerminationProtection"):
                    client.update_termination_protection(StackName=arn, EnableTerminationProtection=False)
                client.delete_stack(StackName=arn)
        elif before is not None:
            was = bool(before.get("EnableTerminationProtection"))
            if bool(now.get("EnableTerminationProtection")) != was:
                client.update_termination_protection(StackName=arn, EnableTerminationProtection=was)


def check_changeable(stack: str, there: Mapping[str, Any] | None) -> None:
    """Raise DeepcdkError for a stack whose deletion failed, or whose last change could not be rolled back.

    The error explains how to continue. `there` is from DescribeStacks, None if the stack does not exist.
    """
    status = (there or {}).get("StackStatus")
    why = str((there or {}).get("StackStatusReason", "")).strip()
    told = f"\n  {why}" if why else ""
    if status == "DELETE_FAILED":
        remedy = "fix the cause that is shown above or in the stack's events, repeat `fab down`, then `fab up`"
        raise DeepcdkError(f"stack {stack} was not destroyed completely ({status}){told}", remedy=remedy)
    if status == "UPDATE_ROLLBACK_FAILED":
        command = f"aws cloudformation continue-update-rollback --stack-name {stack}"
        remedy = f"fix the cause that is shown above or in the stack's events, then run `{command}`; or run `fab down`"
        raise DeepcdkError(f"a change of stack {stack} could not be rolled back ({status}){told}", remedy=remedy)


def is_new(description: Mapping[str, Any] | None) -> bool:
    """Return whether a stack, given by its entry of DescribeStacks, does not exist, or is only the rest of a failed
    creation.
    """
    return description is None or description["StackStatus"] in (*_ABSENT, *FAILED_CREATION)


def with_current_sizes(aws: Aws, plan: Plan) -> Plan:
    """Return the plan with its effects updated to the groups' current sizes. Raises AwsError.

    CloudFormation sets a group's size whatever it is now. If a group has grown since the plan was shown, the execution
    would terminate nodes that the plan did not mention. The sizes are therefore read again after the answer. A size set
    in the seconds between that and the execution is overwritten.
    """
    sizes = _read_sizes(aws, plan.changes)
    effects = tuple(describe_effect(each, plan.template, sizes.get(each.physical_id)) for each in plan.changes)
    if plan.other_user:
        effects = (describe_login_user(*plan.other_user), *effects)
    return dataclasses.replace(plan, effects=effects)


def _read_sizes(aws: Aws, changes: tuple[Change, ...]) -> dict[str, int]:
    """Return the desired size of each existing group among the changes, by the group's name. Raises AwsError."""
    names = [each.physical_id for each in changes if each.type == GROUP and each.physical_id]
    if not names:
        return {}
    with aws_errors("reading the sizes of the groups"):
        groups = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)
    return {group["AutoScalingGroupName"]: group["DesiredCapacity"] for group in groups["AutoScalingGroups"]}
