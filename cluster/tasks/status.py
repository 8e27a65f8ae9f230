"""The task that shows the stack as a whole."""

from __future__ import annotations

import concurrent.futures
import datetime
import json as json_format
import sys
import time
from typing import Final

from invoke.context import Context
from invoke.tasks import task

from cluster.aws import guard, inventory
from cluster.cli.task import JSON, KEY, PROJECT, SET, guarded, remark, say
from cluster.nodes import load as loads
from cluster.nodes.status import print_status, status_document
from cluster.session import Session
from cluster.ssh.connection import Master
from cluster.terminal.status_line import doing, warn
from cluster.terminal.tables import print_table

WATCH_S: Final = 2.0
CLEAR: Final = "\x1b[H\x1b[2J"
"""Home, and clear the screen."""


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
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
            asked = pool.submit(guard.read_or_explain, session.aws, session.config.stack_name)
            found = session.inventory
            print_status(found, session.prices, wait_s=0.3, as_json=json, bound=asked.result())
        return
    with session.connect() as master:
        directory = session.push_agent(master)
        while True:
            _show_load(session, master, directory, clearing=watch and not json and sys.stdout.isatty(), as_json=json)
            if not watch:
                return
            time.sleep(WATCH_S)


def _show_load(session: Session, master: Master, directory: str, *, clearing: bool, as_json: bool) -> None:
    """Print the nodes' state and load; `clearing` the terminal just before, so that nothing flickers."""
    warnings: list[str] = []  # Those that the cleared terminal would lose.
    nodes = session.nodes(master, warnings.append if clearing else warn)
    with doing("measuring the nodes' load"):
        measured = loads.read(master, directory, nodes)
    found = inventory.refresh(session.aws, session.stack)
    rows = loads.rows(found, nodes, measured)
    if as_json:
        known = session.prices.per_hour([i.type for i in found.instances], 0.3)
        document = status_document(found, known, datetime.datetime.now(datetime.UTC))
        say(json_format.dumps({**document, "load": loads.documents(rows)}))
        return
    if clearing:
        print(CLEAR, end="")
    print_status(found, session.prices, wait_s=0.3)
    say("")
    print_table(loads.table(rows))
    for text in warnings:
        remark(f"warning: {text}")
