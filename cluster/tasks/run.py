"""The task that runs a command on the nodes."""

from __future__ import annotations

import os
import sys
from typing import Annotated, TextIO

from invoke.exceptions import Exit

from agent.spec.laptop_requests import RemoteCommand
from cluster.cli import PROJECT
from cluster.cli.flags import whole, words_after_dashes
from cluster.cli.task import Json, Key, Set, task
from cluster.errors import UsageError
from cluster.session import Session
from cluster.ssh import command_on_nodes
from cluster.terminal.output import print_result
from cluster.terminal.status_line import aside, doing
from cluster.terminal.wrap import output_lines


@task(takes_words=True, short_flags=False)
def run(
    set_: Set = (),
    env: Annotated[
        tuple[str, ...],
        "environment variable of the command, as NAME=VALUE; may be repeated. It is on no command line of the nodes",
    ] = (),
    nodes: Annotated[int, "run on the first N workers; default: all workers", whole(lowest=1)] = 0,
    master: Annotated[bool, "run once, on the master"] = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Run a command on all workers at the same time. Its words follow after --.

    No shell interprets the words. For a shell, use sh -c 'LINE'. If the command fails on a node, the exit status is 1.
    If it runs on only one node, the exit status is the command's.

    Example: fab run --nodes 4 -- nvidia-smi --query-gpu=name --format=csv
    """
    session = Session(PROJECT, set_, key=key)
    command = words_after_dashes(sys.argv)
    if not command:
        raise UsageError("COMMAND", None, "must follow after --, such as `fab run -- df -h`")
    if master and nodes:
        raise UsageError("--master", None, "runs the command only on the master; leave out --nodes")
    request = RemoteCommand(
        command=command,
        nodes=nodes,
        master=master,
        environment=command_on_nodes.parse_environment(env),
    )
    with session.connect() as connection:
        shown = None if json else command_on_nodes.PrefixedOutput(_write, colored=_colored(), shown=_shown)
        directory = session.push_agent(connection)
        with doing("waiting for the command", plain=False):
            results = command_on_nodes.run(connection, directory, request, shown)
    failed = [result.name for result in results if result.failed]
    if json:
        document = {"command": command, "failed": failed, "hosts": [result.to_document() for result in results]}
        print_result(document, json=True)
        if failed:
            raise Exit(code=command_on_nodes.CommandFailedError(results).exit_status)
    elif failed:
        raise command_on_nodes.CommandFailedError(results)


def _write(stream: str, line: str) -> None:
    with aside():
        print(line, file=_stream(stream), flush=True)


def _shown(stream: str, line: str) -> list[str]:
    return output_lines(line, _stream(stream))


def _stream(name: str) -> TextIO:
    return sys.stderr if name == "stderr" else sys.stdout


def _colored() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
