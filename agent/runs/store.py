"""All runs on the shared file system, and the claims that keep two of them from having a node in common."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agent.runs import accepted_spec, database, going_on, liveness
from agent.runs import claims as claiming
from agent.runs.claims import Claim, ClaimedNode
from agent.runs.directory import RunDirectory
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from agent.spec.states import FINAL_STATES, is_run_id


class LiveRunError(RuntimeError):
    """Report a live or queued run that another one has to wait for.

    `run_id` names it, `state` says which; `held` has the claims of all runs that hold nodes.
    """

    def __init__(self, run_id: str, state: str, held: Sequence[Claim] = ()) -> None:
        self.run_id, self.state, self.held = run_id, state, tuple(held)
        task = next((claim.task for claim in held if claim.run_id == run_id), "")
        first = f"`{task}` is under way" if task else f"run {run_id} is {state}"
        super().__init__(f"{first}; {describe(held) or 'wait for it, or stop it'}")

    @property
    def ends_the_queue(self) -> bool:
        """Return whether a task of a laptop holds every node, as before it destroys the cluster."""
        return any(claim.task and claim.nodes is None for claim in self.held)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        held = []
        for claim in self.held:
            task = {"task": claim.task, "every": claim.nodes is None} if claim.task else {}
            held.append({"run_id": claim.run_id, "hosts": list(claim.names), **task})
        return {"live": self.run_id, "state": self.state, "held": held}


def describe(held: Sequence[Claim]) -> str:
    """Return which run or task has which nodes, in words; "" of none."""
    return "; ".join(
        f"{f'`{claim.task}`' if claim.task else f'run {claim.run_id}'} has {', '.join(claim.names) or 'every node'}"
        for claim in held
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs under one directory of the shared file system; those that are live at once have disjoint nodes."""

    root: Path

    def __getitem__(self, run_id: str) -> RunDirectory:
        return RunDirectory(path=self.root / run_id)

    def ids(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        if not self.root.is_dir():
            return []
        found = (entry.parent.name for entry in self.root.glob("[!.]*/state.json"))
        return sorted(name for name in found if is_run_id(name))  # a rank may leave directories of any name

    def held(self) -> list[Claim]:
        """Return the claims that are in force, oldest first.

        Either a process has it, a run's supervisor or a task's hold, or the run lost its supervisor and goes on.
        """
        return [claim for claim in self.claims() if self._is_in_force(claim)]

    def live(self) -> list[str]:
        """Return the ids of the runs whose supervisor is alive, or that go on by themselves, oldest first."""
        return [claim.run_id for claim in self.held() if not claim.task]

    def watched(self) -> list[str]:
        """Return the ids of the runs with nodes that go on by themselves if their supervisor is lost, oldest first."""
        runs = [claim.run_id for claim in self.claims() if not claim.task]
        return [run_id for run_id in runs if going_on.is_watched(self.root / run_id)]

    def claim(
        self,
        run_id: str,
        hosts: Sequence[Node | ClaimedNode] | None,
        check: Callable[[], object] = lambda: None,
        *,
        task: str = "",
    ) -> list[str]:
        """Claim nodes for a run that is not live, or for a `task`, all or none of them; None claims every node.

        Return the ids of other runs that held any and have lost their supervisor; they hold none any more. Raises
        LiveRunError while a live run has one of the nodes, and what `check` raises, which is called under the mutex.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        wanted = Claim.on(run_id, hosts, task)
        with contextlib.ExitStack() as undo:
            with self.mutex() as changing:
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
        return [claim.run_id for claim in lost if claim.run_id != run_id and not claim.task]

    def move(self, run_id: str, hosts: Sequence[Node]) -> None:
        """Claim other nodes for a live run in place of those that it has.

        Raises LiveRunError while another live run has one of them, and RuntimeError where this run's claim has been
        taken away.
        """
        with self.mutex() as changing:
            held = [claim for claim in self.held() if claim.run_id != run_id]
            wanted = Claim.on(run_id, hosts)
            if others := [claim for claim in held if claim.excludes(wanted)]:
                raise LiveRunError(others[0].run_id, "live", held)
            for node in hosts:  # A lost run that does not go on may have one.
                values = (node.name, node.instance_id)
                changing.execute("DELETE FROM claimed_nodes WHERE name = ? OR instance_id = ?", values)
            self._replace(wanted)

    def claim_every_node(self, run_id: str) -> None:
        """Let no run begin until this one releases its claim; nodes that another live run has stay with it, too.

        Called under the mutex. Raises RuntimeError as `move`.
        """
        self._replace(Claim.on(run_id, None))

    def reclaim(self, spec: RunSpec) -> None:
        """Store the claim and the spec of a live run again if they are missing, because the database was damaged."""
        if all(claim.run_id != spec.run_id for claim in self.claims()):
            with self.mutex() as changing:
                accepted_spec.accept(spec)
                Claim.on(spec.run_id, spec.hosts or None).store(changing)

    def is_over(self, run_id: str) -> bool:
        """Return whether a run has ended for certain; one without a state may not have begun."""
        try:
            return self[run_id].effective_state().state in FINAL_STATES
        except (OSError, ValueError):
            return False

    def release(self, run_id: str) -> None:
        """Release the nodes that a run has claimed, if any."""
        with self.mutex() as changing:
            changing.execute("DELETE FROM claims WHERE run_id = ?", (run_id,))
            liveness.forget(run_id)

    def take_over(self, run_id: str) -> bool:
        """Take a lost run's claim; return False if it has none, or a live process has it."""
        with self.mutex():
            if all(claim.run_id != run_id or claim.is_live for claim in self.claims()):
                return False
            liveness.hold(run_id)
        return True

    def release_lost(self, run_id: str) -> bool:
        """Release the nodes of a run whose supervisor is gone; return False, and release none, where one has it now.

        Between finding it lost and this, it may have been resumed.
        """
        with self.mutex() as changing:
            if any(claim.run_id == run_id and claim.is_live for claim in self.claims()):
                return False
            changing.execute("DELETE FROM claims WHERE run_id = ?", (run_id,))
        return True

    def lost(self) -> list[str]:
        """Return the ids of the runs that hold nodes although their supervisor is gone.

        Under the mutex: no claim is released, and its process exits, between reading it and looking for the process.
        """
        with self.mutex():
            return [claim.run_id for claim in self.claims() if not claim.is_live]

    def _replace(self, claim: Claim) -> None:
        """Replace a run's claim. Raises RuntimeError if it has been taken away."""
        with self.mutex() as changing:
            values = (claim.nodes is None, claim.run_id)
            if not changing.execute("UPDATE claims SET every_node = ? WHERE run_id = ?", values).rowcount:
                raise RuntimeError(f"run {claim.run_id} no longer holds its nodes")
            changing.execute("DELETE FROM claimed_nodes WHERE run_id = ?", (claim.run_id,))
            claim.store_nodes(changing)

    def _is_in_force(self, claim: Claim) -> bool:
        if claim.is_live or claim.task:
            return claim.is_live
        try:
            return self[claim.run_id].goes_on
        except (OSError, ValueError):
            return False

    def claims(self) -> tuple[Claim, ...]:
        """Return all claims, oldest first, also those of runs whose supervisor is gone."""
        return claiming.stored()

    @contextlib.contextmanager
    def mutex(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction: no other process changes claims, queue or specs between a check and a change."""
        with database.transaction() as changing:
            yield changing
