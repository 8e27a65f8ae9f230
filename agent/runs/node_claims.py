"""Claims on nodes: which run, or which task on a laptop, uses which nodes. They are stored in the database of runs.

Two claims conflict if they have a node in common.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Sequence

from agent.runs import database, liveness
from agent.spec.nodes import Node


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimedNode:
    """A claimed node."""

    name: str
    """The name is claimed like the instance, because the replacement of a lost instance takes the lowest free name."""
    instance_id: str

    @classmethod
    def parse(cls, text: str) -> ClaimedNode:
        """Parse a node from a command line, `NAME=INSTANCE_ID`. Both parts may be empty: nothing is checked."""
        name, _, instance_id = text.partition("=")
        return cls(name=name, instance_id=instance_id)

    def is_same(self, node: Node | ClaimedNode) -> bool:
        """Return whether a node is this instance, or has its name."""
        return node.name == self.name or node.instance_id == self.instance_id


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """The nodes of a run or a task. A claim is in force while its process is alive (`Runs.held`)."""

    run_id: str
    nodes: tuple[ClaimedNode, ...] | None = None
    """None for every node, as in the claim of a run that stops the workers. An empty tuple stands for the size of the
    worker group, which a task on a laptop changes."""
    task: str = ""
    """The task on a laptop that is about to terminate the nodes, such as `fab scale`; "" for a run. The claim of a task
    has its own id in `run_id`. It prevents a run from starting on these nodes in the meantime."""

    @classmethod
    def on(cls, run_id: str, hosts: Sequence[Node | ClaimedNode] | None, task: str = "") -> Claim:
        """Return the claim of a run on `hosts`. None stands for every node, () for the size of the worker group.

        `task` is the name of a task on a laptop, if the claim is the task's; `run_id` is then the claim's own id.
        """
        nodes = None if hosts is None else [ClaimedNode(name=each.name, instance_id=each.instance_id) for each in hosts]
        return cls(run_id=run_id, nodes=None if nodes is None else tuple(nodes), task=task)

    @property
    def is_live(self) -> bool:
        """Return whether the claim's process is alive: the supervisor, the process that starts it, or a task's hold."""
        return liveness.is_held(self.run_id)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the claimed nodes; () for a claim on every node or on the size of the worker group."""
        return tuple(node.name for node in self.nodes or ())

    def has(self, node: Node | ClaimedNode) -> bool:
        """Return whether this claim contains a node, by its name or instance id. Always true if it is on every node."""
        return self.nodes is None or any(own.is_same(node) for own in self.nodes)

    def excludes(self, other: Claim) -> bool:
        """Return whether this claim and another one conflict, because they have a node in common.

        A claim on the worker group's size conflicts only with a claim of a task: on the size too, or on every node.
        """
        if () in (self.nodes, other.nodes):
            together = self.nodes == other.nodes or None in (self.nodes, other.nodes)
            return together and bool(self.task and other.task)
        return other.nodes is None or self.nodes is None or any(self.has(node) for node in other.nodes)

    def store(self, changing: sqlite3.Connection) -> None:
        """Insert this claim in the transaction `changing`.

        Raises sqlite3.IntegrityError if another claim has one of its nodes.
        """
        changing.execute(
            "INSERT INTO claims (run_id, task, every_node) VALUES (?, ?, ?)",
            (self.run_id, self.task, self.nodes is None),
        )
        self.store_nodes(changing)

    def store_nodes(self, changing: sqlite3.Connection) -> None:
        """Insert the nodes of this claim, which is already stored. Raises sqlite3.IntegrityError like `store`."""
        nodes = [(self.run_id, node.name, node.instance_id) for node in self.nodes or ()]
        changing.executemany("INSERT INTO claimed_nodes VALUES (?, ?, ?)", nodes)


def stored() -> tuple[Claim, ...]:
    """Return all claims, oldest first, including those of runs that lost their supervisor. Raises DatabaseError."""
    found: dict[str, Claim] = {}
    query = """
        SELECT run_id, task, every_node, name, instance_id
        FROM claims LEFT JOIN claimed_nodes USING (run_id) ORDER BY place, claimed_nodes.rowid
    """
    for run_id, task, every_node, name, instance_id in database.rows(query):
        nodes = () if run_id not in found else found[run_id].nodes or ()
        more = () if name is None else (ClaimedNode(name=name, instance_id=instance_id),)
        found[run_id] = Claim(run_id=run_id, task=task, nodes=None if every_node else (*nodes, *more))
    return tuple(found.values())
