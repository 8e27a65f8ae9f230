"""The tasks that begin, change and end a cluster."""

from __future__ import annotations

import dataclasses
import datetime
import json as json_format
from collections.abc import Callable
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from cluster.aws import inventory
from cluster.aws.stack import describe_stack
from cluster.cli.task import JSON, KEY, PROJECT, SET, YES, guarded, remark, say, teller
from cluster.deploy import cdk, change_set, effects, key_pair, retained
from cluster.deploy.estimate import describe_deployment
from cluster.deploy.plan import FAILED_CREATION, Plan, is_new, with_current_sizes
from cluster.errors import DeepcdkError
from cluster.nodes import live_run, status, worker_group
from cluster.session import Session, confirm
from cluster.terminal import status_line
from cluster.terminal.tables import print_table

FORCE = "do it although a run is live: the run is stopped first, with a checkpoint"


@task(
    iterable=["set_"],
    auto_shortflags=False,
    help={
        "plan": "show what would change, and change nothing",
        "force": FORCE,
        "json": JSON,
        "set": SET,
        "yes": YES,
        "key": KEY,
    },
)
@guarded
def up(
    c: Context,
    set_: list[str],
    plan: bool = False,
    force: bool = False,
    json: bool = False,
    yes: bool = False,
    key: str = "",
) -> None:
    """
    Deploy the cluster of cdk.json, or change it to what cdk.json says now.

    What a change adds, alters, replaces and removes is shown before. One that a live run would not survive is refused.

    Example: fab up --set ssh_cidr=198.51.100.7/32 --set workers=4
    """
    from stacks.validation import cautions  # It reads the table of instance types, which `fab --list` has no use for.

    session = Session(PROJECT, set_, key=key, deploying=True)
    for caution in cautions(session.config):
        remark(f"warning: {caution}")
    if plan:
        _show_plan(session, as_json=json)
        return
    stack, tell = session.config.stack_name, teller(json=json)
    new = is_new(describe_stack(session.aws, stack))
    if new:
        confirm(describe_deployment(session), yes=yes)
    _provide_key_pair(session, tell, new=new)
    cdk.bootstrap_if_missing(session.aws, PROJECT, tell, to_stderr=json)
    with change_set.planned(session.aws, PROJECT, stack, session.overrides) as planned:
        agreed = planned
        if planned.unchanged:
            tell(f"stack {stack}: no changes")
        else:
            agreed = _permit(session, planned, tell, asked=new, force=force, yes=yes, aside=json)
            change_set.execute(session.aws, PROJECT, agreed, tell, to_stderr=json)
    found, config = inventory.find(session.aws, stack), session.config
    if json:
        prices = session.prices.per_hour([i.type for i in found.instances], 2.0)
        document = status.status_document(found, prices, datetime.datetime.now(datetime.UTC))
        say(json_format.dumps({**agreed.document(), "status": document}, indent=1))
    else:
        status.print_status(found, session.prices, wait_s=2.0)
    if config.least_workers and len(found.workers) < found.desired_workers:
        tell(worker_group.describe_shortfall(config.capacity_policy, len(found.workers), found.desired_workers))


def _show_plan(session: Session, *, as_json: bool) -> None:
    stack = session.config.stack_name
    there = describe_stack(session.aws, stack)
    if there is not None and there["StackStatus"] in FAILED_CREATION:
        raise DeepcdkError(
            f"stack {stack} failed to be created ({there['StackStatus']}); a plan would begin by removing what is left",
            remedy="`fab up` removes it and creates the cluster anew; `fab down` only removes it",
        )
    if not cdk.is_bootstrapped(session.aws):
        raise DeepcdkError(
            "the CDK is not bootstrapped in this account and region, without which CloudFormation cannot be asked",
            where=f"region {session.aws.region}",
            remedy="`fab up` bootstraps it, once; nothing but the new cluster would be in the plan",
        )
    with change_set.planned(session.aws, PROJECT, stack, session.overrides) as planned:
        if as_json:
            say(json_format.dumps(planned.document(), indent=1))
        elif planned.unchanged:
            say(f"stack {stack}: no changes")
        else:
            print_table(effects.change_table(stack, planned.effects))
            for reason in planned.ends_run:
                say(f"ends a live run: {reason}")


