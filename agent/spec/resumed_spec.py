"""Build the spec to resume a finished run. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from agent.errors import SpecError
from agent.spec.nodes import Node, common_network, meeting_interface
from agent.spec.run import TRAINING, RunSpec

BENCHMARK: Final = ("-m", "payload.bench.ranks")
"""First words of the benchmark command, which resumes with the measurements that are missing."""
RESUME: Final = "--resume"


def resumed_spec(
    before: RunSpec, nodes: Sequence[Node], hosts: Sequence[Node], *, agent: str, other_ranks: bool = False
) -> RunSpec:
    """Build the spec to resume a run on these hosts. Raises SpecError if the run cannot be resumed there.

    `nodes` are all nodes of the cluster. `agent` is the agent's tree, as pushed by the current version. A recipe keeps
    the tree that it was launched with, because its payload imports modules from it; its command gets --resume. A
    program's command does not change. With --ranks-per-node, each host gets as many ranks as before. `other_ranks`
    permits another total of ranks. In that case payload.train keeps the images per step, and a user program must handle
    it itself.
    """
    if before.launcher or not (before.program or before.command[:2] in (TRAINING, BENCHMARK)):
        raise SpecError(
            f"run {before.run_id} cannot be resumed: it is not a recipe, benchmark or program; start a new run"
        )
    if before.ranks_per_node:
        hosts = [dataclasses.replace(host, slots=before.ranks_per_node) for host in hosts]
    ranks = sum(host.slots for host in hosts)
    if ranks != before.ranks and not other_ranks:
        raise SpecError(
            f"run {before.run_id} had {before.ranks} ranks, but these hosts have {ranks}; to resume with {ranks}: "
            f"`fab resume {before.run_id} --nodes {len(hosts)}`"
        )
    if before.own_environment:
        _check_same_kind(before, hosts)
    # A program finds its own checkpoints. It runs again, unchanged, in the directory that it left.
    same = before.program or RESUME in before.command
    command = before.command if same else (*before.command, RESUME)
    interface, network = meeting_interface(nodes), common_network(nodes)
    return dataclasses.replace(
        before,
        agent=agent if before.program else before.agent,
        command=command,
        hosts=tuple(hosts),
        interface=interface,
        network=network,
    )


def _check_same_kind(before: RunSpec, hosts: Sequence[Node]) -> None:
    """Raise SpecError if the program's own environment was resolved for another kind of hosts."""
    was, now = before.runtime_kind, dataclasses.replace(before, hosts=tuple(hosts)).runtime_kind
    # Horovod is rebuilt for other GPUs. The packages are the same for all GPUs.
    if was and now and dataclasses.replace(was, capabilities=()) != dataclasses.replace(now, capabilities=()):
        raise SpecError(
            f"run {before.run_id} has its own environment, locked for {was}, but these hosts are {now}: start a new "
            "run of the program with `fab train`, which locks an environment for these hosts"
        )


def resume_point(spec: RunSpec, checkpoints: Sequence[str]) -> str:
    """Return from where a resumed run continues, as text for the end of a sentence: "from NAME", "in its directory".

    `checkpoints`: the names of the checkpoints in its directory, oldest first.
    """
    if spec.program:
        return "in its directory"
    if spec.command[:2] == BENCHMARK:
        return "with the remaining measurements"
    if checkpoints:
        return f"from {checkpoints[-1]}"
    if any(word.partition("=")[0] == "--checkpoint-dir" for word in spec.command):
        return "from the latest checkpoint in its --checkpoint-dir"
    return "from the beginning, because it has no checkpoint"
