"""The task that opens JupyterLab in the browser."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Final

from agent.spec.laptop_requests import NotebookRequest, RemoteCommand
from agent.spec.nodes import NODE_PYTHON
from cluster.cli import FOR_NODES, PROJECT
from cluster.cli.task import Browser, Key, Port, Set, Yes, task
from cluster.errors import UsageError
from cluster.programs.environment_choice import pack_for_notebook
from cluster.programs.requirements_formats import check_format
from cluster.programs.user_program import Program
from cluster.session import Session
from cluster.ssh import web_tunnel
from cluster.ssh.ssh_config_file import find_node
from cluster.terminal.output import print_sentence
from cluster.terminal.paths import expanded, is_file, resolved

NOTEBOOK_S: Final = 900.0
"""Time limit for JupyterLab's first start, in which its packages are built into wheels."""
DEFAULT_PACKAGE: Final = "jupyterlab>=4,<5"
NO_PACKAGES: Final = (
    "if the nodes cannot reach a package index, upload the wheels: `fab notebook --requirements FILE`, see "
    "docs/tasks.md"
)


@task(word="--node", short_flags=False)
def notebook(
    set_: Set = (),
    node: Annotated[str, "master, worker3 or 3; default: the master"] = "",
    requirements: Annotated[
        str, "requirements file that names jupyterlab and further packages; its directory is uploaded with it"
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
    given = notebook_program(requirements) if requirements else None
    with tempfile.TemporaryDirectory() as empty, session.connect() as master:
        program = given or default_notebook(Path(empty))
        chosen = find_node(session.stack.name, node, session.nodes(master))
        packed = pack_for_notebook(program, chosen, project=FOR_NODES, report=print_sentence)
        for tree in packed.trees:
            session.confirm_upload(master, tree, print_sentence, yes=yes)
            folder = session.push(master, tree, print_sentence).directory
        agent = session.push_agent(master)
        asked = NotebookRequest(
            node=chosen.name,
            efs_mount=session.stack.efs_mount,
            tree=folder,
            horovod_wheelhouse=session.config.wheelhouse,
        )
        command = ("env", "-C", agent, NODE_PYTHON, "-m", "agent.remote.notebook", asked.to_json())
        print_sentence(f"JupyterLab on {chosen.name}; the first start installs its packages")
        request = RemoteCommand(command=command, master=True)
        web_tunnel.serve(
            master, agent, request, port=local_port, browser=browser, report=print_sentence,
            start_s=NOTEBOOK_S, hint=NO_PACKAGES,
        )  # fmt: skip
        print_sentence("\nJupyterLab has stopped")


def default_notebook(directory: Path) -> Program:
    """Write a requirements file to an empty directory, and return a program that requires only JupyterLab."""
    (directory / "requirements.txt").write_text(f"{DEFAULT_PACKAGE}\n", encoding="utf-8")
    return Program(directory=directory, entry=("true",), requirements="requirements.txt")


def notebook_program(text: str) -> Program:
    """Return the directory of a requirements file as a program.

    Raises UsageError if the file does not exist, has another format, or would not be uploaded.
    """
    path = expanded(text)
    if not path.name or not is_file(path):
        raise UsageError("--requirements", text, f"{resolved(text)} is not a file; give a requirements file")
    check_format(path.name)
    program = Program(directory=resolved(str(path.parent)), entry=("true",), requirements=path.name)
    program.check_uploaded("--requirements", text, Path(path.name))
    return program
