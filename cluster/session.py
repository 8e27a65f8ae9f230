"""One task's way to the cluster: configuration, AWS, the master, and the supervisor on it."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster import bounds, capacity, launch
from cluster import inventory as stock
from cluster.aws import Aws
from cluster.connection import Master, connect
from cluster.errors import DeepcdkError, LiveRunError, NotReadyError, RemoteError, UsageError
from cluster.price import Prices, cache_file, shown, total_per_hour
from cluster.program import Program
from cluster.push import Pushed, Tree, control_tree, push
from cluster.reader import Interruptible
from payload import vault
from payload.launch import Launch, LaunchError, Node, workers
from payload.origin import Order
from payload.runs import FINAL_STATES, QUEUED
from stacks.config import NOWHERE, ClusterConfig, ConfigError
from stacks.keys.network import ONE_NAT_GATEWAY
from stacks.validation import validate

_REFUSED_STATUS = 2
_LIVE_RUN_STATUS = 3
_NO_SUCH_RUN_STATUS = 4


def parse_overrides(given: Iterable[str]) -> dict[str, str]:
    """Parse --set key=value arguments. Raises UsageError for one without `=`."""
    overrides = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError("--set", text, "must be key=value, with a key of context.cluster in cdk.json")
        overrides[key] = value
    return overrides


def read_config(project: Path, overrides: dict[str, str], *, deploying: bool) -> tuple[ClusterConfig, dict[str, str]]:
    """Read cdk.json with the overrides; return the configuration and the overrides that the CDK needs as well.

    Only a deployment needs ssh_cidr; for all else a missing one is set to an address that is nowhere. Only a
    deployment is checked as a whole, before anything is done for it. Raises ConfigError.
    """
    try:
        config = ClusterConfig.from_file(project / "cdk.json", overrides)
        if deploying:
            validate(config)
        return config, overrides
    except ConfigError as error:
        if not deploying and error.key == "ssh_cidr" and error.value is None:
            completed = {**overrides, "ssh_cidr": NOWHERE}
            return ClusterConfig.from_file(project / "cdk.json", completed), completed
        raise


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that costs or destroys. Raises DeepcdkError unless the answer is yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise DeepcdkError(f"{question} Nobody is there to answer", remedy="say it with --yes")
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:  # Ctrl-D
        print()
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise DeepcdkError("not done, as you said")


def describe_deployment(session: Session) -> str:
    """Say what a deployment starts and what it costs, as far as that is known."""
    config = session.config
    kinds = [config.master_instance_type, *[config.worker_instance_type] * config.workers]
    price = shown(total_per_hour(kinds, session.prices.per_hour(kinds, wait_s=3.0)))
    types = " or ".join(config.worker_types)
    nodes = f"a {config.master_instance_type} master and {config.workers} {types} workers"
    if config.spot:
        nodes += f", {max(0, config.workers - config.on_demand_workers)} of them on spot"
    return f"deploy stack {config.stack_name}: {nodes}, instances {price}{_ways_out(config)}."


def _ways_out(config: ClusterConfig) -> str:
    """Say what the deployment makes that lets the workers out, and costs by the hour too."""
    if config.vpc_id:
        return f", in the existing {config.vpc_id}"
    if config.nat_gateways == ONE_NAT_GATEWAY or config.availability_zones == 1:
        return ", and a NAT gateway"
    return f", and {config.availability_zones} NAT gateways"


class Session:
    """Resolve what a task needs, each thing once and only when it is asked for."""

    def __init__(self, project: Path, overrides: Iterable[str], *, key: str = "", deploying: bool = False) -> None:
        self.project, self.key = project, key
        self.config, self.overrides = read_config(project, parse_overrides(overrides), deploying=deploying)
        self.aws = Aws()
        self.prices = Prices(self.aws, cache_file(Path.home()))

    @functools.cached_property
    def inventory(self) -> stock.Inventory:
        """Return the deployed cluster."""
        return stock.find(self.aws, self.config.stack_name)

    @property
    def stack(self) -> stock.Stack:
        """Return the deployed stack."""
        return self.inventory.stack

    def connect(self) -> Master:
        """Open a connection to the master."""
        return connect(self.aws, self.inventory.master, self.stack.login_user, self.key, self.stack.ssh_access)

    def push(self, master: Master, tree: Tree) -> Pushed:
        """Push a tree."""
        return push(master, self.stack.payloads_root, tree)

    def supervisor(self, master: Master) -> Supervisor:
        """Return the supervisor's command line on the master, pushed if need be."""
        pushed = self.push(master, control_tree(self.project / "payload"))
        return Supervisor(master, self.stack, pushed.directory)

    @property
    def deployed_stack(self) -> stock.Stack:
        """Return the stack even where it failed half-way and lacks outputs: enough to destroy it."""
        return stock.find_stack(self.aws, self.config.stack_name)

    def nodes(self, master: Master) -> tuple[Node, ...]:
        """Return the nodes that the master lists as live."""
        return capacity.read_nodes(master)

    @property
    def instance_types(self) -> list[str]:
        """Return the type of each running instance."""
        return [i.type for i in self.inventory.instances]

    def usd_per_hour(self, wait_s: float) -> float | None:
        """Return what the running instances cost together, None where a price is unknown after `wait_s`."""
        kinds = self.instance_types
        return total_per_hour(kinds, self.prices.per_hour(kinds, wait_s))


