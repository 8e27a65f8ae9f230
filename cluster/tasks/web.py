"""The tasks that open the dashboard, TensorBoard or JupyterLab in the browser."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from agent.spec.laptop_requests import NotebookRequest, RemoteCommand
from agent.spec.nodes import NODE_PYTHON
from cluster.cli import FOR_NODES, PROJECT
from cluster.cli.task import Browser, Key, Port, RunId, Set, Yes, task
from cluster.errors import UsageError
from cluster.master_answers import AnswerError
from cluster.programs.program import Program
from cluster.programs.program_environment import pack_for_notebook
from cluster.programs.project_files import refuse_others
from cluster.session import NO_TERMINAL, Session
from cluster.ssh import web_tunnel
from cluster.ssh.config_file import find_node
from cluster.terminal.output import print_sentence
from cluster.terminal.paths import expanded, is_file, resolved
from cluster.terminal.status_line import LINE, doing
from cluster.terminal.wrap import printable

NOTEBOOK_S: Final = 900.0
"""Time limit for JupyterLab's first start, in which its packages are built into wheels."""
DEFAULT_PACKAGE: Final = "jupyterlab>=4,<5"
NO_PACKAGES: Final = (
    "if the nodes cannot reach a package index, upload the wheels: `fab notebook --requirements FILE`, see "
    "docs/tasks.md"
)


ACTIONS: Final = {
    ("stop", "runs"): ("stop", "--run"),
    ("resume", "runs"): ("resume", "--queue", "--detach", "--run"),
    ("stop", "sweeps"): ("stop", "--sweep"),
    ("resume", "sweeps"): ("sweep", "--resume"),
}
"""The command for each action of the dashboard, which the id of the run or sweep follows."""


@task(short_flags=False)
def dashboard(set_: Set = (), port: Port = 0, browser: Browser = True, key: Key = "") -> None:
    """
    Show the cluster, its load and cost, and all runs on a local web page that updates by itself.

    Example: fab dashboard --port 8300
    """
    from cluster.dashboard.readers import Readers
    from cluster.dashboard.server import Dashboard, Server
    from cluster.plots.style import check_installed
    from cluster.report import chosen_runs, formats
    from cluster.report.run_report import report_of

    check_installed()

    def open_session() -> Session:
        return Session(PROJECT, set_, key=key)

    def report(run_id: str) -> str:
        """Fetch a run and return its report as HTML, like `fab report`."""
        _, files = chosen_runs.read_chosen(run_id, lambda _: open_session())
        return formats.rendered(report_of(files), formats.HTML)

    local_port = web_tunnel.free_port(port)
    session = open_session()
    session.load_master()  # raises an error here if there is no cluster
    readers = Readers(open_session)
    flags = [*(f"--set={each}" for each in set_), *([f"--key={key}"] if key else [])]
    server = Server(Dashboard(session.stack.name, readers, functools.partial(act, flags), report), local_port)
    print_sentence(f"{server.address} until Ctrl-C")
    if browser and web_tunnel.has_display(os.environ, sys.platform):
        webbrowser.open(server.address)
    LINE.pause()  # the sources read all the time, and need no spinner
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print_sentence("\nthe dashboard has ended")
    finally:
        LINE.resume()
        server.server_close()
        readers.link.close()


def act(flags: Sequence[str], verb: str, kind: str, name: str, agreed: bool) -> dict[str, str]:
    """Run the command for an action of the dashboard in a process without a terminal, and wait for its end.

    `verb` and `kind` are a key of ACTIONS, `name` is the id of the run or sweep. `flags` are the flags of `fab
    dashboard` that every command needs, such as the cluster's.

    Returns a text as `done`, `question` or `error`. A question ends the command, because there is no terminal. With
    `agreed`, all questions are answered with yes.
    """
    command = [sys.executable, "-m", "deepcdk", *ACTIONS[verb, kind], name, *flags, *(["--yes"] if agreed else [])]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(command, cwd=PROJECT, start_new_session=True, check=False, **streams)
    if done.returncode == 0:
        return {"done": (printable(done.stdout).strip().splitlines() or ["done"])[-1]}
    error = re.split(r"^deepcdk: ", printable(done.stderr).strip(), flags=re.MULTILINE)[-1]  # without progress
    question, is_question, _ = error.partition(NO_TERMINAL)
    return {"question": question.strip()} if is_question else {"error": error}


@task(word="--run", short_flags=False)
def tensorboard(
    set_: Set = (),
    run: RunId = "",
    all: Annotated[bool, "show all runs"] = False,
    port: Port = 0,
    browser: Browser = True,
    key: Key = "",
) -> None:
    """
    Show a run in TensorBoard, which runs on the master, through a tunnel.

    Example: fab tensorboard --all
    """
    session = Session(PROJECT, set_, key=key)
    local_port = web_tunnel.free_port(port)
    with session.connect() as master:
        chosen = "" if all else session.supervisor(master).status(run)["run_id"]
        agent = session.push_agent(master)
        ensure = [NODE_PYTHON, "-m", "agent.environment.master_environment", "ensure"]
        making = "preparing the master's environment"
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
        print_sentence("\nTensorBoard has stopped")


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
            start_s=NOTEBOOK_S, remedy=NO_PACKAGES,
        )  # fmt: skip
        print_sentence("\nJupyterLab has stopped")


def default_notebook(directory: Path) -> Program:
    """Write a requirements file to an empty directory, and return a program that requires only JupyterLab."""
    (directory / "requirements.txt").write_text(f"{DEFAULT_PACKAGE}\n", encoding="utf-8")
    return Program(directory=directory, entry=("true",), requirements="requirements.txt")


def notebook_program(text: str) -> Program:
    """Return the directory of a requirements file as a program. Raises UsageError if the file does not exist or has
    another format.
    """
    path = expanded(text)
    if not path.name or not is_file(path):
        raise UsageError("--requirements", text, f"{resolved(text)} is not a file; give a requirements file")
    refuse_others(path.name)
    program = Program(directory=resolved(str(path.parent)), entry=("true",), requirements=path.name)
    program.check_uploaded("--requirements", text, Path(path.name))
    return program
