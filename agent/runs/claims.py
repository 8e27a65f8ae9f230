"""Which live run, or task of a laptop, has which nodes: the claims in the lock file of the runs.

Two claims exclude each other where they have a node in common.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from agent.runs import liveness
from agent.spec import json_text
from agent.spec.nodes import Node
from agent.spec.states import is_run_id


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimedNode:
    """One node of a claim."""

    name: str
    """It stays claimed with the name: the instance that replaces a lost one takes the lowest free name."""
    instance_id: str

    def is_same(self, node: Node | ClaimedNode) -> bool:
        """Return whether a node is this one, or takes its name."""
        return node.name == self.name or node.instance_id == self.instance_id


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """The nodes of one run, while its supervisor lives."""

    run_id: str
    nodes: tuple[ClaimedNode, ...] | None = None
    """None: every node, as one that ends the workers has them. None of them, (): the
    size of the worker group, which a task of a laptop changes."""
    task: str = ""
    """The task of a laptop that is about to end the nodes, such as `fab scale`: it holds them under an id of its own,
    so that no run begins there meanwhile. "" for a run."""

    @classmethod
    def on(cls, run_id: str, hosts: Sequence[Node | ClaimedNode] | None, task: str = "") -> Claim:
        """Return the claim of a run, or a task, on these hosts; None claims every node."""
        nodes = None if hosts is None else [ClaimedNode(name=each.name, instance_id=each.instance_id) for each in hosts]
        return cls(run_id=run_id, nodes=None if nodes is None else tuple(nodes), task=task)

    @property
    def is_live(self) -> bool:
        """Return whether the process that has it is alive: the supervisor, or before that the one that starts it."""
        return self.run_id != "" and liveness.is_held(self.run_id)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its nodes; none where it has every node."""
        return tuple(node.name for node in self.nodes or ())

    def has(self, node: Node | ClaimedNode) -> bool:
        """Return whether a node is one of this claim."""
        return self.nodes is None or any(own.is_same(node) for own in self.nodes)

    def excludes(self, other: Claim) -> bool:
        """Return whether the two have a node in common, or both are tasks that change the size of the worker group."""
        if () in (self.nodes, other.nodes):
            together = self.nodes == other.nodes or None in (self.nodes, other.nodes)
            return together and bool(self.task and other.task)
        return other.nodes is None or self.nodes is None or any(self.has(node) for node in other.nodes)

    def to_document(self) -> dict[str, Any]:
        """Return the claim as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_document(cls, document: Any) -> Claim:
        """Build the claim from JSON values. Raises ValueError, TypeError or KeyError where they are not one."""
        run_id, nodes = document["run_id"], None
        if not is_run_id(run_id):
            raise ValueError("not a run's id")
        if document.get("nodes") is not None:
            nodes = tuple(
                ClaimedNode(name=str(n["name"]), instance_id=str(n["instance_id"])) for n in document["nodes"]
            )
        return cls(run_id=run_id, nodes=nodes, task=str(document.get("task", "")))


def to_text(claims: Sequence[Claim]) -> str:
    """Return the text of the lock file."""
    return json.dumps([claim.to_document() for claim in claims])


def parse(text: bytes) -> tuple[Claim, ...]:
    """Return the claims in a lock file's text, oldest first. Raises ValueError, TypeError or KeyError."""
    return tuple(map(Claim.from_document, json_text.parse(text)))
