"""The tasks that create, change and destroy a cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import json as json_format
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

from cluster.aws import inventory
from cluster.aws.stack import DELETING, BeingDestroyedError, describe_stack, read_template
from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.deploy import bootstrap, cdk, change_effects, change_set, key_pair, retained_data, zones
from cluster.deploy.change_set import FAILED_CREATION, Plan, is_new, with_current_sizes
from cluster.deploy.cost import describe_bounds, describe_deployment, describe_rest
from cluster.errors import AwsError, DeepcdkError
from cluster.nodes import live_runs, status, worker_group
from cluster.nodes.grow import await_logins
from cluster.nodes.occupancy import describe_runs
from cluster.runs import run_owner
from cluster.session import Session
from cluster.terminal import status_line
from cluster.terminal.confirmation import confirm
from cluster.terminal.output import print_line, print_note, print_result, progress_printer
from cluster.terminal.tables import print_table

CHANGE: Final = "the change"
Verbose = Annotated[bool, "show CloudFormation's events, and everything that the CDK CLI prints"]
Force = Annotated[bool, "stop live runs first, each with a checkpoint, then continue"]


@task(short_flags=False)
def up(
    set_: Set = (),
    plan: Annotated[bool, "show what would change, and change nothing"] = False,
    update_images: Annotated[bool, "change to the newest machine images; default: keep the deployed images"] = False,
    force: Annotated[
        bool,
        "deploy even if the account's limits forbid it or a run is live; live runs are stopped first, with a "
        "checkpoint",
    ] = False,
    verbose: Verbose = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Deploy the cluster of cdk.json, or change the deployed cluster to the current cdk.json.

    The task first shows which resources a change adds, modifies, replaces and removes. It rejects a change that would
    stop a live run, unless forced.

    Example: fab up --set ssh_cidr=198.51.100.7/32 --set workers=4
    """
    from stacks.cross_key_checks import cautions  # imported late: `fab --list` does not need the table it reads

    session = Session(PROJECT, set_, key=key, deploying=True)
    for caution in cautions(session.config):
        print_note(f"warning: {caution}")
    stack, progress = session.config.stack_name, progress_printer(json=json)
    events = _events_stream(verbose=verbose, json=json)
    there = describe_stack(session.aws, stack)
    if there is not None and there["StackStatus"] == DELETING:
        raise BeingDestroyedError(stack)
    change_set.check_changeable(stack, there)
    _check_account(session, progress, new=is_new(there), plan=plan, force=force)
    if plan:
        _show_plan(session, there, as_json=json, update_images=update_images)
        return
    new = is_new(there)
    found_bootstrap = bootstrap.examine(session.aws, bootstrap.names_of(PROJECT))
    found_bootstrap.check()
    progress(describe_bounds(session.config))
    progress(describe_rest(session))
    if new:
        confirm(describe_deployment(session), yes=yes)
    if not found_bootstrap.is_complete:
        confirm(found_bootstrap.question(), yes=yes)
    _provide_key_pair(session, progress, new=new)
    if not found_bootstrap.is_complete:
        bootstrap.make(session.aws, PROJECT, found_bootstrap, progress, events=events)
    with change_set.planned(session.aws, PROJECT, stack, session.overrides, update_images=update_images) as planned:
        if new and not planned.is_new:
            _check_same_zones(session)
        for line in planned.notes:
            progress(line)
        agreed, old = planned, tuple[inventory.Instance, ...]()
        if planned.unchanged:
            progress(f"stack {stack}: no changes")
        else:
            agreed = _permit(session, planned, progress, asked=new, force=force, yes=yes, aside=json)
            old = () if agreed.is_new else inventory.find(session.aws, stack).workers
            held: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
            if not agreed.is_new and (reasons := agreed.stop_reasons):  # keep new runs from starting
                held = live_runs.every_node_held(session, "fab up", CHANGE, reasons, force=force, report=progress)
            with held:
                change_set.execute(session.aws, PROJECT, agreed, progress, events=events)
    found, config = inventory.find(session.aws, stack), session.config
    if not planned.unchanged and {i.id for i in found.workers} - {i.id for i in old}:
        found = await_logins(Session(PROJECT, set_, key=key), found, progress)  # the master may be another one now
    if json:
        document = status.read_status(found, session.prices, wait_s=2.0)
        print_result({**agreed.document(), "status": document}, json=True)
    else:
        status.print_status(found, session.prices, wait_s=2.0)
    if config.least_workers and len(found.workers) < found.desired_workers:
        progress(worker_group.describe_shortfall(config.capacity_policy, len(found.workers), found.desired_workers))


def _events_stream(*, verbose: bool, json: bool) -> TextIO | None:
    """Return the stream for CloudFormation's events: stdout, or stderr with `json`; None without `verbose`."""
    return (sys.stderr if json else sys.stdout) if verbose else None


