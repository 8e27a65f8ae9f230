"""Measure the load of all nodes at the same time, through the master, for `fab status --load`."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.hardware.load import Load
from agent.spec.laptop_requests import RemoteCommand
from agent.spec.nodes import MASTER_NAME, NODE_PYTHON, Node
from cluster.errors import DeepcdkError
from cluster.nodes.occupancy import Occupancy
from cluster.ssh import command_on_nodes
from cluster.terminal.tables import Table
from cluster.terminal.units import rate

if TYPE_CHECKING:
    from cluster.aws.inventory import Inventory
    from cluster.ssh.master import Master

Loads = Mapping[str, "Load | str"]
"""By node name: its load, or why that is unknown."""


def read(master: Master, directory: str, shared_agent: str, nodes: Sequence[Node]) -> dict[str, Load | str]:
    """Measure the load of all nodes at the same time; return it by node name. This takes little more than a second.

    The result for a node that failed is the reason as text. Raises DeepcdkError only if there are no workers and the
    master cannot be measured. The master runs the agent in `directory`, below the login user's home. The workers run
    the one in `shared_agent`.
    """

    def command(tree: str) -> tuple[str, ...]:
        return ("env", f"PYTHONPATH={tree}", NODE_PYTHON, "-m", "agent.hardware.load")

    requests = [RemoteCommand(command=command(directory), master=True)]
    if any(node.worker_index for node in nodes):
        requests.append(RemoteCommand(command=command(shared_agent)))
    found: dict[str, Load | str] = {}
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(requests)) as pool:
        asked = [pool.submit(command_on_nodes.run, master, directory, request, None) for request in requests]
        for request, done in zip(requests, asked, strict=True):
            try:
                found.update({result.name: _load(result) for result in done.result()})
            except DeepcdkError as error:
                if len(requests) == 1:
                    raise
                names = [node.name for node in nodes if (node.name == MASTER_NAME) == request.master]
                found.update(dict.fromkeys(names, error.what))
    return found


def _load(result: command_on_nodes.HostResult) -> Load | str:
    if result.failed:
        return result.reason
    try:
        return Load.from_json(result.stdout.decode(errors="replace"))
    except ValueError as error:
        return str(error)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """An instance, and the node that it has joined as."""

    instance_id: str
    name: str
    """Name within the cluster; "" until it has joined."""
    load: Load | str
    """The load, or why it is unknown."""
    run_id: str = ""
    """The live run on this node; "" if there is none."""


def rows(
    inventory: Inventory, nodes: Sequence[Node], loads: Loads, occupied: Occupancy | None = None
) -> tuple[Row, ...]:
    """Pair every instance with its node, load and live run. The master comes first, then workers by number, then
    instances that have not joined.

    A load may be the reason why it is unknown. `occupied` contains the live runs; without it, no run is shown.
    """
    occupied = occupied or Occupancy()
    by_instance = {node.instance_id: node for node in nodes}
    found = []
    for instance in inventory.instances:
        node = by_instance.get(instance.id)
        load = loads.get(node.name, "no answer") if node else f"{instance.state}, has not joined the cluster"
        run_id = occupied.run_on(node.name) if node else ""
        found.append(Row(instance_id=instance.id, name=node.name if node else "", load=load, run_id=run_id))
    order = {node.name: node.worker_index or 0 for node in nodes}
    return tuple(sorted(found, key=lambda row: order.get(row.name, math.inf)))


def table(rows_: Sequence[Row]) -> Table:
    """Build the table of the nodes' load. Its footer has the reasons why a node's load is unknown."""
    return Table(
        title="load over one second",
        columns=("node", "run", "instance", "CPU", "memory", "GPU", "GPU memory", "received", "sent", "disk"),
        rows=tuple(
            (command_on_nodes.short(row.name) or "-", row.run_id or "-", row.instance_id, *_cells(row.load))
            for row in rows_
        ),
        footer=tuple(
            f"{command_on_nodes.short(row.name) or row.instance_id}: load unknown: {row.load}"
            for row in rows_
            if isinstance(row.load, str)
        ),
        expendable=("disk", "instance", "sent"),
    )


def _cells(load: Load | str) -> tuple[str, ...]:
    """Format a node's load as the seven last cells of its row. Each cell is "-" if its value is unknown."""
    if isinstance(load, str):
        return ("-",) * 7
    gpus = load.gpus
    busy = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    total = [gpu.memory_total for gpu in gpus if gpu.memory_total is not None]
    return (
        f"{load.processor:.0%} of {load.cores}",
        f"{_gib(load.memory_used)} of {_gib(load.memory_total)} GiB",
        f"{sum(busy) / len(busy):.0%} of {len(gpus)}" if busy else "-",
        f"{_gib(sum(used))} of {_gib(sum(total))} GiB" if used and total else "-",
        rate(load.received_per_s),
        rate(load.sent_per_s),
        f"{load.disk_used / max(1, load.disk_total):.0%} of {_gib(load.disk_total)} GiB",
    )


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f}" if size < 100 * 2**30 else f"{size / 2**30:,.0f}"


def documents(rows_: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows as JSON values: `instance`, `name`, `run`, and the fields of the load.

    If the load is unknown, `trouble` has the reason instead.
    """
    return [
        {
            "instance": row.instance_id,
            "name": row.name,
            "run": row.run_id,
            **({"trouble": row.load} if isinstance(row.load, str) else dataclasses.asdict(row.load)),
        }
        for row in rows_
    ]
