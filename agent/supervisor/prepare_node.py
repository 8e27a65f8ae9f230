"""Prepare one node for a run: nothing left of other runs, and the environment that the node needs.

    NODE_PYTHON -m agent.supervisor.prepare_node RUN_DIRECTORY     # the last line: what `parse` reads

A host gets the runtime of the kind of the run's hosts, and the program's own packages; the master, which computes
nothing, gets its launcher's environment, so that no host waits for a small master to build anything.

One process does it all, and prints the host's facts before the last line: each further process would take time, and
the run waits for the slowest node.
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

from agent.environment.overlay import Layer, LockedOverlay, Overlay
from agent.files.atomic_write import MAKE_ROOM, full_disk
from agent.hardware.gpus import count_gpu_devices
from agent.hardware.machine import this_node_kind
from agent.launch.rank import this_host
from agent.preflight.node_facts import facts_command
from agent.preflight.report import replace_remedy
from agent.remote import rank_leftovers, rank_user
from agent.remote.processes import signal_run
from agent.remote.secret_files import TAKEN
from agent.spec import json_text
from agent.spec.kinds import RuntimeKind, runtime_kind
from agent.spec.launchers import HOROVOD
from agent.spec.nodes import NODE_PYTHON, Node
from agent.spec.run import RunSpec

CLEARING_S: Final = 10.0
"""How long what a crash left of another run may take to go."""
END_THE_MASTER: Final = "end its instance; its group starts a new one, and the runs on the shared file system stay"
PREPARED: Final = "deepcdk-prepared "


class NodeError(RuntimeError):
    """Report a node that cannot take its ranks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a node has prepared."""

    python: str
    """Of the ranks; on the master, of their launcher."""
    runtime: str = ""
    """Directory of the environment with Horovod and Open MPI; empty on the master."""
    has_rank_processes: bool = dataclasses.field(default=False, compare=False)
    """Whether processes of the user for ranks are there."""
    has_rank_files: bool = dataclasses.field(default=False, compare=False)
    """Whether ranks of any run have left files or shared memory there."""

    @property
    def line(self) -> str:
        """Return the line that `parse` reads."""
        return PREPARED + json.dumps(dataclasses.asdict(self))


def parse(output: str) -> Prepared:
    """Read what a node has prepared from its output. Raises ValueError where it does not say that."""
    lines = [line.removeprefix(PREPARED) for line in output.splitlines() if line.startswith(PREPARED)]
    if len(lines) != 1:
        raise ValueError(f"a node's answer has {len(lines)} lines of what it prepared")
    try:
        found = Prepared(**json_text.parse(lines[0]))
    except TypeError as error:  # not an object, or other fields
        raise ValueError(f"a node's answer has an invalid line of what it prepared: {error}") from None
    if not isinstance(found.python, str) or not isinstance(found.runtime, str):
        raise ValueError("a node's answer has an invalid line of what it prepared")
    return found


def command(spec: RunSpec) -> list[str]:
    """Build the command that prepares a node for a run; it runs in the agent's tree."""
    return [NODE_PYTHON, "-m", "agent.supervisor.prepare_node", spec.run_directory]


def clear(spec: RunSpec, home: Path, *, on_master: bool) -> None:
    """Remove what a crash left of other runs to this user: secrets and processes. Raises NodeError where one stays.

    A host belongs to this run alone; on the master, other live runs have their launchers.
    """
    shutil.rmtree(home / TAKEN, ignore_errors=True)
    spared: Callable[[], Collection[str]] = tuple
    if on_master:
        from agent.runs.store import Runs  # Not at the top: a host, of which there are many, does without.

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
        raise NodeError(f"processes of another run stay: {', '.join(map(str, left))}")


def overlay_of(spec: RunSpec, runtime: Path, home: Path, log: Path) -> Layer | None:
    """Return the overlay that a run's program needs over the runtime; None where the runtime is enough."""
    if not spec.needs_overlay:
        return None
    program, root = Path(spec.program_directory), home / ".cache" / "deepcdk" / "layers"
    wheelhouse = Path(spec.efs_mount) / "payloads" / ".wheelhouse"
    if spec.locked:
        lock = Path(spec.lock_file).read_text(encoding="utf-8")
        return LockedOverlay(runtime=runtime, program=program, lock=lock, root=root, wheelhouse=wheelhouse, log=log)
    # A run that an older version submitted.
    return Overlay(
        runtime=runtime,
        program=program,
        requirements=spec.requirements,
        further=spec.further_requirements,
        root=root,
        wheelhouse=wheelhouse,
        log=log,
    )