def _check_account(session: Session, progress: Callable[[str], None], *, new: bool, plan: bool, force: bool) -> None:
    """Check quotas, zones, images and the reservation, and store the cluster's zones in the session.

    Raises AccountError if a new cluster would fail, unless `force` is set. For a deployed cluster it only prints
    warnings, because a change that starts no node can still succeed. No zones are stored if `fab up` does not choose
    them, or if those for a new cluster cannot be read. Raises DeepcdkError if the account has too few zones. `new`
    means that the cluster is not deployed, `plan` that nothing will be deployed.
    """
    from cluster.doctor import checks as examiner
    from cluster.doctor.finding import Subject

    config = session.config
    subject = Subject(aws=session.aws, config=config, project=PROJECT, home=Path.home(), key=session.key)
    with status_line.doing("checking quotas, zones and images"):
        findings = examiner.examine_remote(subject, examiner.BEFORE_UP)
    examiner.check_before_up(config.stack_name, findings, may_fail=force or not new)
    try:
        if not zones.are_ours(config, subject.template):
            return
        chosen = subject.zones
        listed = zones.usual(session.aws) if new else chosen
    except AwsError as error:
        if not new:
            raise  # different zones would replace the cluster's subnets
        print_note(f"warning: cannot list the availability zones, so CloudFormation chooses them: {error}")
        return
    if len(chosen) < config.availability_zones:
        what = f"availability_zones = {config.availability_zones}, but this account has only {', '.join(chosen)}"
        raise DeepcdkError(what, remedy=f"set availability_zones = {len(chosen)}, or use another region")
    if new:
        keeping = "" if plan else "; the cluster keeps them"
        progress(f"zones: {', '.join(chosen)}, chosen by the instance types that they offer{keeping}")
        if chosen != listed[: len(chosen)]:
            line = f'"zones": {json_format.dumps(chosen)}'
            progress(f"`cdk deploy` would use other zones: before you use it, write {line} into cdk.json")
    session.overrides["zones"] = ",".join(chosen)
    session.config = dataclasses.replace(config, zones=chosen)


def _check_same_zones(session: Session) -> None:
    """Raise OvertakenError if somebody has created the cluster in the meantime, with other zones than chosen here."""
    stack = session.config.stack_name
    there = zones.named(read_template(session.aws, stack))
    if there != session.config.zones:
        raise change_set.OvertakenError(stack, f"created in {', '.join(there) or 'other zones'}")


def _show_plan(session: Session, there: Mapping[str, Any] | None, *, as_json: bool, update_images: bool) -> None:
    """Print what would change in the stack, as a table, or as JSON with `as_json`.

    `there` is CloudFormation's description of the stack, None if it does not exist. With `update_images`, the newest
    machine images are compared. Raises DeepcdkError if CloudFormation cannot compare: after a failed creation, or
    without the CDK's bootstrap.
    """
    stack = session.config.stack_name
    if there is not None and there["StackStatus"] in FAILED_CREATION:
        raise DeepcdkError(
            f"stack {stack} failed to be created ({there['StackStatus']}), so there is nothing to compare with",
            remedy="`fab up` removes the failed stack and creates the cluster again; `fab down` only removes it",
        )
    found_bootstrap = bootstrap.examine(session.aws, bootstrap.names_of(PROJECT))
    found_bootstrap.check()
    if not found_bootstrap.is_complete:
        old = f" in version {found_bootstrap.version}, which is too old" if found_bootstrap.version is not None else ""
        raise DeepcdkError(
            "CloudFormation cannot compare the cluster with cdk.json: "
            f"the CDK is {'' if old else 'not '}bootstrapped{old}",
            where=found_bootstrap.place,
            remedy="run `fab up`: it asks, then bootstraps once"
            + (
                "; the plan of a new cluster would list every resource as new"
                if is_new(there)
                else ", and shows the changes before it makes them"
            ),
        )
    with change_set.planned(session.aws, PROJECT, stack, session.overrides, update_images=update_images) as planned:
        for line in planned.notes:
            print_note(line)
        if as_json:
            print_result(planned.document(), json=True)
        elif planned.unchanged:
            print_line(f"stack {stack}: no changes")
        else:
            print_table(change_effects.change_table(stack, planned.effects))
            for reason in planned.stop_reasons:
                print_line(f"stops a live run: {reason}")


