"""The task that removes files that no run needs."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Annotated

from agent.spec.nodes import MASTER_NAME, workers
from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.nodes.unused_files import SHARED, Leftovers, size_of, table, unused
from cluster.runs.supervisor_client import CLEANING
from cluster.session import Session
from cluster.ssh.command_on_nodes import short
from cluster.terminal.confirmation import confirm
from cluster.terminal.output import print_line, print_note, print_result
from cluster.terminal.tables import print_table
from cluster.terminal.units import amount


@task()
def clean(
    set_: Set = (),
    dry_run: Annotated[bool, "list the directories, and remove nothing"] = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Remove unused files from the nodes: uploaded programs, wheels, environments and data on the nodes' disks.

    Files that a live, queued or kept run needs are kept, and so are runs and data on the shared file system, and the
    disks of nodes with a live run. The task lists directories with their sizes, and asks.

    Example: fab clean --dry-run
    """
    session = Session(PROJECT, set_, key=key)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        nodes = session.nodes(master)
        busy = {name for hosts in supervisor.occupancy().hosts.values() for name in (MASTER_NAME, *hosts)}
        places = {SHARED, *(node.name for node in nodes)} - busy
        leftovers = Leftovers(master, session.stack, supervisor.directory, session.agent_directory)
        found = [each for each in unused(leftovers.all(nodes)) if each.place in places]
        if not json and found:
            print_table(table(found))
        if busy:
            print_note(f"not cleaned, because runs are live: the disks of {', '.join(sorted(map(short, busy)))}")
        removed = []
        if found and not dry_run:
            confirm(f"remove {len(found)} directories, {amount(size_of(found))}.", yes=yes)
            free = {node.name: node.instance_id for node in workers(nodes) if node.name in {e.place for e in found}}
            with supervisor.hold(CLEANING, free) if free else contextlib.nullcontext():
                removed = leftovers.remove(found, nodes)
    kept = len(found) - len(removed)
    if json:
        listed, gone = ([dataclasses.asdict(each) for each in some] for some in (found, removed))
        print_result({"unused": listed, "removed": gone}, json=True)
    elif not found:
        print_line("nothing to remove")
    elif not dry_run:
        stays = f"; {kept} were kept, because a run or task now uses them" if kept else ""
        print_line(f"removed: {len(removed)} directories, {amount(size_of(removed))}{stays}")
