"""The tasks: `fab up`, `fab train --nodes 2`, `fab fetch`, `fab down`.

`fab --list` lists them, `fab --help TASK` explains one.
"""

from __future__ import annotations

import functools
import json as json_format
import sys
from collections.abc import Callable
from pathlib import Path

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from cluster import cdk, keypair, report
from cluster import fetch as fetching
from cluster.errors import DeepcdkError, LiveRunError
from cluster.follow import Picture
from cluster.launch import Training, dry_run_lines, parse_nodes_argument, parse_whole, split_further
from cluster.push import payload_tree
from cluster.session import Session, confirm, describe_deployment, provide_nodes, specify
from cluster.watching import describe_end, watch
from payload.launch import LaunchError
from stacks.config import ConfigError

PROJECT = Path(__file__).resolve().parent
SET = "override a value of context.cluster in cdk.json, as key=value; may be repeated"
KEY = "private SSH key; default: the agent's and those in ~/.ssh"
RUN = "id of the run; default: the live one, else the newest"
YES = "answer every question with yes"
JSON = "print JSON"


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


def guarded(body: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors of a task into a message and an exit status, here and nowhere else."""

    @functools.wraps(body)
    def run(*args: object, **kwargs: object) -> None:
        try:
            body(*args, **kwargs)
        except DeepcdkError as error:
            raise Exit(f"deepcdk: {error}", code=error.exit_status) from None
        except (ConfigError, LaunchError) as error:
            raise Exit(f"deepcdk: {error}", code=1) from None
        except KeyboardInterrupt:
            raise Exit("\ninterrupted", code=130) from None
        except BrokenPipeError:
            # Whoever read our output has gone, as `head` does; nothing is left to be said.
            sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115  # must outlive this function
            raise Exit(code=1) from None

    return run


@task(iterable=["set_"], help={"set": SET, "yes": YES, "key": KEY})
@guarded
def up(c: Context, set_: list[str], yes: bool = False, key: str = "") -> None:
    """
    Deploy the cluster of cdk.json, or change it to what cdk.json says now.

    Example: fab up --set ssh_cidr=198.51.100.7/32 --set workers=4
    """
    session = Session(PROJECT, set_, key=key, deploying=True)
    config = session.config
    confirm(describe_deployment(session), yes=yes)
    if not keypair.exists(session.aws, config.key_name):
        public_key = keypair.find_public_key(Path.home(), key)
        say(f"importing {public_key} as EC2 key pair {config.key_name}; the private half stays here")
        keypair.import_public_key(session.aws, config.key_name, public_key)
    cdk.up(session.aws, PROJECT, config.stack_name, session.overrides, say)
    report.print_status(session.inventory, session.prices, wait_s=2.0)


@task(iterable=["set_"], help={"set": SET, "yes": YES})
@guarded
def down(c: Context, set_: list[str], yes: bool = False) -> None:
    """
    Destroy the cluster. Its data stay where cdk.json says retain_data.

    Example: fab down --yes
    """
    session = Session(PROJECT, set_)
    stack, kept = session.deployed_stack, session.config.retain_data
    fate = "its file system and bucket are kept" if kept else "ITS FILE SYSTEM AND BUCKET GO TOO, WITH ALL RUNS"
    confirm(f"destroy stack {stack.name}: {fate}.", yes=yes)
    if not kept and stack.bucket:
        say(f"emptying bucket {stack.bucket}: {cdk.empty_bucket(session.aws, stack.bucket)} objects deleted")
    cdk.down(PROJECT, session.config.stack_name, session.overrides)


@task(iterable=["set_"], help={"set": SET, "json": JSON})
@guarded
def status(c: Context, set_: list[str], json: bool = False) -> None:
    """
    Show the stack and its nodes: address, state, age, price per hour.

    Example: fab status --json
    """
    session = Session(PROJECT, set_)
    session.prices.begin([session.config.master_instance_type, session.config.worker_instance_type])
    report.print_status(session.inventory, session.prices, wait_s=0.3, as_json=json)


@task(iterable=["set_"], help={"set": SET, "key": KEY})
@guarded
def push(c: Context, set_: list[str], key: str = "") -> None:
    """
    Upload the payload to the shared file system, once per content.

    Example: fab push
    """
    session = Session(PROJECT, set_, key=key)
    tree = payload_tree(PROJECT / "payload")
    with session.connect() as master:
        pushed = session.push(master, tree)
    say(f"{pushed}: {tree.files} files at {pushed.directory}")


@task(
    iterable=["set_"],
    auto_shortflags=False,  # one letter for each of so many would mean nothing
    help={
        "nodes": "worker nodes to train on; the group grows to it, after asking",
        "recipe": "digits or fashion-mnist",
        "epochs": "epochs; default: the recipe's",
        "batch_per_rank": "images per step and rank; default: the recipe's",
        "learning_rate": "learning rate of one rank, scaled by their number; default: the recipe's",
        "seed": "seed of weights and shuffling; default: the recipe's",
        "data_dir": "directory of the data on the nodes, for recipes that need one",
        "args": "further arguments of payload.train, as one shell-quoted string",
        "yes": YES,
        "follow": "watch the run to its end",
        "detach": "launch and return: the same as --no-follow",
        "dry_run": "show the horovodrun command and launch nothing",
        "set": SET,
        "key": KEY,
    },
)
@guarded
def train(
    c: Context,
    set_: list[str],
    nodes: str = "2",
    recipe: str = "digits",
    epochs: str = "",
    batch_per_rank: str = "",
    learning_rate: str = "",
    seed: str = "",
    data_dir: str = "",
    args: str = "",
    yes: bool = False,
    follow: bool = True,
    detach: bool = False,
    dry_run: bool = False,
    key: str = "",
) -> None:
    """
    Train on N nodes and watch the run, which goes on without the laptop.

    Example: fab train --nodes 4 --recipe digits --epochs 20
    """
    session = Session(PROJECT, set_, key=key)
    count = parse_nodes_argument(nodes, session.config.max_workers)
    training = Training(
        recipe=recipe,
        epochs=epochs,
        batch_per_rank=batch_per_rank,
        learning_rate=learning_rate,
        seed=seed,
        data_dir=data_dir,
        further=split_further(args),
    )
    tree = payload_tree(PROJECT / "payload")
    count = parse_nodes_argument(nodes, session.stack.max_workers)
    session.prices.begin(session.instance_types)
    with session.connect() as master:
        if dry_run:
            for line in dry_run_lines(
                session.nodes(master), count, lambda found: specify(session, training, found, count, tree.name)
            ):
                say(line)
            return
        supervisor = session.supervisor(master)
        if live := supervisor.live():
            raise LiveRunError(live)
        pushed = session.push(master, tree)
        say(str(pushed))
        spec = specify(session, training, provide_nodes(session, master, count, yes=yes, tell=say), count, pushed.name)
        supervisor.start(spec)
        say(f"run {spec.run_id}: {spec.ranks} ranks on {', '.join(host.name for host in spec.hosts)}")
        if follow and not detach:
            finish(session, spec.run_id, lambda: watch(session, supervisor, spec.run_id))
        else:
            say(f"it goes on by itself; watch it with `fab attach --run {spec.run_id}`")


@task(iterable=["set_"], help={"run": RUN, "set": SET, "key": KEY})
@guarded
def attach(c: Context, set_: list[str], run: str = "", key: str = "") -> None:
    """
    Watch a run from its start to its end.

    Example: fab attach --run 20261120-121314-digits-ab12
    """
    session = Session(PROJECT, set_, key=key)
    session.prices.begin(session.instance_types)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        run_id = str(supervisor.status(run)["run_id"])
        finish(session, run_id, lambda: watch(session, supervisor, run_id))


@task(
    iterable=["set_"],
    help={"run": RUN, "follow": "go on until the run ends", "rank": "only this rank's lines", "set": SET, "key": KEY},
)
@guarded
def logs(c: Context, set_: list[str], follow: bool = False, run: str = "", rank: str = "", key: str = "") -> None:
    """
    Print a run's log: the supervisor's, horovodrun's and each rank's output.

    Example: fab logs -f --rank 0
    """
    session = Session(PROJECT, set_, key=key)
    chosen_rank = parse_whole("--rank", rank, lowest=0) if rank else None
    with session.connect() as master:
        for line in session.supervisor(master).log_lines(run, following=follow, rank=chosen_rank):
            say(line)


@task(
    iterable=["set_"],
    help={
        "run": RUN,
        "grace": "seconds for a checkpoint before the run is killed",
        "force": "kill at once",
        "set": SET,
        "key": KEY,
    },
)
@guarded
def stop(c: Context, set_: list[str], run: str = "", grace: str = "30", force: bool = False, key: str = "") -> None:
    """
    Stop a run: gracefully, so that it writes a checkpoint, then hard.

    Example: fab stop --grace 60
    """
    session = Session(PROJECT, set_, key=key)
    grace_s = 0 if force else parse_whole("--grace", grace, lowest=0)
    with session.connect() as master:
        state = session.supervisor(master).stop(run, grace_s)
    say(f"run {state['run_id']}: {state['state']}" + ("" if state["was_live"] else ", it had ended before"))


@task(
    iterable=["set_"],
    help={
        "run": RUN,
        "checkpoints": "bring the checkpoints too",
        "into": "directory on the laptop",
        "json": JSON,
        "set": SET,
        "key": KEY,
    },
)
@guarded
def fetch(
    c: Context,
    set_: list[str],
    run: str = "",
    checkpoints: bool = False,
    into: str = "runs",
    json: bool = False,
    key: str = "",
) -> None:
    """
    Bring a run's results to ./runs/ID: result, metrics, log, TensorBoard events.

    Example: fab fetch --checkpoints
    """
    session = Session(PROJECT, set_, key=key)
    with session.connect() as master:
        run_id = str(session.supervisor(master).status(run)["run_id"])
        fetched = fetching.fetch(master, session.stack.runs_root, run_id, Path(into), checkpoints=checkpoints)
    if json:
        say(
            json_format.dumps(
                {
                    "run_id": run_id,
                    "directory": str(fetched.directory),
                    "files": fetched.files,
                    "bytes": fetched.size_bytes,
                }
            )
        )
        return
    report.print_table(report.result_table(fetched.directory))
    say(f"{fetched.files} files, {fetched.size_bytes:,} bytes: {fetched.directory}")


@task(iterable=["set_"], help={"json": JSON, "set": SET, "key": KEY})
@guarded
def runs(c: Context, set_: list[str], json: bool = False, key: str = "") -> None:
    """
    List all runs on the shared file system, the newest first.

    Example: fab runs --json
    """
    session = Session(PROJECT, set_, key=key)
    with session.connect() as master:
        found = session.supervisor(master).runs()
    if json:
        say(json_format.dumps(found, indent=1))
    else:
        report.print_table(report.runs_table(found))


def finish(session: Session, run_id: str, watched: Callable[[], Picture]) -> None:
    """Watch a run, and end as it ended; Ctrl-C leaves it going."""
    try:
        picture = watched()
    except KeyboardInterrupt:
        remedy = f"  `fab attach --run {run_id}` watches it again, `fab stop --run {run_id}` ends it"
        raise Exit(f"\nno longer watching; run {run_id} goes on\n{remedy}", code=130) from None
    text, failed = describe_end(picture, session.usd_per_hour(wait_s=0.0))
    if failed:
        raise Exit(text, code=1)
    say(text)


ns = Collection(up, down, status, push, train, attach, logs, stop, fetch, runs)