class Supervisor:
    """Call the master's supervisor, in the pushed tree `directory`."""

    def __init__(self, master: Master, stack: stock.Stack, directory: str) -> None:
        self.master, self.stack, self.directory = master, stack, directory

    def _call(self, *arguments: str, stdin: bytes = b"") -> Any:
        done = self.master.run(launch.supervisor(self.stack, *arguments), directory=self.directory, stdin=stdin)
        if done.status == _LIVE_RUN_STATUS:
            answer = json.loads(done.text)
            raise LiveRunError(answer["live"], queued=answer["state"] == QUEUED)
        if done.status == _NO_SUCH_RUN_STATUS:
            raise DeepcdkError(done.stderr.strip(), remedy="`fab runs` lists them")
        if done.status == _REFUSED_STATUS:
            raise DeepcdkError(done.stderr.strip(), where=self.master.where)
        if done.status != 0:
            raise RemoteError(
                f"the supervisor's `{arguments[0]}` failed",
                status=done.status,
                output=done.stderr,
                where=self.master.where,
            )
        try:
            return json.loads(done.text)
        except ValueError:
            raise RemoteError(
                f"the supervisor's `{arguments[0]}` did not answer in JSON",
                status=0,
                output=done.text,
                where=self.master.where,
            ) from None

    def start(self, order: Order, secrets: Mapping[str, str] | None = None, *, queue: bool = False) -> int | None:
        """Start a run that goes on without us; with `queue`, when its turn comes.

        Return its place in the queue, None where it began at once. Raises LiveRunError while another one is live or
        queued, unless this one may wait.
        """
        with self._kept(order.launch.run_id, secrets or {}):
            answer = self._call("start", *(["--queue"] if queue else []), stdin=order.to_json().encode())
        position: int | None = answer["position"]
        return position

    @contextlib.contextmanager
    def _kept(self, run_id: str, secrets: Mapping[str, str]) -> Iterator[None]:
        """Leave a run's secrets with the master, over standard input; take them away again where it does not start."""
        if not secrets:
            yield
            return
        doing, text = "leaving the secrets with the master", json.dumps(dict(secrets)).encode()
        self.master.check(vault.command("keep", run_id), directory=self.directory, stdin=text, doing=doing)
        try:
            yield
        except BaseException:
            self.master.run(vault.command("drop", run_id), directory=self.directory)
            raise

    def live(self) -> str:
        """Return the id of the live run, "" without one. One that has ended, and still clears its nodes, is none."""
        answer = self._call("status", "--live")
        return str(answer["run_id"]) if answer and answer.get("state") not in FINAL_STATES else ""

    def status(self, run_id: str = "") -> dict[str, Any]:
        """Return a run's state; of the live or newest one by default."""
        answer: dict[str, Any] = self._call("status", *([run_id] if run_id else []))
        return answer

    def runs(self) -> list[dict[str, Any]]:
        """Return the state of all runs, oldest first."""
        answer: list[dict[str, Any]] = self._call("status", "--list")
        return answer

    def stop(self, run_id: str, grace_s: float) -> dict[str, Any]:
        """Stop a run and return its final state."""
        answer: dict[str, Any] = self._call("stop", *([run_id] if run_id else []), "--grace", f"{grace_s:g}")
        return answer

    def show(self, run_id: str = "") -> dict[str, Any]:
        """Return a run's record: state, spec, result, checkpoints, sizes."""
        answer: dict[str, Any] = self._call("show", *([run_id] if run_id else []))
        return answer

    def resume(self, order: Order, secrets: Mapping[str, str] | None = None, *, queue: bool = False) -> dict[str, Any]:
        """Go on with a run; with `queue`, when its turn comes. Return its `checkpoints` and its `position` as `start`.

        Raises LiveRunError as `start`.
        """
        flags = ["--queue"] if queue else []
        with self._kept(order.launch.run_id, secrets or {}):
            answer: dict[str, Any] = self._call("resume", *flags, stdin=order.to_json().encode())
        return answer

    def remove(self, run_id: str) -> dict[str, Any]:
        """Remove a run that has ended. Raises LiveRunError for a live one."""
        answer: dict[str, Any] = self._call("remove", run_id)
        return answer

    def log_lines(self, run_id: str, *, following: bool, rank: int | None) -> Iterator[str]:
        """Yield the lines of a run's log."""
        flags = [*(["--follow"] if following else []), *(["--rank", str(rank)] if rank is not None else [])]
        command = launch.supervisor(self.stack, "logs", *([run_id] if run_id else []), *flags)
        # A quiet run is no dead connection: SSH's own keep-alive finds that one.
        stream = Interruptible(self.master.lines(command, directory=self.directory, silence_s=7 * 24 * 3600.0))
        while (line := stream.next(timeout_s=7 * 24 * 3600.0)) is not None:
            yield line


