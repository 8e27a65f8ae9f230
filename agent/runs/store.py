"""All runs on the shared file system, and the lock that keeps two of them from having a node in common."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agent.files.atomic_write import no_follow, open_to_append, write_atomically
from agent.runs import going_on, liveness
from agent.runs.claims import Claim, ClaimedNode, parse, to_text
from agent.runs.directory import DISK_FULL, RunDirectory
from agent.spec.nodes import Node
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

    @property
    def lock(self) -> Path:
        return self.root / ".live"

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
        runs = [claim.run_id for claim in self.claims() if claim.run_id and not claim.task]
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
        with self.mutex():
            check()
            found = self.claims()
            held = [claim for claim in found if self._is_in_force(claim)]
            for claim in held:
                if claim.run_id == run_id or claim.excludes(wanted):
                    raise LiveRunError(claim.run_id, "live", held)
            liveness.hold(run_id)
            try:
                self._write([*held, wanted])
            except BaseException:
                liveness.forget(run_id)
                raise
            lost = [claim for claim in found if claim not in held and claim.run_id not in ("", run_id)]
            for claim in lost:
                if claim.task:
                    liveness.forget(claim.run_id)
        return [claim.run_id for claim in lost if not claim.task]

    def move(self, run_id: str, hosts: Sequence[Node]) -> None:
        """Claim other nodes for a live run in place of those that it has.

        Raises LiveRunError while another live run has one of them, and RuntimeError where this run's claim has been
        taken away.
        """
        with self.mutex():
            held = [claim for claim in self.held() if claim.run_id != run_id]
            wanted = Claim.on(run_id, hosts)
            if others := [claim for claim in held if claim.excludes(wanted)]:
                raise LiveRunError(others[0].run_id, "live", held)
            self._change(run_id, nodes=wanted.nodes)

    def claim_every_node(self, run_id: str) -> None:
        """Let no run begin until this one releases its claim; nodes that another live run has stay with it, too.

        Called under the mutex. Raises RuntimeError as `move`.
        """
        self._change(run_id, nodes=None)

    def is_over(self, run_id: str) -> bool:
        """Return whether a run has ended for certain; one without a state may not have begun."""
        try:
            return self[run_id].effective_state().state in FINAL_STATES
        except (OSError, ValueError):
            return False

    def release(self, run_id: str) -> None:
        """Release the nodes that a run has claimed, if any."""
        with self.mutex():
            found = self.claims()
            if any(claim.run_id == run_id for claim in found):
                self._write([claim for claim in found if claim.run_id != run_id])
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
        with self.mutex():
            found = self.claims()
            if any(claim.run_id == run_id and claim.is_live for claim in found):
                return False
            self._write([claim for claim in found if claim.run_id != run_id])
        return True

    def lost(self) -> list[str]:
        """Return the ids of the runs that hold nodes although their supervisor is gone.

        Under the mutex: no claim is released, and its process exits, between reading it and looking for the process.
        """
        with self.mutex():
            return [claim.run_id for claim in self.claims() if claim.run_id and not claim.is_live]

    def _change(self, run_id: str, **changes: Any) -> None:
        """Change a run's claim, under the mutex. Raises RuntimeError where it has been taken away."""
        found = self.claims()
        if all(claim.run_id != run_id for claim in found):
            raise RuntimeError(f"run {run_id} no longer holds its nodes")
        self._write([dataclasses.replace(each, **changes) if each.run_id == run_id else each for each in found])

    def _is_in_force(self, claim: Claim) -> bool:
        if claim.is_live or claim.task or not claim.run_id:
            return claim.is_live
        try:
            return self[claim.run_id].goes_on
        except (OSError, ValueError):
            return False

    def claims(self) -> tuple[Claim, ...]:
        """Return all claims, oldest first, also those of runs whose supervisor is gone."""
        try:
            return parse(self.lock.read_bytes())
        except FileNotFoundError:
            return ()
        except (ValueError, TypeError, KeyError, AttributeError):
            # Spoilt: as good as stale.
            return (Claim(run_id=""),)

    def _write(self, held: Sequence[Claim]) -> None:
        """Write the lock file, under the mutex; on a full disk in the room that it has already."""
        if not held:
            self.lock.unlink(missing_ok=True)
            return
        text = to_text(held)
        try:
            write_atomically(self.lock, text)
        except OSError as error:
            if error.errno not in DISK_FULL or not self.lock.exists() or len(text) > self.lock.stat().st_size:
                raise
            with open(self.lock, "r+b", buffering=0, opener=no_follow) as file:  # a run that ends must let its nodes go
                file.write(text.encode().ljust(self.lock.stat().st_size))

    @contextlib.contextmanager
    def mutex(self) -> Iterator[None]:
        """Lock the mutex, so that no other process changes the lock or the queue between a check and a change."""
        with open_to_append(self.root / ".mutex") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
