"""The task that uploads the agent and a program."""

from __future__ import annotations

import sys
import time
from typing import Annotated

from cluster.cli import FOR_NODES, PROJECT
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.programs.user_program import Program
from cluster.session import Session
from cluster.ssh.push import package_tree
from cluster.terminal.output import print_result, print_sentence, progress_printer
from cluster.terminal.paths import resolved


@task()
def push(
    set_: Set = (),
    payload: Annotated[str, "directory of your program; default: upload the recipes"] = "",
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Upload the agent and the payload to the shared file system. Content that is already there is not uploaded.

    Example: fab push --payload ~/project
    """
    session, report = Session(PROJECT, set_, key=key), progress_printer(json=json)
    if payload:
        program = Program(directory=resolved(payload), entry=("true",))
        for note in program.upload.notes():
            report(note)
        tree = program.tree()
    else:
        tree = package_tree(FOR_NODES / "payload")
    trees = [session.agent_tree, tree]
    with session.connect() as master:
        began = time.monotonic()
        session.find_pushed(master, trees)
        session.confirm_upload(master, tree, report, yes=yes)
        terminal = sys.stdout.isatty() and not json
        agent, pushed_payload = [session.push(master, each, report, terminal=terminal) for each in trees]
        seconds = round(time.monotonic() - began, 3)
    if json:
        document = {**pushed_payload.to_document(), "seconds": seconds, "agent": agent.to_document()}
        print_result(document, json=True)
        return
    for pushed in (agent, pushed_payload):
        print_sentence(f"{pushed}: {pushed.tree.files} files at {pushed.directory}")
