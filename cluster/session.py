"""One task's way to the cluster: configuration, AWS, the master, and the supervisor on it."""

from __future__ import annotations

import datetime
import functools
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cluster import bounds, capacity, launch
from cluster import inventory as stock
from cluster.aws import Aws
from cluster.connection import Master, connect
from cluster.errors import DeepcdkError, NotReadyError, UsageError
from cluster.price import Prices, cache_file, shown, total_per_hour
from cluster.program import Program
from cluster.prose import fitted
from cluster.push import Pushed, Tree, control_tree, look, push
from cluster.supervisor import Supervisor
from payload.launch import Launch, LaunchError, Node, workers
from stacks.config import NOWHERE, ClusterConfig, ConfigError
from stacks.keys.network import ONE_NAT_GATEWAY
from stacks.validation import validate


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
        # On stderr, for the output may be a document; input() would put its prompt there too, but cut at the edge.
        print(fitted(f"{question} [y/N]", sys.stderr), end=" ", file=sys.stderr, flush=True)
        answer = input()
    except EOFError:  # Ctrl-D
        print(file=sys.stderr)
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
        self._there: frozenset[str] = frozenset()

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

    def look(self, master: Master, trees: Sequence[Tree]) -> None:
        """Ask at once which of these trees, and of what the tasks need, are there: a push then knows."""
        asked = [control_tree(self.project / "payload"), *trees]
        self._there |= look(master, self.stack.payloads_root, asked)

    def push(
        self, master: Master, tree: Tree, tell: Callable[[str], None] | None = None, *, terminal: bool = False
    ) -> Pushed:
        """Push a tree, telling of an upload that may take long, on a terminal with a bar."""
        return push(master, self.stack.payloads_root, tree, tell, terminal=terminal, there=self._there)

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
