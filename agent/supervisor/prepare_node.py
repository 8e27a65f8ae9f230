"""Prepare a node for a run: kill processes of other runs, and make the environment that the node needs.

    NODE_PYTHON -m agent.supervisor.prepare_node RUN_DIRECTORY     # the last line of its output is for `parse`

A host gets the runtime for the kind of the run's hosts, and the program's own packages. The master computes nothing and
gets only the launcher's environment, so that no host waits for builds on a small master.

One process prepares the host and prints its facts. Further processes would take time, and the run waits for the slowest
node.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from agent.errors import describe
from agent.files.atomic_write import MAKE_ROOM, describe_full_disk
from agent.hardware.gpus import count_gpu_devices
from agent.hardware.machine import this_node_kind
from agent.launch.rank import this_host
from agent.preflight.node_facts import facts_command
from agent.preflight.report import replace_remedy
from agent.remote import rank_leftovers, rank_user
from agent.remote.processes import signal_run
from agent.remote.secret_files import TAKEN
from agent.spec import untrusted_json
from agent.spec.launchers import HOROVOD
from agent.spec.node_kinds import RuntimeKind, runtime_kind
from agent.spec.nodes import NODE_PYTHON, Node
from agent.spec.run import PREPARATION_VARIABLE, RUNS_VARIABLE, RunSpec

CLEARING_S: Final = 10.0
"""Seconds that processes of crashed runs may take to exit after SIGKILL."""
REPLACE_THE_MASTER: Final = (
    "terminate the master's instance; its group launches a new one, and the runs on the shared file system are kept"
)
PREPARED: Final = "deepcdk-prepared "


class NodeError(RuntimeError):
    """Report a node that cannot run its ranks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """The result of preparing a node: its Python, its runtime, and whether it has leftovers of ranks."""

    python: str
    """Path of the Python for the ranks; on the master, for their launcher."""
    runtime: str = ""
    """Directory of the environment with Horovod and Open MPI; "" on the master."""
    has_rank_processes: bool = dataclasses.field(default=False, compare=False)
    """Whether the user for ranks has processes on the node."""
    has_rank_files: bool = dataclasses.field(default=False, compare=False)
    """Whether ranks of any run have left files or shared memory on the node. Only older supervisors use it."""

    @property
    def line(self) -> str:
        """Return the line of output for `parse`."""
        return PREPARED + json.dumps(dataclasses.asdict(self))


def parse(output: str) -> Prepared:
    """Parse the result in a node's output. Raises ValueError if it is missing or malformed, or if there are several."""
    lines = [line.removeprefix(PREPARED) for line in output.splitlines() if line.startswith(PREPARED)]
    if len(lines) != 1:
        raise ValueError(f"the preparation printed {len(lines)} results instead of 1")
    try:
        found = Prepared(**untrusted_json.parse(lines[0]))
    except TypeError:  # not an object, or other fields
        raise ValueError(f"the preparation printed an invalid result: {lines[0][:100]!r}") from None
    if not isinstance(found.python, str) or not isinstance(found.runtime, str):
        raise ValueError(f"the preparation printed an invalid result: {lines[0][:100]!r}")
    return found


def command(spec: RunSpec) -> list[str]:
    """Build the command that prepares a node for a run, to run in the agent's tree."""
    # A stop of the run finds all processes of the preparation by these variables (`agent.remote.processes`).
    marks = (f"{PREPARATION_VARIABLE}={spec.run_id}", f"{RUNS_VARIABLE}={spec.runs_root}")
    return ["env", *marks, NODE_PYTHON, "-m", "agent.supervisor.prepare_node", spec.run_directory]


def clear(spec: RunSpec, home: Path, *, on_master: bool) -> None:
    """Remove this user's secrets, and kill its processes, that crashed runs left on the node.

    Waits up to CLEARING_S for the processes to exit, and raises NodeError if one still runs then. `home` is the user's
    home. On a host, all processes of other runs count as left, because no other run uses it. On the master, the
    launchers of other live runs are spared.
    """
    shutil.rmtree(home / TAKEN, ignore_errors=True)
    spared: Callable[[], Collection[str]] = tuple
    if on_master:
        from agent.runs.node_claims import Runs  # Not at the top: hosts do not need it.

        spared = Runs(root=Path(spec.runs_root)).live
    left = signal_run(
        spec.runs_root,
        run_id=spec.run_id,
        others=True,
        ranks_only=False,
        number=signal.SIGKILL,
        wait_s=CLEARING_S,
        spared=spared,
    )["left"]
    if left:
        remedy = REPLACE_THE_MASTER if on_master else "`fab replace` this node"
        raise NodeError(f"processes of another run could not be killed: {', '.join(map(str, left))}; do: {remedy}")


def check_slots(host: Node, *, gpus: int, cpus: int) -> None:
    """Raise NodeError if a host is assigned more ranks than it has GPUs or, without GPUs, than it has CPUs.

    `cpus` is the number of logical CPUs (hardware threads).
    """
    have, what = (gpus, "GPUs") if gpus else (cpus, "CPUs")
    if host.slots > have:
        raise NodeError(
            f"{host.slots} ranks are requested on {host.name}, which has {have} {what}; lower --ranks-per-node"
        )


