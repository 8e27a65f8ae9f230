"""The command lines and the environment of launchers. Pure functions, standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.remote.ssh import OWN_TREE
from agent.spec.horovod import AUTOTUNE, CYCLE_TIME, MPI, cycle_ms
from agent.spec.launchers import HOROVOD
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE, RunSpec

ASSUMED_STEP_MS: Final = 25.0
"""Assumed step time of a user program, which cannot be estimated. Two ranks over Gloo then get a cycle of 2.2 ms. By
the rule of `cycle_ms`, that costs no more than Horovod's own 1 ms for steps of 10 ms or longer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interpreters:
    """The Python interpreters of one launch, and the runtime with Open MPI."""

    launcher: str
    """The launcher's Python, on the master."""
    ranks: str
    """The ranks' Python, at the same path on all hosts."""
    runtime: str
    """Directory of the environment with Horovod and Open MPI on all hosts. The ranks' environment can be an overlay."""


def document(spec: RunSpec, python: str, command: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the description of a launch in the run's record, as JSON values.

    It has the launcher's `command` and environment (`variables`), and the command, directory and variables of each
    rank. `python` is the ranks' Python. Secrets are given by name only.
    """
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
    """Return how many seconds horovodrun may take to reach all hosts. Its default of 30 s is too short for 16 nodes."""
    return 60 + 5 * hosts


def gloo_timeout_s(ranks: int) -> int:
    """Return how many seconds a rank waits for other ranks over Gloo: enough for the slowest import of TensorFlow."""
    return 120 + 5 * ranks


def horovodrun(spec: RunSpec, pythons: Interpreters, rank: Sequence[str] = ()) -> list[str]:
    """Build the command that starts all ranks, for the master.

    Each rank starts as `agent.launch.rank`, which reads its command from the run's spec. So the words of a user's
    command are subject neither to Horovod's quoting nor to the length limit of a command line. `rank` is another
    command for each rank, without special characters. Ranks start in the agent's tree on the shared file system. This
    launcher starts in the master's own tree, so that files written by ranks are never executed on the master.
    """
    # Interface names differ between instance types. Open MPI also accepts the network of the interfaces.
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
    """Build the command of the run's launcher: horovodrun, or `agent.launch.ssh_launcher` for torchrun and plain."""
    if spec.rank_launcher == HOROVOD:
        return horovodrun(spec, pythons)
    return [pythons.launcher, "-m", "agent.launch.ssh_launcher", pythons.ranks, spec.run_directory]


def launcher_environment(spec: RunSpec, login: Mapping[str, str]) -> dict[str, str]:
    """Build the whole environment of a launcher. horovodrun passes it to the ranks over SSH command lines.

    Only `HOME` and `USER` of `login` are inherited, so that secrets of the master's shell are not passed on. The
    agent's own `ssh` comes first in PATH: it verifies host keys and logs in as the user for ranks. Ranks read the
    user's variables elsewhere (`agent.launch.rank`), because `ps` shows these command lines.
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
    """Return the variable with Horovod's cycle time for a user program with several ranks on CPUs; otherwise {}.

    Also returns {} if the user chose the cycle time. A recipe's ranks choose it themselves. On GPUs, Horovod's thread
    takes no core from the computation.
    """
    kind, given = spec.runtime_kind, {*dict(spec.environment), *spec.secrets}
    if not spec.program or spec.rank_launcher != HOROVOD or spec.ranks < 2 or (kind and kind.has_gpus):
        return {}
    if spec.knobs.cycle_time_ms is not None or spec.knobs.autotune or given & {CYCLE_TIME, AUTOTUNE}:
        return {}
    return {CYCLE_TIME: f"{cycle_ms(ASSUMED_STEP_MS, spec.ranks, spec.controller):g}"}
