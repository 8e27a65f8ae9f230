"""Claims on nodes: which run, or which task on a laptop, uses which nodes. They are stored in the database of runs.

Two claims conflict if they have a node in common, so two live runs never share a node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.runs import database, liveness, run_cost, trusted_spec
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from agent.spec.run_states import FINAL_STATES


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
        """Insert the nodes of this claim, which is already stored, in the transaction `changing`.

        Raises sqlite3.IntegrityError if another claim has one of the nodes.
        """
        nodes = [(self.run_id, node.name, node.instance_id) for node in self.nodes or ()]
        changing.executemany("INSERT INTO claimed_nodes VALUES (?, ?, ?)", nodes)


class LiveRunError(RuntimeError):
    """Report a run or task that blocks another one: it is live and has the nodes, or it is earlier in the queue.

    `run_id` and `state` are those of the blocking run. `held` contains all claims that are in force.
    """

    def __init__(self, run_id: str, state: str, held: Sequence[Claim] = ()) -> None:
        self.run_id, self.state, self.held = run_id, state, tuple(held)
        task = next((claim.task for claim in held if claim.run_id == run_id), "")
        first = f"`{task}` is in progress" if task else f"run {run_id} is {state}"
        super().__init__(f"{first}; {describe_claims(held) or 'wait until it ends, or stop it'}")

    @property
    def task_holds_every_node(self) -> bool:
        """Return whether a task on a laptop holds every node, for example to destroy the cluster."""
        return any(claim.task and claim.nodes is None for claim in self.held)

    def to_document(self) -> dict[str, Any]:
        """Return JSON values: `live` and `state` of the blocking run, and `held`, the claims.

        Each claim has `run_id` and `hosts` (names). The claim of a task also has `task`, and `every`, whether it is on
        every node.
        """
        held = []
        for claim in self.held:
            task = {"task": claim.task, "every": claim.nodes is None} if claim.task else {}
            held.append({"run_id": claim.run_id, "hosts": list(claim.names), **task})
        return {"live": self.run_id, "state": self.state, "held": held}


def describe_claims(held: Sequence[Claim]) -> str:
    """Return which run or task has which nodes, as text; "" for no claims.

    A claim without names, also one on the worker group's size, is shown as `every node`.
    """
    return "; ".join(
        f"{f'`{claim.task}`' if claim.task else f'run {claim.run_id}'} uses {', '.join(claim.names) or 'every node'}"
        for claim in held
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs in one directory of the shared file system. Live runs have disjoint nodes."""

    root: Path

    def __getitem__(self, run_id: str) -> RunDirectory:
        return RunDirectory(path=self.root / run_id)

    def ids(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        return [run_id for (run_id,) in database.rows("SELECT run_id FROM states ORDER BY run_id")]

    def held(self) -> list[Claim]:
        """Return the claims that are in force, oldest first.

        A claim is in force while its process is alive: a run's supervisor or a task's hold. The claim of a run that
        continues without its lost supervisor is also in force.
        """
        return [claim for claim in self.claims() if self._is_in_force(claim)]

    def live(self) -> list[str]:
        """Return the ids of the live runs, oldest first: their supervisor is alive, or they continue without it."""
        return [claim.run_id for claim in self.held() if not claim.task]

    def watched(self) -> list[str]:
        """Return the ids of the runs that hold nodes and may be restarted if their supervisor is lost, oldest first."""
        runs = [claim.run_id for claim in self.claims() if not claim.task]
        return [run_id for run_id in runs if self[run_id].is_watched]

    def claim(
        self,
        run_id: str,
        hosts: Sequence[Node | ClaimedNode] | None,
        check: Callable[[], object] = lambda: None,
        *,
        task: str = "",
    ) -> None:
        """Claim nodes for a run that is not live, or for a `task`: all of `hosts` or none. None claims every node.

        This process then holds the run's lock. All claims that are no longer in force are deleted, and other runs that
        had one are stored as failed: they have lost their supervisor. `check` is called in the transaction and may
        raise. Raises LiveRunError if a live run or a task has one of the nodes, or the run itself is live.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        wanted = Claim.on(run_id, hosts, task)
        with contextlib.ExitStack() as undo:
            with database.transaction() as changing:
                check()
                found = self.claims()
                held = [claim for claim in found if self._is_in_force(claim)]
                for claim in held:
                    if claim.run_id == run_id or claim.excludes(wanted):
                        raise LiveRunError(claim.run_id, "live", held)
                liveness.hold(run_id)
                undo.callback(liveness.forget, run_id)
                lost = [claim for claim in found if claim not in held]
                changing.executemany("DELETE FROM claims WHERE run_id = ?", [(claim.run_id,) for claim in lost])
                wanted.store(changing)
                for claim in lost:
                    if claim.task:
                        liveness.forget(claim.run_id)
            undo.pop_all()
        for claim in lost:
            if claim.run_id != run_id and not claim.task:
                self.mark_lost(claim.run_id)

    def mark_lost(self, run_id: str, obstacle: str = "") -> None:
        """If a run has lost its supervisor and does not continue automatically, store that it has failed.

        Its time and cost are stored too. `obstacle` is the reason why a run that could continue must not; "" without
        one. Does nothing for an unknown run.
        """
        directory = self[run_id]
        with contextlib.suppress(FileNotFoundError), database.transaction():
            lost = directory.lost_state()
            if lost is None or (not obstacle and directory.continues):
                return
            reason = directory.describe_loss(lost) + (f"; the run cannot be restarted: {obstacle}" if obstacle else "")
            directory.mark_failed(reason)
            run_cost.settle_spent(directory, time.time())

    def move(self, run_id: str, hosts: Sequence[Node]) -> None:
        """Claim `hosts` for a live run instead of its previous nodes.

        Raises LiveRunError if another live run has one of the new nodes, and RuntimeError if this run's claim was
        deleted.
        """
        with database.transaction() as changing:
            held = [claim for claim in self.held() if claim.run_id != run_id]
            wanted = Claim.on(run_id, hosts)
            if others := [claim for claim in held if claim.excludes(wanted)]:
                raise LiveRunError(others[0].run_id, "live", held)
            for node in hosts:  # A claim that is no longer in force may contain one.
                values = (node.name, node.instance_id)
                changing.execute("DELETE FROM claimed_nodes WHERE name = ? OR instance_id = ?", values)
            self._replace(wanted)

    def claim_every_node(self, run_id: str) -> None:
        """Extend a run's claim to every node, so that no other run starts until the claim is released.

        Other live runs keep their nodes. Call this in a transaction. Raises RuntimeError if the run's claim was
        deleted.
        """
        self._replace(Claim.on(run_id, None))

    def reclaim(self, spec: RunSpec, state: State) -> None:
        """Store the claim, accepted spec and state of a live run again if the database lost them when it was damaged.

        The spec and the claim are stored if the claim is missing. The state is stored if another state, or none, is
        stored.
        """
        if all(claim.run_id != spec.run_id for claim in self.claims()):
            with database.transaction() as changing:
                trusted_spec.accept(spec)
                Claim.on(spec.run_id, spec.hosts or None).store(changing)
        if database.rows("SELECT state FROM states WHERE run_id = ?", spec.run_id) != [(state.state,)]:
            self[spec.run_id].write_state(state)

    def is_over(self, run_id: str) -> bool:
        """Return whether a run has definitely ended. Returns False for an unknown run: it may not have started yet."""
        try:
            return self[run_id].effective_state().state in FINAL_STATES
        except FileNotFoundError:
            return False

    def release(self, run_id: str) -> None:
        """Delete the claim of a run, if it has one, and release and remove its lock."""
        with database.transaction() as changing:
            changing.execute("DELETE FROM claims WHERE run_id = ?", (run_id,))
            liveness.forget(run_id)

    def take_over(self, run_id: str) -> bool:
        """Take the lock of a lost run, and return True.

        Return False if the run has no claim, or a live process has the lock.
        """
        with database.transaction():
            if all(claim.run_id != run_id or claim.is_live for claim in self.claims()):
                return False
            liveness.hold(run_id)
        return True

    def release_lost(self, run_id: str) -> bool:
        """Delete the claim of a run that lost its supervisor, and return True.

        Return False, and change nothing, if the run is live again: it may have been resumed since the caller found it
        lost.
        """
        with database.transaction() as changing:
            if any(claim.run_id == run_id and claim.is_live for claim in self.claims()):
                return False
            changing.execute("DELETE FROM claims WHERE run_id = ?", (run_id,))
        return True

    def lost(self) -> list[str]:
        """Return the ids of the runs that hold nodes and have lost their supervisor, oldest first.

        The claims are read in a transaction. Otherwise a supervisor could release its claim and exit after the claim
        was read. A task that has lost its process is left out: the next `claim` deletes its claim.
        """
        with database.transaction():
            return [claim.run_id for claim in self.claims() if not claim.task and not claim.is_live]

    def _replace(self, claim: Claim) -> None:
        """Replace the nodes of a run's stored claim. Raises RuntimeError if the claim was deleted."""
        with database.transaction() as changing:
            values = (claim.nodes is None, claim.run_id)
            if not changing.execute("UPDATE claims SET every_node = ? WHERE run_id = ?", values).rowcount:
                raise RuntimeError(
                    f"run {claim.run_id} has no claim on nodes any more: another command found it lost, or the "
                    f"master's database was damaged; to continue the run: `fab resume {claim.run_id}`"
                )
            changing.execute("DELETE FROM claimed_nodes WHERE run_id = ?", (claim.run_id,))
            claim.store_nodes(changing)

    def _is_in_force(self, claim: Claim) -> bool:
        if claim.is_live or claim.task:
            return claim.is_live
        try:
            return self[claim.run_id].continues
        except FileNotFoundError:
            return False

    def claims(self) -> tuple[Claim, ...]:
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
