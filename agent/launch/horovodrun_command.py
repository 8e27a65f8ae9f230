"""Horovod's launcher as a command line and an environment. Pure; standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.remote.command import OWN_TREE
from agent.spec.horovod import AUTOTUNE, CYCLE_TIME, MPI, cycle_ms
from agent.spec.launchers import HOROVOD
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE, RunSpec

ASSUMED_STEP_MS: Final = 25.0
"""The step of a user's program, which nobody can estimate. Two ranks over Gloo get a cycle of 2.2 ms, which by the rule
of `cycle_ms` costs no more than Horovod's own 1 ms for steps from 10 ms on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interpreters:
    """The Pythons of one launch, and where the ranks' Open MPI lies."""

    launcher: str
    """On the master."""
    ranks: str
    """At one path on all hosts."""
    runtime: str
    """Directory of the environment that Horovod and Open MPI belong to on all hosts; the ranks' own may lie over it."""


def document(spec: RunSpec, python: str, command: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what the record keeps of a launch: exactly what was started, and what each rank of it turned into."""
    return {
        "command": list(command),
        "directory": str(OWN_TREE),
        "environment": dict(variables),
        "rank_command": spec.rank_command(python) if spec.command else [],
        "rank_directory": spec.working_directory,
        "rank_environment": dict(spec.environment),
        "rank_secrets": list(spec.secrets),
    }


def start_timeout_s(hosts: int) -> int:
    """Return how long horovodrun may take to reach all hosts, s. Its own 30 s are too few for 16 nodes."""
    return 60 + 5 * hosts


def gloo_timeout_s(ranks: int) -> int:
    """Return how long a rank waits for another, s: the slowest one's import of TensorFlow fits in it."""
    return 120 + 5 * ranks


def horovodrun(spec: RunSpec, pythons: Interpreters, rank: Sequence[str] = ()) -> list[str]:
    """Build the command that starts all ranks, for the master.

    Each rank begins as `agent.launch.rank`, which reads from the run's spec what it is to become: the words of a user's
    command are data there, and meet neither Horovod's quoting nor the limit of one command line. `rank`: another
    command for each rank, of plain words. Each begins in the agent's tree on the shared file system, and this launcher
    in the master's own: what a rank has written runs on no other machine than its own kind.
    """
    # Interfaces have other names on other instance types: Open MPI also takes the network that they are in.
    meeting = spec.network if spec.controller == MPI else spec.interface
    interface = ["--network-interfaces", meeting] if meeting else []
    return [
        *(pythons.launcher, "-m", "agent.launch.horovodrun"),
        *(("--runtime", pythons.runtime) if spec.controller == MPI else ()),
        *("-np", str(spec.ranks)),
        *("-H", ",".join(f"{host.name}:{host.slots}" for host in spec.hosts)),
        f"--{spec.controller}",
        *interface,
        *("--start-timeout", str(start_timeout_s(len(spec.hosts)))),
        *spec.knobs.flags(spec.run_directory),
        *("env", "-C", spec.agent_directory),
        *(() if spec.controller == MPI else (pythons.ranks, "-m", "agent.launch.rank_parent", "gloo")),
        *(rank or (pythons.ranks, "-m", "agent.launch.rank", spec.run_directory)),
    ]


def launcher_command(spec: RunSpec, pythons: Interpreters) -> list[str]:
    """Build the command of the run's launcher, Horovod's or another."""
    if spec.rank_launcher == HOROVOD:
        return horovodrun(spec, pythons)
    return [pythons.launcher, "-m", "agent.launch.process_group", pythons.ranks, spec.run_directory]


def launcher_environment(spec: RunSpec, login: Mapping[str, str]) -> dict[str, str]:
    """Build the whole environment of horovodrun, which it passes on to the ranks over SSH command lines.

    Nothing is inherited but `HOME` and `USER` of `login`, so that no secret of the master's shell travels. The
    agent's own `ssh`, which verifies host keys and logs in as the user for ranks, comes first in PATH. What the user
    gave the ranks read elsewhere (`agent.launch.rank`), because `ps` shows these command lines.
    """
    return {
        "PATH": f"{OWN_TREE}/agent/bin/as_rank:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": login.get("HOME", "/"),
        "USER": login.get("USER", ""),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(gloo_timeout_s(spec.ranks)),
        RUN_VARIABLE: spec.run_id,
        RUNS_VARIABLE: spec.runs_root,
        **program_cycle(spec),
    }


def program_cycle(spec: RunSpec) -> dict[str, str]:
    """Return the variable with Horovod's cycle for a user's program on CPUs; nothing if the user chose the cycle.

    A recipe's ranks choose by themselves. On GPUs Horovod's thread takes no core from the compute.
    """
    kind, given = spec.runtime_kind, {*dict(spec.environment), *spec.secrets}
    if not spec.program or spec.rank_launcher != HOROVOD or spec.ranks < 2 or (kind and kind.has_gpus):
        return {}
    if spec.knobs.cycle_time_ms is not None or spec.knobs.autotune or given & {CYCLE_TIME, AUTOTUNE}:
        return {}
    return {CYCLE_TIME: f"{cycle_ms(ASSUMED_STEP_MS, spec.ranks, spec.controller):g}"}