def kind_of(spec: RunSpec) -> RuntimeKind:
    """Return the kind of the runtime for the run's hosts; for a run without hosts, for this node.

    Raises SpecError if no environment works for all of them (`agent.spec.node_kinds.runtime_kind`).
    """
    return spec.runtime_kind or runtime_kind({"this node": this_node_kind()})


def prepare_host(spec: RunSpec, host: Node) -> Prepared:
    """Check a host's isolation of ranks, and make the Python for its ranks, which may take minutes.

    If the program has its own environment, this is made. Otherwise the runtime is made, with the program's packages on
    top. With --ranks-per-node, the number of ranks is also checked. Return the paths of what was made, and whether
    ranks have left processes or files. Raises RuntimeError, ValueError or OSError.
    """
    # Not at the top: the supervisor imports this module for `command` and `parse`, and needs no runtime.
    from agent.environment import runtime

    rank_user.check(host.name, replace_remedy(host.name))
    rank_user.check_firewall(host.name, replace_remedy(host.name))
    if spec.ranks_per_node:
        check_slots(host, gpus=count_gpu_devices(), cpus=len(os.sched_getaffinity(0)))
    wheelhouse = Path(spec.efs_mount) / "payloads" / ".wheelhouse"
    kind = kind_of(spec)
    log = Path(spec.run_directory) / f"install-{host.name}.log"
    if spec.own_environment:
        frameworks = spec.horovod_for
        made = runtime.ensure_own(
            Path(spec.lock_file),
            program=Path(spec.program_directory),
            wheelhouse=wheelhouse,
            root=Path.home() / ".cache" / "deepcdk" / "environments",
            settings=runtime.settings_for(kind, spec.horovod_wheelhouse, frameworks) if frameworks else None,
            log=log,
        )
        return let_ranks_reach(made, made.parents[1])
    made = runtime.ensure(runtime.settings_for(kind, spec.horovod_wheelhouse), wheelhouse)
    return let_ranks_reach(make_python(spec, made, log), made.parents[1])


def let_ranks_reach(python: Path, runtime: Path) -> Prepared:
    """Make `python` accessible to ranks; return the result of preparing this host: the paths, and leftovers of ranks.

    If `python` is in this user's home, all users get the permission to enter the directories above it, because the
    ranks run as another user. Raises OSError.
    """
    home = Path.home()
    for directory in python.parents if python.is_relative_to(home) else ():
        mode = directory.stat().st_mode
        if not mode & stat.S_IXOTH:
            directory.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
        if directory == home:
            break
    return Prepared(
        python=str(python),
        runtime=str(runtime),
        has_rank_processes=rank_leftovers.processes_are_there(),
        has_rank_files=rank_leftovers.files_are_there(),
    )


def prepare_master(spec: RunSpec) -> Prepared:
    """Check the master's isolation of ranks, and make the launcher's environment.

    Only horovodrun needs an environment. For other launchers, the result is the node's own Python. Raises RuntimeError,
    ValueError or OSError.
    """
    rank_user.check("this master", REPLACE_THE_MASTER)
    rank_user.check_groups("this master", REPLACE_THE_MASTER)
    if spec.rank_launcher != HOROVOD:
        return Prepared(python=NODE_PYTHON)
    from agent.environment import master_environment  # Not at the top, as in `prepare_host`.

    return Prepared(python=str(master_environment.ensure()))


def make_python(spec: RunSpec, runtime: Path, log: Path) -> Path:
    """Make the overlay with the program's own packages, if it has any, and return the Python for the ranks.

    `runtime` is the runtime's Python, which is the result without an overlay. `log` gets the installer's output. Raises
    RuntimeSetupError, ValueError or OSError.
    """
    if not spec.locked:
        return runtime
    from agent.environment.program_packages import Overlay  # Not at the top, as in `prepare_host`.

    return Overlay(
        runtime=runtime,
        program=Path(spec.program_directory),
        lock=Path(spec.lock_file).read_text(encoding="utf-8"),
        root=Path.home() / ".cache" / "deepcdk" / "layers",
        wheelhouse=Path(spec.efs_mount) / "payloads" / ".wheelhouse",
        log=log,
    ).ensure()


def print_facts(spec: RunSpec, python: str, began: float) -> None:
    """Print this host's facts for the pre-flight check, with the ranks' Python; nothing if the run skips the check.

    `began` is the start of the preparation, in seconds since 1970. If this fails, the check asks for the facts again.
    """
    if spec.preflight != "skip":
        subprocess.run([*facts_command(python, spec), repr(began)], stdin=subprocess.DEVNULL, check=False)


def main(argv: Sequence[str]) -> int:
    """Prepare this node for the run in the directory `argv[0]`, and print the result for `parse`, or the error.

    First kills processes that crashed runs left. A host of the run also prints its facts for the pre-flight check.
    Return the exit status: 0, or 1 after an error.
    """
    began = time.time()
    try:
        spec = RunSpec.read(argv[0])
        host = this_host(spec)
        clear(spec, Path.home(), on_master=host is None)
        if host is None:
            prepared = prepare_master(spec)
        else:
            prepared = prepare_host(spec, host)
            print_facts(spec, prepared.python, began)
        print(prepared.line, flush=True)
    except (RuntimeError, ValueError, OSError) as error:  # all errors of the modules used here are among these
        print(describe(error), file=sys.stderr)
        full = describe_full_disk(Path(getattr(error, "filename", None) or Path.home()), str(error))
        if full and MAKE_ROOM not in str(error):
            print(full, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
