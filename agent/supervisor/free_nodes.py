"""Choose hosts for a run among the nodes that are free now. Its own instances are preferred."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from agent.runs.node_claims import Claim, LiveRunError
from agent.spec.nodes import NODES_PATH, Node, choose_hosts, common_network, meeting_interface, parse_nodes, workers
from agent.spec.run import RunSpec


def read_nodes(warn: Callable[[str], None], nodes_path: str = NODES_PATH) -> tuple[Node, ...]:
    """Read the master's list of live nodes, from the file `nodes_path`.

    `warn` is called with a message for each invalid line. Raises OSError if the file cannot be read.
    """
    return parse_nodes(Path(nodes_path).read_text(encoding="utf-8", errors="backslashreplace"), warn)


def on_free_nodes(
    spec: RunSpec, held: Sequence[Claim], warn: Callable[[str], None], nodes_path: str = NODES_PATH
) -> RunSpec:
    """Return a run's spec on nodes that no claim in `held` covers, with as many ranks on each node as before.

    The run keeps its own nodes if they are free and still the same instances. Otherwise it gets other nodes, of the
    kinds of its own hosts if enough of these are free, and the spec's interface and network are adapted. A spec with a
    launcher of its own (`RunSpec.launcher`) is returned unchanged. `warn` is called with a message for each invalid
    line in the list of nodes. Raises LiveRunError if other runs hold too many nodes, SpecError if the cluster has too
    few, and OSError if the list cannot be read.
    """
    if spec.launcher:
        return spec
    nodes, count = read_nodes(warn, nodes_path), len(spec.hosts)
    free = [node for node in nodes if node.worker_index is None or not any(claim.has(node) for claim in held)]
    if _all_there(spec.hosts, free):
        return spec
    if len(workers(free)) < count <= len(workers(nodes)):
        raise LiveRunError(held[0].run_id, "live", held)
    chosen = choose_answering(spec, free, {node.instance_id for node in free}, count, count)
    chosen = chosen or choose_hosts(free if len(workers(free)) >= count else nodes, count)
    hosts = tuple(dataclasses.replace(new, slots=old.slots) for new, old in zip(chosen, spec.hosts, strict=True))
    masters = [node for node in nodes if node.worker_index is None]
    together = [*masters, *hosts]
    interface, network = meeting_interface(together), common_network(together)
    return dataclasses.replace(spec, hosts=hosts, interface=interface, network=network)


def choose_answering(
    spec: RunSpec,
    nodes: Sequence[Node],
    answering: Collection[str],
    least: int,
    most: int,
) -> tuple[Node, ...] | None:
    """Choose hosts for a run among the workers in `nodes`. Return them by index; None if there are fewer than `least`.

    `answering` contains the instance ids of the nodes that may be chosen. The run's own hosts are preferred. Other
    hosts must have the same kind as an own host. At most `most` hosts are chosen.
    """
    own, kinds = {host.instance_id for host in spec.hosts}, {host.kind for host in spec.hosts}
    fitting = [
        node
        for node in workers(nodes)
        if node.instance_id in answering and (node.instance_id in own or node.kind in kinds)
    ]
    # The sort is stable, so each part stays ordered by index.
    first = sorted(fitting, key=lambda node: node.instance_id not in own)
    chosen = sorted(first[:most], key=lambda node: node.worker_index or 0)
    return tuple(chosen) if len(chosen) >= least else None


def _all_there(hosts: Sequence[Node], nodes: Sequence[Node]) -> bool:
    there = {(node.name, node.instance_id, node.address) for node in nodes}
    return all((host.name, host.instance_id, host.address) in there for host in hosts)
