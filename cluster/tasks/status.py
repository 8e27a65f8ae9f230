"""The task that shows the stack and its nodes."""

from __future__ import annotations

import concurrent.futures
import datetime
import importlib
import sys
import time
from typing import Annotated, Final

from cluster.aws import inventory, launch_failures, worker_limits
from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, task
from cluster.errors import AwsError, ConnectionFailedError, DeepcdkError, NoAnswerError
from cluster.nodes.occupancy import Occupancy, describe_replacement, shortened
from cluster.nodes.status import print_status, read_status
from cluster.nodes.unused_files import Leftover, Leftovers, summary
from cluster.runs import run_owner
from cluster.runs.supervisor_client import Supervisor
from cluster.session import Session
from cluster.ssh.master import Master
from cluster.terminal.output import print_line, print_note, print_result
from cluster.terminal.status_line import doing, warn
from cluster.terminal.tables import print_table
from stacks.config import MASTER

WATCH_S: Final = 2.0
_RECENT: Final = datetime.timedelta(hours=1)
CLEAR: Final = "\x1b[H\x1b[2J"
"""ANSI codes: move the cursor home and clear the screen."""


@task()
def status(
    set_: Set = (),
    load: Annotated[bool, "also show each node's load: processor, memory, GPU, network and disk"] = False,
    watch: Annotated[bool, "repeat --load until you press Ctrl-C"] = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Show the stack and its nodes: address, state, age and price per hour. --load adds the load and run of each node.

    Example: fab status --watch
    """
    session = Session(PROJECT, set_, key=key)
    session.prices.begin([session.config.master_instance_type, session.config.worker_instance_type])
    if not (load or watch):
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            if not json:
                pool.submit(importlib.import_module, "fabric")  # it takes 0.1 s, and the connection needs it later
            asked = pool.submit(worker_limits.read_or_explain, session.aws, session.config.stack_name)
            found = _load(session)
            failures = launch_failures.describe_missing(session.aws, found)
            print_status(found, session.prices, wait_s=0.3, as_json=json, bound=asked.result(), failures=failures)
        if not json:
            _show_runs(session)
        return
    with session.connect() as master:
        directory = session.push_agent(master)
        while True:
            _show_load(session, master, directory, clearing=watch and not json and sys.stdout.isatty(), as_json=json)
            if not watch:
                return
            time.sleep(WATCH_S)


def _load(session: Session) -> inventory.Inventory:
    """Return the deployed cluster. Raises AwsError, for example if its first deployment is incomplete.

    Unless AWS did not answer, the launches that failed in the last hour are printed first.
    """
    try:
        return session.load_inventory()
    except NoAnswerError:
        raise
    except AwsError:
        since = datetime.datetime.now(datetime.UTC) - _RECENT
        for line in launch_failures.describe_since(session.aws, session.config.stack_name, since):
            print_note(line)
        raise


def _show_runs(session: Session) -> None:
    """Print the live runs, who started each, replaced workers, and the size of uploads.

    If the master does not have this version of the agent, the agent is pushed first. If the master does not answer,
    print a note. Prints nothing if no master is running.
    """
    if not any(i.role == MASTER and i.state == "running" for i in session.load_inventory().instances):
        return
    try:
        with session.connect() as master:
            try:
                occupied, stored = _ask_master(session, master)
            except ConnectionFailedError:
                raise
            except DeepcdkError:  # most often this version of the agent is not on the master yet
                session.push_agent(master)
                occupied, stored = _ask_master(session, master)
    except DeepcdkError as error:
        why = str(error.what).partition("\n")[0] + (f"; {error.remedy}" if error.remedy else "")
        print_note(f"live runs and the size of uploads are unknown: {why}")
        return
    for run_id, hosts in occupied.hosts.items():
        by = run_owner.describe(occupied.starters.get(run_id))
        print_line(f"run {run_id} is live on {shortened(hosts)}" + (f", started by {by}" if by else ""))
    for replaced in occupied.replaced:
        print_line(describe_replacement(replaced))
    print_line(summary(stored))


def _ask_master(session: Session, master: Master) -> tuple[Occupancy, list[Leftover]]:
    """Return the live runs, and the uploads on the shared file system. Both are asked for at the same time.

    The agent must have been pushed to the master.
    """
    directory = session.agent_tree.masters_directory
    leftovers = Leftovers(master, session.stack, directory, session.agent_directory)
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        live = pool.submit(Supervisor(master, session.stack, directory).occupancy)
        try:
            stored = leftovers.shared()
            return live.result(), stored
        except KeyboardInterrupt:
            master.close()  # the pool waits for the other question, which fails now
            raise


def _show_load(session: Session, master: Master, directory: str, *, clearing: bool, as_json: bool) -> None:
    """Print the stack, the nodes' state and load, and replaced workers once: as tables, or as JSON with `as_json`.

    With `clearing`, clear the terminal just before, so that it does not flicker.
    """
    from cluster.nodes import node_load as loads  # import it here: `fab status` without flags does not need it

    warnings: list[str] = []  # clearing the terminal would delete warnings that were printed earlier
    nodes = session.nodes(master, warnings.append if clearing else warn)
    occupied = session.supervisor(master).occupancy()
    with doing("measuring the nodes' load"):
        measured = loads.read(master, directory, session.agent_directory, nodes)
    found = inventory.find(session.aws, session.config.stack_name)
    rows = loads.rows(found, nodes, measured, occupied)
    if as_json:
        document = read_status(found, session.prices, wait_s=0.3)
        print_result({**document, "load": loads.documents(rows)}, json=True, indent=None)
        return
    if clearing:
        print(CLEAR, end="")
    print_status(found, session.prices, wait_s=0.3)
    print_line("")
    print_table(loads.table(rows))
    for replaced in occupied.replaced:
        print_line(describe_replacement(replaced))
    for text in warnings:
        print_note(f"warning: {text}")
