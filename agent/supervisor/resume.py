"""What can be done with a run that has ended: go on from its last checkpoint, remove it."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import time
from collections.abc import Sequence
from typing import Any, Final

from agent.errors import SpecError
from agent.runs import record
from agent.runs.store import LiveRunError, RunDirectory, Runs, State
from agent.spec.nodes import Node, common_network, meeting_interface
from agent.spec.run import RunSpec

RESUMABLE: Final = ("-m", "payload.train")
"""Beginning of the commands that know how to go on from a checkpoint."""
RESUME: Final = "--resume"


def resumed(
    before: RunSpec, nodes: Sequence[Node], hosts: Sequence[Node], *, agent: str, other_ranks: bool = False
) -> RunSpec:
    """Build the spec with which a run goes on, on these hosts. Raises SpecError where it cannot.

    `agent`: the tree that this version pushed. A recipe keeps the one that it was launched with, whose modules its
    payload imports; a run of an older version named none, and its payload needs none.
    `other_ranks`: whether there may be more or fewer ranks than before; payload.train then keeps its images a step.
    """
    if before.launcher or not (before.program or before.command[:2] == RESUMABLE):
        raise SpecError(f"run {before.run_id} is neither of payload.train nor of a program, which know how to go on")
    if before.ranks_per_node:
        hosts = [dataclasses.replace(host, slots=before.ranks_per_node) for host in hosts]
    ranks = sum(host.slots for host in hosts)
    if ranks != before.ranks and not other_ranks:
        raise SpecError(
            f"run {before.run_id} had {before.ranks} ranks; these hosts take {ranks}. To go on with as many, name the "
            f"number of nodes: --nodes {len(hosts)}"
        )
    # A program finds its own checkpoints: it runs again, unchanged, in the directory that it left.
    same = before.program or RESUME in before.command
    command = before.command if same else (*before.command, RESUME)
    interface, network = meeting_interface(nodes), common_network(nodes)
    return dataclasses.replace(
        before,
        agent=agent if before.program else before.agent or agent,
        payload="" if before.program else before.payload,
        command=command,
        hosts=tuple(hosts),
        interface=interface,
        network=network,
    )


def beginning(spec: RunSpec, checkpoints: Sequence[str]) -> str:
    """Say from where a run goes on. `checkpoints`: those in its directory, oldest first."""
    if spec.program:
        return "in the directory that it left"
    if checkpoints:
        return f"from {checkpoints[-1]}"
    if any(word.partition("=")[0] == "--checkpoint-dir" for word in spec.command):
        return "from what it finds at its --checkpoint-dir"
    return "from the beginning, for it has no checkpoint"


def check_resumable(directory: RunDirectory, state: State) -> None:
    """Raise SpecError for a run that has nothing to go on with."""
    if state.state == "succeeded":
        raise SpecError(f"run {directory.run_id} has succeeded; there is nothing left to go on with")


def reopen(directory: RunDirectory, spec: RunSpec, state: State) -> None:
    """Make an ended run a starting one: keep the earlier spec beside the new one, drop what asked it to stop."""
    attempts = len(list(directory.path.glob("spec-*.json"))) + 1
    directory.spec.replace(directory.path / f"spec-{attempts}.json")
    directory.spec.write_text(spec.to_json(), encoding="utf-8")
    directory.stop_request.unlink(missing_ok=True)
    directory.preflight.unlink(missing_ok=True)
    with directory.log.open("ab") as log:
        since = beginning(spec, record.checkpoints(directory))
        log.write(f"[supervisor] resumed at {time.strftime('%Y-%m-%d %H:%M:%S')}, {since}\n".encode())
    directory.write_state(state)


def remove(runs: Runs, directory: RunDirectory) -> dict[str, Any]:
    """Remove a run that has ended, with its checkpoints; return how much that was. Raises LiveRunError."""
    if not (state := directory.effective_state()).has_ended:
        raise LiveRunError(directory.run_id, state.state)
    gone = runs.root / f".removed-{directory.run_id}-{secrets.token_hex(4)}"
    with runs.guard():
        # Whoever resumes a run holds the lock before it looks for the directory.
        if runs.live() == directory.run_id:
            raise LiveRunError(directory.run_id, "starting")
        files = [path.stat().st_size for path in directory.path.rglob("*") if path.is_file()]
        directory.path.rename(gone)
    shutil.rmtree(gone)
    return {"run_id": directory.run_id, "files": len(files), "bytes": sum(files)}
