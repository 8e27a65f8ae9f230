"""The task that opens the dashboard in the browser, and the commands for its actions."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from typing import Any, Final

from cluster.cli import PROJECT
from cluster.cli.task import Browser, Key, Port, Set, task
from cluster.session import Session
from cluster.ssh import web_tunnel
from cluster.terminal.confirmation import NO_TERMINAL
from cluster.terminal.output import print_sentence
from cluster.terminal.status_line import LINE
from cluster.terminal.wrap import printable

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
    from cluster.dashboard.page_data import Readers
    from cluster.dashboard.server import Dashboard, Server
    from cluster.plots.style import check_installed
    from cluster.report import chosen_runs, output_formats
    from cluster.report.run_report import report_of

    check_installed()

    def open_session() -> Session:
        return Session(PROJECT, set_, key=key)

    def report(run_id: str) -> str:
        """Fetch a run and return its report as HTML, like `fab report`."""
        _, files = chosen_runs.read_chosen(run_id, lambda _: open_session())
        return output_formats.rendered(report_of(files), output_formats.HTML)

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

    Returns one text, under the key `done`, `question` or `error`. A question ends the command, because there is no
    terminal. With `agreed`, all questions are answered with yes.
    """
    command = [sys.executable, "-m", "deepcdk", *ACTIONS[verb, kind], name, *flags, *(["--yes"] if agreed else [])]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(command, cwd=PROJECT, start_new_session=True, check=False, **streams)
    if done.returncode == 0:
        return {"done": (printable(done.stdout).strip().splitlines() or ["done"])[-1]}
    error = re.split(r"^deepcdk: ", printable(done.stderr).strip(), flags=re.MULTILINE)[-1]  # without progress
    question, is_question, _ = error.partition(NO_TERMINAL)
    silent = f"the command exited with status {done.returncode} and no message; look at the run before you repeat it"
    return {"question": question.strip()} if is_question else {"error": error or silent}