def provide_nodes(
    session: Session, master: Master, wanted: int, *, yes: bool, tell: Callable[[str], None], least: int = 0
) -> tuple[Node, ...]:
    """Return the live nodes once at least `wanted` workers are among them, growing the group after asking.

    Where `least` is not 0, so many suffice when the time is over.
    """
    nodes = capacity.read_nodes(master)
    if len(workers(nodes)) >= wanted:
        return nodes
    have = session.inventory.desired_workers
    if have < wanted:
        kind = session.inventory.workers[0].type if session.inventory.workers else session.config.worker_instance_type
        each = session.prices.per_hour([kind], wait_s=3.0)[kind]
        more = None if each is None else each * (wanted - have)
        confirm(
            f"grow the worker group from {have} to {wanted} nodes: {wanted - have} more {kind}, price {shown(more)}"
            + (" more." if more is not None else "."),
            yes=yes,
        )
        bounds.await_release(session.aws, session.stack.name, tell)
        tell(f"growing the worker group from {have} to {wanted} nodes ({kind}, price {shown(more)})")
        capacity.resize(session.aws, session.stack, wanted)
    last: list[tuple[int, int]] = []

    def show(progress: capacity.Progress) -> None:
        if last[-1:] != [(progress.ready, progress.instances)]:
            last.append((progress.ready, progress.instances))
            started = f"{progress.instances} instances, {progress.waited_s:.0f} s"
            tell(f"nodes ready: {progress.ready} of {progress.wanted} ({started})")

    timeout_s = session.config.ready_timeout_min * 60.0
    try:
        found = capacity.wait_ready(
            session.aws, master, session.stack, wanted, timeout_s=timeout_s, tell=show, least=min(least, wanted)
        )
    except (KeyboardInterrupt, NotReadyError):
        if have < wanted:
            tell(f"\nthe worker group stays at {wanted} nodes; `fab scale --nodes {have}` shrinks it again")
        raise
    if last:
        tell(f"nodes ready: {len(workers(found))} of {wanted}")
    if (came := len(workers(found))) < wanted:
        tell(capacity.shortfall(session.config.capacity_policy, came, wanted))
    return found


def specify(
    session: Session,
    work: launch.Training | Program,
    nodes: Sequence[Node],
    count: int,
    *,
    payload: str,
    program: str,
    terms: launch.Terms,
    cores: Mapping[str, int] | None = None,
) -> Launch:
    """Build the spec of a new run. Raises DeepcdkError for one that cannot be."""
    source = work.directory if isinstance(work, Program) else session.project
    try:
        return launch.build(
            session.stack,
            work,
            nodes,
            count,
            payload=payload,
            program=program,
            terms=terms,
            cores=cores,
            now=datetime.datetime.now(datetime.UTC),
            token=secrets.token_hex(2),
            git_commit=launch.git_commit(source),
        )
    except LaunchError as error:
        raise DeepcdkError(str(error), remedy="`fab status` shows the nodes") from None
