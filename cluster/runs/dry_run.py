"""Lines that `fab train --dry-run` prints: the nodes to add and the commands to run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from agent.launch.launcher_command import Interpreters, launcher_command
from agent.spec.launchers import HOROVOD
from agent.spec.nodes import MASTER_NAME, MASTERS_TREES, NODE_PYTHON, WORKER_PREFIX, Node, workers
from agent.spec.run import RunSpec

RANKS: Final = "RUNTIME/bin/python"
MASTERS: Final = "MASTER_ENVIRONMENT/bin/python"
_UNKNOWN: Final = Node(
    name=MASTER_NAME,
    address="0.0.0.0",  # noqa: S104  # nothing listens there
    instance_id="i-00000000",
    slots=1,
    interface="eth0",
    zone="us-east-1a",
    kind="x86_64",
)
"""Placeholder node for a dry run before any worker exists. Only its one slot is shown."""


def with_planned(nodes: Sequence[Node], count: int) -> tuple[Node, ...]:
    """Return the nodes plus those that a launch on `count` workers would add.

    Added nodes get the names that they will have. They are copies of an existing worker, or have unknown properties if
    there is none.
    """
    there = workers(nodes)
    names = {node.name for node in there}
    like = there[0] if there else _UNKNOWN
    absent = [f"{WORKER_PREFIX}{index}" for index in range(1, count + 1) if f"{WORKER_PREFIX}{index}" not in names]
    added = [dataclasses.replace(like, name=name) for name in absent[: max(0, count - len(there))]]
    return (*nodes, *added)


def dry_run_lines(nodes: Sequence[Node], spec: RunSpec) -> Iterator[str]:
    """Yield lines on what a launch would do: the nodes to add, the launcher's command and each rank's command.

    Lines that are not commands begin with #. `nodes` are the live nodes. The hosts of `spec` may include nodes that do
    not exist yet. Words in capitals stand for paths that are unknown before the launch.
    """
    names = {node.name for node in workers(nodes)}
    if added := [host.name for host in spec.hosts if host.name not in names]:
        total = len(spec.hosts)
        yield f"# {total - len(added)} of {total} nodes are ready; these would be added first: {', '.join(added)}"
    if not names:
        spec = dataclasses.replace(spec, network="")  # no worker's address is known
    yield f"# in ~/{MASTERS_TREES}/{spec.agent} on the master, once RUNTIME is the same on all hosts:"
    launcher = MASTERS if spec.rank_launcher == HOROVOD else NODE_PYTHON
    yield shlex.join(launcher_command(spec, Interpreters(launcher=launcher, ranks=RANKS, runtime="RUNTIME")))
    yield f"# and each rank then runs, in {spec.working_directory}:"
    yield shlex.join(spec.rank_command(RANKS))
