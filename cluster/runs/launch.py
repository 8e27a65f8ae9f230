"""Launch a run for a task: read prices and limits in the background, submit the run, and watch it to its end."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Final

from invoke.exceptions import Exit

from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from agent.spec.run_limits import RunLimits
from agent.spec.submission import Submission
from cluster.aws import worker_limits
from cluster.aws.inventory import refresh
from cluster.cli import INTERRUPTED_STATUS
from cluster.cli.task import Json
from cluster.errors import UsageError
from cluster.nodes.grow import GroupTask, ensure_nodes
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.worker_group import describe_alarms
from cluster.polling import in_background
from cluster.runs import limit_checks
from cluster.runs.fault_cost import describe_of_recipe
from cluster.runs.follow import watch
from cluster.runs.limit_checks import check_prices
from cluster.runs.minimum_speeds import with_floors
from cluster.runs.progress_display import describe_end, document
from cluster.runs.provenance import origin_of, read_roots
from cluster.runs.supervisor_client import Begun, Supervisor
from cluster.session import Session
from cluster.ssh.master import Master
from cluster.ssh.push import Tree
from cluster.terminal.output import print_result, progress_printer
from cluster.terminal.status_line import interruptible
from cluster.terminal.wrap import fitted
from payload.settings import Settings

PRICE_WAIT_S: Final = 0.5
BOUND_STATUS: Final = 3
"""Exit status after a run was stopped by its own cost or time limit. Such a run neither failed nor completed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Following:
    """Options for watching a launched run and for the format of the output."""

    detach: Annotated[bool, "launch the run and exit; default: watch it until it ends"] = False
    json: Json = False


class Launch:
    """Launch a run for a task, in steps that the task calls one by one.

    The constructor only starts to read the cluster's limits, the prices and the run's origin, in the background.
    """

    def __init__(
        self,
        session: Session,
        source: Path,
        *,
        task: str,
        queue: bool,
        yes: bool,
        following: Following,
        unrecorded: Collection[str] = (),
    ) -> None:
        """`task` is the name of the task, such as `fab train`. `source` is the directory with the code of the run.

        With `queue`, the run may wait in the queue. With `yes`, questions are answered with yes. `unrecorded` are files
        in `source` whose changes must not be in the record.
        """
        self.session, self.task, self.queue, self.yes, self.following = session, task, queue, yes, following
        self.progress = progress_printer(json=following.json)
        session.prices.begin(session.instance_types)
        stack = session.stack
        self._bounds = in_background(lambda: worker_limits.read_or_explain(session.aws, stack.name))
        self._estimate: dict[str, Any] = {}
        self._roots = in_background(lambda: read_roots(session.aws, stack, source, unrecorded))

    def check_prices(self, wanted: RunLimits) -> None:
        """Raise DeepcdkError if the cost is limited and the price of one of the cluster's instance types is unknown.

        Waits up to 3 s for prices.
        """
        session = self.session
        check_prices(wanted, [*session.instance_types, *session.config.worker_types], session.prices)

    def push(self, master: Master, tree: Tree) -> None:
        """Push a tree to the master and print the result. Asks first if the tree is large. Raises DeepcdkError."""
        self.session.confirm_upload(master, tree, self.progress, yes=self.yes)
        terminal = sys.stdout.isatty() and not self.following.json
        self.progress(str(self.session.push(master, tree, self.progress, terminal=terminal)))

    def size_for(self, count: int, occupied: Occupancy) -> int:
        """Return how many workers the cluster needs so that a run on `count` of them can start.

        `occupied` are the nodes of other runs. If this run may be queued, the result is `count`, otherwise `count` plus
        the number of nodes in `occupied`. If this run may not be queued, raises LiveRunError if another one is queued,
        or if runs are live and the cluster would have to grow.
        """
        return occupied.size_for(count, self.session.load_inventory().desired_workers, queueing=self.queue)

    def free_nodes(self, master: Master, count: int, occupied: Occupancy, *, least: int = 0) -> tuple[Node, ...]:
        """Return the candidates for the nodes of a run on `count` workers, often more than `count`, with the master.

        They are all free nodes, or all nodes if the run may be queued and too few are free. If there are too few nodes,
        the group grows, after asking, and this waits until they are ready. `occupied` are the nodes of other runs. If
        `least` is not 0, that many workers are enough after the timeout. Raises LiveRunError if too few nodes are free,
        NotReadyError after the timeout, and DeepcdkError if the answer is no.
        """
        size = self.size_for(count, occupied)
        task = GroupTask(session=self.session, master=master, name=self.task, yes=self.yes, report=self.progress)
        found = ensure_nodes(task, size, least=least and least + size - count)
        return occupied.choice(found, count, queueing=self.queue)

    def configured(self, spec: RunSpec) -> RunSpec:
        """Return the spec with the address of the wheelhouse, and the minimum speeds of its nodes by their types.

        If the spec has nodes that joined after AWS was asked, the session's inventory is read again. Raises AwsError.
        """
        session = self.session
        inventory = session.load_inventory()
        if {host.instance_id for host in spec.hosts} - {instance.id for instance in inventory.instances}:
            inventory = session.loaded_inventory = refresh(session.aws, inventory.stack)
        types = {instance.id: instance.type for instance in inventory.instances}
        spec = dataclasses.replace(spec, horovod_wheelhouse=session.config.wheelhouse)
        return with_floors(spec, types, efa=session.config.efa)

    def estimate(
        self, settings_of: Callable[[int], Settings], nodes: int, ranks_per_node: str, *, restarts: int
    ) -> None:
        """Print the expected time and cost of a recipe on this number of nodes, and keep the estimate for the record.

        `settings_of` returns the recipe's settings for a number of ranks. Also print what a fault would cost, unless
        the settings are invalid for one rank per node. If no estimate is possible, the reason is printed. Raises
        UsageError if the settings are invalid for the number of ranks.
        """
        from cluster.planner.run_estimate import RunEstimate, estimate_run  # 0.05 s, which a resumed run need not wait

        session = self.session
        workers = session.load_inventory().workers
        kind = workers[0].type if workers else session.config.worker_instance_type
        price = session.prices.per_hour([kind], PRICE_WAIT_S)[kind]
        found = estimate_run(
            settings_of,
            kind,
            nodes,
            session.config,
            nodes_are_up=len(workers) >= nodes,
            usd_per_hour=price,
            ranks_per_node=ranks_per_node,
            calibration=session.calibration,
        )
        self.progress(str(found))
        known = found if isinstance(found, RunEstimate) else None
        self._estimate = known.document() if known else {}
        with contextlib.suppress(UsageError):
            settings = settings_of(nodes)
            told = describe_of_recipe(
                settings,
                epochs=known.epochs if known else settings.total_epochs,
                run_s=known.seconds.high if known else None,
                usd_per_hour=None if price is None else nodes * price,
                restarts=restarts,
            )
            self.progress(told)

    def submission(self, spec: RunSpec) -> Submission:
        """Build the submission of a run. Print how long the run may take under its own and the cluster's limits.

        Raises DeepcdkError if the cost is limited and a price is unknown.
        """
        for line in worker_limits.cautions(self._bounds.result(), datetime.datetime.now(datetime.UTC)):
            self.progress(line)
        session = self.session
        origin = origin_of(
            self._roots.result(),
            aws=session.aws,
            inventory=session.load_inventory(),
            prices=session.prices,
            config=session.config,
        )
        for line in limit_checks.describe(spec, origin):
            self.progress(line)
        return Submission(spec=spec, origin=dataclasses.replace(origin, estimate=self._estimate))

    def submit(self, spec: RunSpec, send: Callable[[Submission], Begun]) -> Begun:
        """Submit the run with `send`, and return the result. On Ctrl-C, print that the run may have started.

        The spec first gets the session's setting for the replacement of lost workers. Raises the errors of `submission`
        and `send`.
        """
        submission = self.submission(dataclasses.replace(spec, replacements=self.session.replacements))
        remedy = f"watch it with `fab attach --run {spec.run_id}`, or stop it with `fab stop --run {spec.run_id}`"
        with interruptible(f"\nrun {spec.run_id} may have started; {remedy}", self.progress):
            return send(submission)

    def announce(self, run_id: str, position: int | None, text: str) -> None:
        """Print `text`. If the run waits in the queue, print its `position` first; None if it does not wait."""
        if position:
            self.progress(
                f"run {run_id} is at position {position} of the queue; `fab stop --run {run_id}` removes it from the "
                "queue"
            )
        self.progress(text)

    def follow(self, supervisor: Supervisor, run_id: str, position: int | None, text: str, *, log: bool) -> None:
        """Announce the run as `announce` does. Then watch the run to its end, or with --detach, print how to watch it.

        `log` includes the run's output. Raises Exit as `watch_to_end` does.
        """
        self.announce(run_id, position, text)
        if not self.following.detach:
            watch_to_end(self.session, supervisor, run_id, log=log, json=self.following.json)
            return
        self.progress(f"run {run_id} continues on the cluster; watch it with `fab attach --run {run_id}`")
        if self.following.json:
            print_result(document(run_id, position=position), json=True)


