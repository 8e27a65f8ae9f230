"""The tasks that open TensorBoard or JupyterLab in the browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from agent.spec.nodes import NODE_PYTHON
from agent.spec.remote_command import NotebookRequest, RemoteCommand
from cluster.answers import AnswerError
from cluster.cli import FOR_NODES, PROJECT
from cluster.cli.task import Browser, Key, Port, RunId, Set, Yes, task
from cluster.errors import UsageError
from cluster.programs.program import Program
from cluster.programs.program_environment import pack_for_notebook
from cluster.programs.project_files import refuse_others
from cluster.session import Session
from cluster.ssh import web_tunnel
from cluster.ssh.config_file import find_node
from cluster.terminal.output import print_sentence
from cluster.terminal.paths import expanded, is_file, resolved
from cluster.terminal.status_line import doing

NOTEBOOK_S: Final = 900.0
"""Time limit for JupyterLab's first start, in which its packages are built into wheels."""
NO_PACKAGES: Final = (
    "where the nodes reach no package index, bring the wheels: `fab notebook --requirements FILE`, see docs/tasks.md"
)


@task(word="--run", short_flags=False)
def tensorboard(
    set_: Set = (),
    run: RunId = "",
    all: Annotated[bool, "show all runs side by side"] = False,
    port: Port = 0,
    browser: Browser = True,
    key: Key = "",
) -> None:
    """
    Show a run in TensorBoard, which runs on the master and is seen through a tunnel.

    Example: fab tensorboard --all
    """
    session = Session(PROJECT, set_, key=key)
    local_port = web_tunnel.free_port(port)
    with session.connect() as master:
        chosen = "" if all else session.supervisor(master).status(run)["run_id"]
        agent = session.push_agent(master)
        ensure = [NODE_PYTHON, "-m", "agent.environment.master_environment", "ensure"]
        making = "making the master's environment"
        with doing(making):
            made = master.check(ensure, directory=agent, doing=making)
        python = next(iter(made.text.strip().splitlines()[-1:]), "")
        if not re.fullmatch(r"/[\w./-]+", python, flags=re.ASCII):
            raise AnswerError(
                "`agent.environment.master_environment ensure`",
                made.text,
                "its last line must be a path",
                where=master.where,
            )
        logs = f"{session.stack.runs_root}/{chosen}".rstrip("/")
        command = (python, "-m", "tensorboard.main", "--logdir", logs, "--host", "127.0.0.1", "--port", "0")
        print_sentence(f"TensorBoard of {chosen or 'all runs'} on the master")
        request = RemoteCommand(command=command, master=True)
        web_tunnel.serve(master, agent, request, port=local_port, browser=browser, report=print_sentence)
        print_sentence("\nTensorBoard has ended")


@task(word="--node", short_flags=False)
def notebook(
    set_: Set = (),
    node: Annotated[str, "master, worker3 or 3; default: the master"] = "",
    requirements: Annotated[
        str, "requirements file that names jupyterlab and whatever else; its directory is uploaded with it"
    ] = "",
    port: Port = 0,
    browser: Browser = True,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Open JupyterLab on the master or on a worker, with the runtime's TensorFlow and Horovod, through a tunnel.

    Example: fab notebook worker1
    """
    session = Session(PROJECT, set_, key=key)
    local_port = web_tunnel.free_port(port)
    program = notebook_program(requirements) if requirements else None
    with session.connect() as master:
        chosen = find_node(session.stack.name, node, session.nodes(master))
        folder = ""
        if program:
            packed = pack_for_notebook(program, chosen, project=FOR_NODES, report=print_sentence)
            for tree in packed.trees:
                session.confirm_upload(master, tree, print_sentence, yes=yes)
                folder = session.push(master, tree, print_sentence).directory
        agent = session.push_agent(master)
        asked = NotebookRequest(node=chosen.name, efs_mount=session.stack.efs_mount, tree=folder)
        command = ("env", "-C", agent, NODE_PYTHON, "-m", "agent.remote.notebook", asked.to_json())
        print_sentence(f"JupyterLab on {chosen.name}; the first time, its packages are installed")
        request = RemoteCommand(command=command, master=True)
        web_tunnel.serve(
            master, agent, request, port=local_port, browser=browser, report=print_sentence,
            start_s=NOTEBOOK_S, remedy=NO_PACKAGES,
        )  # fmt: skip
        print_sentence("\nJupyterLab has ended")


def notebook_program(text: str) -> Program:
    """Return the directory of a requirements file as a program. Raises UsageError if the file does not exist."""
    path = expanded(text)
    if not path.name or not is_file(path):
        raise UsageError("--requirements", text, "is not a file")
    refuse_others(path.name)
    program = Program(directory=resolved(str(path.parent)), entry=("true",), requirements=path.name)
    program.check_travels("--requirements", text, Path(path.name))
    return program