def _provide_key_pair(session: Session, tell: Callable[[str], None], *, new: bool) -> None:
    """Import the user's key where there is no key pair; where there is one, see that it is the user's."""
    name, home = session.config.key_name, Path.home()
    described = key_pair.describe(session.aws, name)
    if described is None:
        public_key = key_pair.find_public_key(home, session.key)
        tell(f"importing {public_key} as EC2 key pair {name}; the private half stays here")
        if key_pair.import_public_key(session.aws, name, public_key):
            return
        described = key_pair.describe(session.aws, name)  # Another first deployment has imported one meanwhile.
        if described is None:
            raise DeepcdkError(f"key pair {name} was made and deleted meanwhile", remedy="repeat `fab up`")
    match = key_pair.match(described, key_pair.own_keys(home, session.key))
    if match.differs:
        error = key_pair.OtherKeyError(match)
        if new:
            raise error
        remark(f"warning: {error}")  # Somebody else's cluster may well be changed by whoever cannot log in.


def _permit(
    session: Session,
    plan: Plan,
    tell: Callable[[str], None],
    *,
    asked: bool,
    force: bool,
    yes: bool,
    aside: bool = False,
) -> Plan:
    """Show a change, ask, and see to a live run that it would end; return what was agreed to.

    `asked` says whether a first deployment was agreed to before. Others may have created the stack since.
    Where a group has got another size while the question stood, what the change does now is shown and asked anew.
    """
    print_table(effects.change_table(plan.stack, plan.effects), tell if aside else None)
    if plan.is_new:
        if not asked:
            confirm(describe_deployment(session), yes=yes)
        return plan  # There is nothing to lose.
    doing, reasons = "the change", plan.ends_run
    run_id = live_run.check_live_run(session, doing, reasons, force=force) if reasons else ""
    stopped = f" Run {run_id} is stopped first." if run_id else ""
    lost = " What the table says is lost cannot be brought back." if any(each.loses for each in plan.effects) else ""
    confirm(f"change stack {plan.stack}: {effects.summary(plan.effects)}.{lost}{stopped}", yes=yes)
    now = with_current_sizes(session.aws, plan)
    if now.effects == plan.effects and reasons:
        live_run.stop_runs(session, live_run.check_live_run(session, doing, reasons, force=force), tell)
        now = with_current_sizes(session.aws, plan)  # To end a run takes up to half a minute.
    if now.effects != plan.effects:
        tell("a group has got another size meanwhile; what the change does now:")
        return _permit(session, now, tell, asked=asked, force=force, yes=yes, aside=aside)
    return plan


@task(iterable=["set_"], help={"json": JSON, "set": SET, "yes": YES, "force": FORCE, "key": KEY})
@guarded
def down(
    c: Context, set_: list[str], json: bool = False, yes: bool = False, force: bool = False, key: str = ""
) -> None:
    """
    Destroy the cluster. Its data stay where it was deployed with retain_data.

    While a run is live it does nothing, unless forced.

    Example: fab down --yes
    """
    session = Session(PROJECT, set_, key=key)
    stack, tell = session.deployed_stack, teller(json=json)
    retained.check_unprotected(stack.name, describe_stack(session.aws, stack.name))
    with status_line.doing("asking AWS what holds data"):
        holders = retained.find(session.aws, stack.name)
    doing = f"destroying stack {stack.name}"
    run_id = live_run.check_live_run(session, doing, (), force=force)
    stopped = f" Run {run_id} is stopped first." if run_id else ""
    confirm(f"destroy stack {stack.name}: {retained.describe_fate(holders)}.{stopped}", yes=yes)
    ended = live_run.check_live_run(session, doing, (), force=force)
    live_run.stop_runs(session, ended, tell)
    for each in holders:
        if each.type == retained.BUCKET and not each.kept:
            with status_line.doing(f"emptying bucket {each.physical_id}"):
                deleted = cdk.empty_bucket(session.aws, each.physical_id)
            tell(f"emptying bucket {each.physical_id}: {deleted} objects deleted")
    cdk.destroy(PROJECT, session.config.stack_name, session.overrides, tell, to_stderr=json)
    if json:
        data = [dataclasses.asdict(each) for each in holders]
        say(json_format.dumps({"stack": stack.name, "stopped_run": ended, "data": data}, indent=1))
        return
    for line in retained.describe_remains(holders, session.config.key_name):
        tell(line)
