"""The tasks that open a run in the browser."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from cluster import served
from cluster.launch import parse_whole
from cluster.push import payload_tree
from cluster.session import Session
from cluster.tasks.terms import KEY, PROJECT, RUN, SET, guarded, tell
from payload.fanout import Request
from payload.launch import NODE_PYTHON


@task(
    iterable=["set_"],
    auto_shortflags=False,
    help={
        "run": RUN,
        "all": "show all runs side by side",
        "port": "port on this machine; default: any free one",
        "browser": "open the browser, where there is a display",
        "set": SET,
        "key": KEY,
    },
)
@guarded
def tensorboard(
    c: Context,
    set_: list[str],
    run: str = "",
    all: bool = False,
    port: str = "",
    browser: bool = True,
    key: str = "",
) -> None:
    """
    Show a run in TensorBoard, which runs on the master and is seen through a tunnel.

    Example: fab tensorboard --all
    """
    session = Session(PROJECT, set_, key=key)
    local_port = served.free_port(parse_whole("--port", port, lowest=1) if port else 0)
    with session.connect() as master:
        chosen = "" if all else str(session.supervisor(master).status(run)["run_id"])
        pushed = session.push(master, payload_tree(PROJECT / "payload"))
        wheelhouse = f"{session.stack.payloads_root}/.wheelhouse"
        ensure = [NODE_PYTHON, "-m", "payload.runtime", "ensure", "--wheelhouse", wheelhouse]
        made = master.check(ensure, directory=pushed.directory, doing="making the training environment on the master")
        python = made.text.strip().splitlines()[-1]
        logs = f"{session.stack.runs_root}/{chosen}".rstrip("/")
        command = (python, "-m", "tensorboard.main", "--logdir", logs, "--host", "127.0.0.1", "--port", "0")
        tell(f"TensorBoard of {chosen or 'all runs'} on the master")
        try:
            request = Request(command=command, master=True)
            served.serve(master, pushed.directory, request, port=local_port, browser=browser, tell=tell)
        except KeyboardInterrupt:
            tell("\nTensorBoard has ended")
