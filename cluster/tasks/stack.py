"""The tasks of the stack as a whole: deploy it, show it, destroy it."""

from __future__ import annotations

import datetime
import json as json_format
import sys
import time
from pathlib import Path
from typing import Final

from invoke.context import Context
from invoke.tasks import task

from cluster import cdk, inventory, keypair, report
from cluster import load as loads
from cluster.connection import Master
from cluster.session import Session, confirm, describe_deployment
from cluster.tasks.terms import JSON, KEY, PROJECT, SET, YES, guarded, say

WATCH_S: Final = 2.0
CLEAR: Final = "\x1b[H\x1b[2J"
"""Home, and clear the screen."""


@task(iterable=["set_"], help={"set": SET, "yes": YES, "key": KEY})
@guarded
def up(c: Context, set_: list[str], yes: bool = False, key: str = "") -> None:
    """
    Deploy the cluster of cdk.json, or change it to what cdk.json says now.

    Example: fab up --set ssh_cidr=198.51.100.7/32 --set workers=4
    """
    session = Session(PROJECT, set_, key=key, deploying=True)
    config = session.config
    confirm(describe_deployment(session), yes=yes)
    if not keypair.exists(session.aws, config.key_name):
        public_key = keypair.find_public_key(Path.home(), key)
        say(f"importing {public_key} as EC2 key pair {config.key_name}; the private half stays here")
        keypair.import_public_key(session.aws, config.key_name, public_key)
    cdk.up(session.aws, PROJECT, config.stack_name, session.overrides, say)
    report.print_status(session.inventory, session.prices, wait_s=2.0)


@task(iterable=["set_"], help={"set": SET, "yes": YES})
@guarded
def down(c: Context, set_: list[str], yes: bool = False) -> None:
    """
    Destroy the cluster. Its data stay where it was deployed with retain_data.

    Example: fab down --yes
    """
    session = Session(PROJECT, set_)
    stack = session.deployed_stack
    kept = inventory.data_of(inventory.read_template(session.aws, stack.name))
    confirm(f"destroy stack {stack.name}: {cdk.describe_fate(kept)}.", yes=yes)
    if stack.bucket and not kept.get("bucket", True):
        say(f"emptying bucket {stack.bucket}: {cdk.empty_bucket(session.aws, stack.bucket)} objects deleted")
    cdk.down(PROJECT, session.config.stack_name, session.overrides, say)


@task(
    iterable=["set_"],
    help={
        "load": "ask every node for its processor, memory, GPU, network and disk, too",
        "watch": "repeat --load until Ctrl-C",
        "json": JSON,
        "set": SET,
        "key": KEY,
    },
)
@guarded
def status(
    c: Context, set_: list[str], load: bool = False, watch: bool = False, json: bool = False, key: str = ""
) -> None:
    """
    Show the stack and its nodes: address, state, age, price per hour; with --load, what they are doing.

    Example: fab status --watch
    """
    session = Session(PROJECT, set_, key=key)
    session.prices.begin([session.config.master_instance_type, session.config.worker_instance_type])
    if not (load or watch):
        report.print_status(session.inventory, session.prices, wait_s=0.3, as_json=json)
        return
    with session.connect() as master:
        directory = session.supervisor(master).directory
        while True:
            _show_load(session, master, directory, clearing=watch and not json and sys.stdout.isatty(), as_json=json)
            if not watch:
                return
            time.sleep(WATCH_S)


def _show_load(session: Session, master: Master, directory: str, *, clearing: bool, as_json: bool) -> None:
    """Print the nodes' state and load; `clearing` the terminal just before, so that nothing flickers."""
    nodes = session.nodes(master)
    measured = loads.read(master, directory, nodes)
    found = inventory.refresh(session.aws, session.stack)
    rows = loads.rows(found, nodes, measured)
    if as_json:
        known = session.prices.per_hour([i.type for i in found.instances], 0.3)
        document = report.status_document(found, known, datetime.datetime.now(datetime.UTC))
        say(json_format.dumps({**document, "load": loads.documents(rows)}))
        return
    if clearing:
        print(CLEAR, end="")
    report.print_status(found, session.prices, wait_s=0.3)
    say("")
    report.print_table(loads.table(rows))