def check_slots(host: Node, *, gpus: int, cores: int) -> None:
    """Raise NodeError where a node is to take more ranks than it has GPUs or, without GPUs, cores."""
    have, what = (gpus, "GPUs") if gpus else (cores, "cores")
    if host.slots > have:
        raise NodeError(f"{host.slots} ranks are asked of {host.name}, which has {have} {what}")


def kind_of(spec: RunSpec) -> RuntimeKind:
    """Return the kind of the runtime: of the run's hosts, or, where one has registered none, of this node.

    Raises SpecError.
    """
    return spec.runtime_kind or runtime_kind({"this node": this_node_kind()})


def prepare_host(spec: RunSpec, host: Node) -> Prepared:
    """Make the runtime and what the program needs beyond it. Raises what the modules here do, all of them errors."""
    # Not at the top: the supervisor imports this module, and is pushed without these.
    from agent.environment import runtime

    rank_user.check(host.name, replace_remedy(host.name))
    rank_user.check_firewall(host.name, replace_remedy(host.name))
    if spec.ranks_per_node:
        check_slots(host, gpus=count_gpu_devices(), cores=len(os.sched_getaffinity(0)))
    wheelhouse, options = Path(spec.efs_mount) / "payloads" / ".wheelhouse", runtime.options_for(kind_of(spec))
    log = Path(spec.run_directory) / f"install-{host.name}.log"
    if spec.own_environment:
        made = runtime.ensure_own(
            Path(spec.lock_file),
            program=Path(spec.program_directory),
            wheelhouse=wheelhouse,
            root=Path.home() / ".cache" / "deepcdk" / "environments",
            frameworks=spec.horovod_for,
            options=options,
            log=log,
        )
        return ready(made, made.parents[1])
    made = runtime.ensure("--wheelhouse", str(wheelhouse), *options)
    return ready(make_python(spec, made, log), made.parents[1])


def ready(python: Path, runtime: Path) -> Prepared:
    """Return what a host has prepared, having let the user for ranks reach it below this user's home."""
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
    """Make the environment of the run's launcher. Raises as `prepare_host`."""
    rank_user.check("this master", END_THE_MASTER)
    rank_user.check_groups("this master", END_THE_MASTER)
    if spec.rank_launcher != HOROVOD:
        return Prepared(python=NODE_PYTHON)
    from agent.environment import master_environment  # Not at the top, as in `prepare_host`.

    return Prepared(python=str(master_environment.ensure()))


def make_python(spec: RunSpec, runtime: Path, log: Path) -> Path:
    """Return the ranks' Python, having made the overlay that they need. Raises RuntimeSetupError."""
    overlay = overlay_of(spec, runtime, Path.home(), log)
    return runtime if overlay is None else overlay.ensure()


def print_facts(spec: RunSpec, python: str, began: float) -> None:
    """Have the ranks' Python print this host's facts; where it cannot, the pre-flight asks for them again."""
    if spec.preflight != "skip":
        subprocess.run([*facts_command(python, spec), repr(began)], stdin=subprocess.DEVNULL, check=False)


def main(argv: Sequence[str]) -> int:
    """Prepare this node; return the exit status."""
    began, directory = time.time(), Path(argv[0])
    try:
        spec = RunSpec.from_json((directory / "spec.json").read_text(encoding="utf-8"))
        host = this_host(spec)
        clear(spec, Path.home(), on_master=host is None)
        if host is None:
            prepared = prepare_master(spec)
        else:
            prepared = prepare_host(spec, host)
            print_facts(spec, prepared.python, began)
        print(prepared.line, flush=True)
    except (RuntimeError, ValueError, OSError) as error:  # each error of the modules here is one of these
        print(error, file=sys.stderr)
        full = full_disk(Path(getattr(error, "filename", None) or Path.home()), str(error))
        if full and MAKE_ROOM not in str(error):
            print(full, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