def watch_to_end(
    session: Session, supervisor: Supervisor, run_id: str, *, log: bool, json: bool, with_document: bool = True
) -> str:
    """Watch a run to its end, print how it ended, and return its state: succeeded or stopped.

    `log` includes the run's output. With `json` and `with_document`, the end is also printed as a JSON document. Raises
    Exit, which has the message to print, with status 1 if the run failed, 3 if its own limit stopped it, or 130 on
    Ctrl-C, after which the run continues.
    """
    try:
        usd_per_hour = session.usd_per_hour(PRICE_WAIT_S)
        progress = watch(supervisor, run_id, connect=session.connect, usd_per_hour=usd_per_hour, log=log, aside=json)
    except KeyboardInterrupt:
        remedy = f"  watch it again with `fab attach --run {run_id}`, stop it with `fab stop --run {run_id}`"
        text = f"\nstopped watching; run {run_id} continues\n{remedy}"
        raise Exit(fitted(text, sys.stderr), code=INTERRUPTED_STATUS) from None
    usd_per_hour = session.usd_per_hour(wait_s=0.0)
    text, failed = describe_end(progress, usd_per_hour, log=log)
    if json and with_document:
        print_result(document(run_id, progress, usd_per_hour), json=True)
    if failed:
        state = {"started": progress.started or 0.0, "updated": progress.updated or 0.0}
        text += "".join(f"\n  {line}" for line in describe_alarms(session.aws, session.stack, state))
        raise Exit(fitted(text, sys.stderr), code=1)
    if progress.bound:
        raise Exit(fitted(text, sys.stderr), code=BOUND_STATUS)
    progress_printer(json=json)(text)
    return progress.state
