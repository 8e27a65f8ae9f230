"""The task that opens TensorBoard in the browser."""

from __future__ import annotations

import re
from typing import Annotated

from agent.spec.laptop_requests import RemoteCommand
from agent.spec.nodes import NODE_PYTHON
from cluster.cli import PROJECT
from cluster.cli.task import Browser, Key, Port, RunId, Set, task
from cluster.master_answers import AnswerError
from cluster.session import Session
from cluster.ssh import web_tunnel
from cluster.terminal.output import print_sentence
from cluster.terminal.status_line import doing


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
