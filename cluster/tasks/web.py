"""The tasks that open TensorBoard or JupyterLab in the browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from agent.spec.nodes import NODE_PYTHON
from agent.spec.remote_command import NotebookRequest, RemoteCommand
from agent.spec.run import PROGRAM_FOLDER
from cluster.answers import AnswerError
from cluster.cli import PROJECT
from cluster.cli.task import Browser, Key, Port, RunId, Set, Yes, task
from cluster.errors import UsageError
from cluster.programs.program import Program
from cluster.session import Session
from cluster.ssh import web_tunnel
from cluster.ssh.config_file import find_node
from cluster.ssh.push import Tree
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
    tree = requirements_tree(requirements) if requirements else None
    with session.connect() as master:
        chosen = find_node(session.stack.name, node, session.nodes(master)).name
        agent = session.push_agent(master)
        if tree:
            session.confirm_upload(master, tree, print_sentence, yes=yes)
        program = session.push(master, tree, print_sentence) if tree else None
        asked = NotebookRequest(
            node=chosen,
            efs_mount=session.stack.efs_mount,
            program=f"{program.directory}/{PROGRAM_FOLDER}" if program else "",
            requirements=expanded(requirements).name if program else "",
        )
        command = ("env", "-C", agent, NODE_PYTHON, "-m", "agent.remote.notebook", asked.to_json())
        print_sentence(f"JupyterLab on {chosen}; the first time, its packages are installed")
        request = RemoteCommand(command=command, master=True)
        web_tunnel.serve(
            master, agent, request, port=local_port, browser=browser, report=print_sentence,
            start_s=NOTEBOOK_S, remedy=NO_PACKAGES,
        )  # fmt: skip
        print_sentence("\nJupyterLab has ended")


def requirements_tree(text: str) -> Tree:
    """Pack the directory of a requirements file. Raises UsageError if the file does not exist."""
    path = expanded(text)
    if not path.name or not is_file(path):
        raise UsageError("--requirements", text, "is not a file")
    program = Program(directory=resolved(str(path.parent)), entry=("true",), requirements=path.name)
    program.check_travels("--requirements", text, Path(path.name))
    for note in program.upload.notes():
        print_sentence(note)
    return program.tree()