def _provide_key_pair(session: Session, progress: Callable[[str], None], *, new: bool) -> None:
    """Import the user's key if there is no key pair, else check that the key pair is the user's.

    If the key pair has another key, OtherKeyError is raised for a new cluster, and a warning is printed for a deployed
    one. Raises DeepcdkError if there is no key to import.
    """
    name, home = session.config.key_name, Path.home()
    described = key_pair.describe(session.aws, name)
    if described is None:
        own = key_pair.find_importable(key_pair.own_keys(home, session.key))
        progress(f"importing the public half of {own.place} as EC2 key pair {name}; the private half stays here")
        if key_pair.import_public_key(session.aws, name, own):
            return
        described = key_pair.describe(session.aws, name)  # another first deployment has imported one in the meantime
        if described is None:
            raise DeepcdkError(f"key pair {name} was created and deleted while `fab up` ran", remedy="repeat `fab up`")
    try:
        match = key_pair.match(described, key_pair.own_keys(home, session.key))
        if match.differs:
            raise key_pair.OtherKeyError(match)
    except DeepcdkError as error:
        if new:
            raise
        print_note(f"warning: {error}")  # changing a cluster does not require a login


def _permit(
    session: Session,
    plan: Plan,
    progress: Callable[[str], None],
    *,
    asked: bool,
    force: bool,
    yes: bool,
    aside: bool = False,
) -> Plan:
    """Print a change, ask, and stop the live runs that would not survive it. Return the plan that the user agreed to.

    `asked` means that the user has agreed to a first deployment before. The stack may have been created by others since
    then. With `aside`, the table is printed with `progress`, because stdout is for a document. If the size of a group
    has changed while the question was open, the new effects are printed, and the question is asked again. Raises
    LiveRunError if runs would stop, unless `force` is set.
    """
    print_table(change_effects.change_table(plan.stack, plan.effects), progress if aside else None)
    if plan.is_new:
        if not asked:
            confirm(describe_deployment(session), yes=yes)
        return plan  # a new stack has nothing to lose
    reasons = plan.stop_reasons
    ended = live_runs.check_live_runs(session, CHANGE, reasons, force=force) if reasons else live_runs.LiveRuns()
    stopped = describe_stop(ended)
    lost = " What the table shows as lost cannot be restored." if any(each.loses for each in plan.effects) else ""
    confirm(f"change stack {plan.stack}: {change_effects.summary(plan.effects)}.{lost}{stopped}", yes=yes)
    now = with_current_sizes(session.aws, plan)
    if now.effects == plan.effects and reasons:
        ended = live_runs.check_live_runs(session, CHANGE, reasons, force=force)
        live_runs.stop_runs(session, ended.run_ids, progress)
        now = with_current_sizes(session.aws, plan)  # stopping a run takes up to half a minute
    if now.effects != plan.effects:
        progress("the size of a group has changed in the meantime; the effects are now:")
        return _permit(session, now, progress, asked=asked, force=force, yes=yes, aside=aside)
    return plan


def describe_stop(live: live_runs.LiveRuns) -> str:
    """Return sentences about the live runs that are stopped first, with a leading space; "" if there are none."""
    if not live.run_ids:
        return ""
    by = run_owner.describe_others(live.starters, live.run_ids)
    return f" First {describe_runs(live.run_ids)} {'are' if live.run_ids[1:] else 'is'} stopped.{by}"


@task()
def down(
    set_: Set = (),
    verbose: Verbose = False,
    json: Json = False,
    yes: Yes = False,
    force: Force = False,
    key: Key = "",
) -> None:
    """
    Destroy the cluster. If it was deployed with retain_data, its data are kept.

    The task does nothing while a run is live, unless forced.

    Example: fab down --yes
    """
    session = Session(PROJECT, set_, key=key)
    stack, progress = session.deployed_stack, progress_printer(json=json)
    events = _events_stream(verbose=verbose, json=json)
    toolkit = bootstrap.names_of(PROJECT).toolkit
    retained_data.check_deletable(stack.name, describe_stack(session.aws, stack.name))
    with status_line.doing("asking AWS which resources contain data"):
        holders = retained_data.find(session.aws, stack.name)
    doing = f"destroying stack {stack.name}"
    stopped = describe_stop(live_runs.check_live_runs(session, doing, (), force=force))
    confirm(f"destroy stack {stack.name}: {retained_data.describe_fate(holders)}.{stopped}", yes=yes)
    ended = live_runs.check_live_runs(session, doing, (), force=force).run_ids
    live_runs.stop_runs(session, ended, progress)
    with live_runs.every_node_held(session, "fab down", doing, (), force=force, report=progress):
        retained_data.check_deletable(stack.name, describe_stack(session.aws, stack.name))  # again, after the question
        for each in holders:
            if each.type == retained_data.BUCKET and not each.kept:
                with status_line.doing(f"emptying bucket {each.physical_id}"):
                    deleted = retained_data.empty_bucket(session.aws, each.physical_id)
                progress(f"emptying bucket {each.physical_id}: {deleted} objects deleted")
        cdk.destroy(session.aws, PROJECT, session.config.stack_name, session.overrides, progress, events=events)
    if json:
        data = [dataclasses.asdict(each) for each in holders]
        print_result({"stack": stack.name, "stopped_runs": ended, "data": data}, json=True)
        return
    for line in retained_data.describe_remains(holders, session.config.key_name, toolkit):
        progress(line)
