"""Compare two ranks on two cores with other ways to train, and allreduces with raw TCP: python -m benchmarks.training.

    python -m benchmarks.training [--cases NAME ...] [--rounds N] [--short]

Each round measures every way once, in new processes, and begins with another way. A ratio is taken within a round.
Stored are the median, the least and the most of the rounds, with the versions, in figures.json. Steps during which
other processes used much of the cores do not count. If a process fails, or the ranks did not train together, nothing of
the case is stored.

PyTorch, for the way `ddp`, is installed in .peers-torch. `--short` is one short round, which is not stored. The exit
status is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.hardware.machine import this_machine, this_node_kind
from agent.launch.launcher_command import Interpreters, horovodrun, program_cycle
from agent.launch.mpirun import CONTROLLER
from agent.spec.horovod import CYCLE_TIME, MPI
from agent.spec.launchers import APART
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from benchmarks import figures, peers
from cluster import demo

PROGRAM: Final = Path(__file__).with_name("own_program.py")
TIMEOUT_S: Final = 600.0
MAX_OTHERS: Final = 0.1
"""Maximum part of the cores that other processes may use while steps are timed."""
TRIES: Final = 5
HOST: Final = "deeplearning-worker1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Steps to time, and the ways to take them."""

    ways: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    """Pairs of ways. The ratio of their speeds is a result."""
    amount: float
    """Work of a step on each process, in the unit of the stored speed."""
    network: str = "resnet50"
    message_bytes: int = 0
    chunks: int
    """Number of chunks of steps. Only those that other processes did not disturb count."""
    steps: int
    """Steps in each chunk."""

    def shortened(self) -> Case:
        """Return the case with as few steps as possible."""
        return dataclasses.replace(self, chunks=2, steps=1)


TRAINING: Final = ("mpi", "gloo", "pair", "one", "loop", "mwms", "ddp")
ALONE: Final = ("one", "loop")
"""Ways with a single process."""
COMPARED: Final = (
    ("mpi", "pair"),
    ("gloo", "pair"),
    ("mpi", "one"),
    ("one", "loop"),
    ("mpi", "mwms"),
    ("mpi", "ddp"),
)
CASES: Final = {
    "LeNet": Case(
        ways=TRAINING,
        compared=COMPARED,
        network="lenet",
        amount=256,
        chunks=12,
        steps=10,
    ),
    "ResNet-50": Case(
        ways=TRAINING,
        compared=COMPARED,
        amount=16,
        chunks=3,
        steps=1,
    ),
    "allreduce": Case(
        ways=("mpi", "gloo", "tcp"),
        compared=(("mpi", "tcp"), ("gloo", "tcp")),
        amount=0.05,  # GB; both ranks together 0.1
        message_bytes=100_000_000,
        chunks=10,
        steps=3,
    ),
    "program": Case(
        ways=("launcher", "horovodrun"), compared=(("launcher", "horovodrun"),), amount=64, chunks=10, steps=10
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
    """A command to run, and its additional environment variables."""

    command: Sequence[str]
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)


def processes(way: str, case: Case, directory: Path) -> list[Process]:
    """Return the processes of a way, which run at the same time and write their times to `directory`.

    For the way `launcher`, the files of a run are written to a subdirectory now.
    """
    port = _free_port()
    work = json.dumps(
        {
            "way": way,
            "network": case.network,
            "batch": 0 if case.message_bytes else case.amount,
            "message_bytes": case.message_bytes,
            "chunks": case.chunks,
            "steps": case.steps,
            "port": port,
            "output": str(directory),
        }
    )
    rank = (sys.executable, "-m", "benchmarks.training_rank", work)
    program = (str(PROGRAM), str(case.chunks), str(case.steps), str(directory))
    local = [{"HOROVOD_LOCAL_RANK": str(number), "HOROVOD_LOCAL_SIZE": "2"} for number in range(2)]
    cycle = {CYCLE_TIME: "1"} if case.message_bytes else {}
    match way:
        case "mpi" | "gloo":
            launcher = (sys.executable, "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", f"--{way}")
            return [Process(command=(*launcher, "env", "-C", str(demo.ROOT), *rank), environ=cycle)]
        case "launcher":
            return [_launched(program, directory / "run")]
        case "horovodrun":
            bare = (str(Path(sys.executable).with_name("horovodrun")), "-np", "2", "-H", "localhost:2", "--mpi")
            return [Process(command=(*bare, sys.executable, *program), environ=CONTROLLER)]
        case "mwms":
            workers = [f"localhost:{port}", f"localhost:{_free_port()}"]
            tasks = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": each}} for each in range(2)]
            return [
                Process(command=rank, environ=place | {"TF_CONFIG": json.dumps(task)})
                for place, task in zip(local, tasks, strict=True)
            ]
        case "ddp":
            meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
            command = (
                str(peers.environment_of("torch") / "bin" / "python"),
                str(Path(__file__).with_name("ddp_rank.py")),
                work,
            )
            return [Process(command=command, environ=meeting | {"RANK": str(each)}) for each in range(2)]
        case _:
            # Horovod's thread, which each process starts, sleeps.
            idle = {CYCLE_TIME: "1000"}
            return [Process(command=rank, environ=place | idle) for place in (local[:1] if way in ALONE else local)]


def _launched(program: tuple[str, ...], run: Path) -> Process:
    """Write a run's files to the new directory `run`; return the launcher that `fab train` uses for a user program."""
    node = Node(
        name=HOST,
        address="127.0.0.1",
        slots=2,
        instance_id="i-0123456789abcdef0",
        zone="us-east-1a",
        interface="lo",
        kind=str(this_node_kind()),
    )
    spec = RunSpec(
        run_id="20261129-120000-own-program-0000",
        efs_mount=str(run),
        agent="a" * 16,
        program="b" * 16,
        command=program,
        hosts=(node,),
        controller=MPI,
        environment=(("PYTHONPATH", str(demo.ROOT)),),
        together=APART,  # the node's watchdog would outlive the run
    )
    Path(spec.working_directory).mkdir(parents=True)
    (Path(spec.run_directory) / "spec.json").write_text(spec.to_json())
    Path(spec.agent_directory).parent.mkdir()
    Path(spec.agent_directory).symlink_to(demo.ROOT)
    pythons = Interpreters(launcher=sys.executable, ranks=sys.executable, runtime=sys.prefix)
    command = [word.replace(HOST, "localhost") for word in horovodrun(spec, pythons)]
    return Process(command=command, environ=program_cycle(spec))


def measure(way: str, case: Case, quiet: bool = True) -> tuple[float, dict[str, str]]:
    """Take the steps in one way. Return the speed of all processes together, as `speed` does, and the versions.

    With `quiet`, a try counts only if at least one chunk was not disturbed by other processes. Raises RuntimeError
    after TRIES disturbed tries, if a process fails, or if the processes did not train together.
    """
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="training-") as name:
            directory = Path(name)
            run(processes(way, case, directory), directory)
            found = [json.loads(file.read_text()) for file in directory.glob("*.json")]
        if taken := speed(way, case, found, MAX_OTHERS if quiet else math.inf):
            return taken, found[0].get("versions", {})
    raise RuntimeError(f"{way}: other processes used over {MAX_OTHERS:.0%} of the cores in {TRIES} tries; stop them")


def speed(way: str, case: Case, found: Sequence[Mapping[str, Any]], max_others: float) -> float | None:
    """Return the speed by the times of all processes, in units of the case's `amount` per second; None if each chunk
    was disturbed.

    A chunk is disturbed if other processes used more than `max_others` of the processes' cores. Raises RuntimeError if
    the processes did not train together.
    """
    count, together = (1 if way in ALONE else 2), (1 if way in (*ALONE, "pair") else 2)
    if len(found) != count or any(len(each["chunks"]) != case.chunks for each in found):
        chunks = ", ".join(str(len(each["chunks"])) for each in found) or "none"
        raise RuntimeError(f"{way}: expected {case.chunks} chunks of times from {count} processes, but got {chunks}")
    if any(each["ranks"] != together for each in found) or len({each["sum"] for each in found}) > 1:
        facts = "; ".join(f"{each['ranks']} ranks, sum {each['sum']}" for each in found)
        raise RuntimeError(f"{way}: the processes did not train together, as {together} ranks with equal sums: {facts}")
    taken: list[list[float]] = [[] for _ in found]
    for chunk in zip(*(each["chunks"] for each in found), strict=True):
        used, own = ([each[place] for each in chunk] for place in (1, 2))
        # Processes that are not bound see each other on their cores.
        cores = sum(used) / (1 if found[0]["cores"] != found[-1]["cores"] else count)
        if cores - sum(own) <= max_others * count:
            for seconds, each in zip(taken, chunk, strict=True):
                seconds.append(each[0])
    if not taken[0]:
        return None
    return sum(case.amount / statistics.median(seconds) for seconds in taken)


def run(started: Sequence[Process], directory: Path) -> None:
    """Run processes at the same time in `directory`, and wait for them. Their output is in its file `output`.

    Raises RuntimeError if a process fails, or after TIMEOUT_S. The other processes are then terminated.
    """
    log = directory / "output"
    path = {"PYTHONPATH": str(demo.ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with log.open("wb") as stream:
        running = [
            subprocess.Popen(
                each.command,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **path, **each.environ},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for each in started
        ]
        try:
            end = time.monotonic() + TIMEOUT_S
            while None in (statuses := [process.poll() for process in running]) and not any(statuses):
                if time.monotonic() > end:
                    break
                time.sleep(0.1)
        finally:
            for process in running:
                process.terminate()  # horovodrun then terminates its ranks, which are in other sessions
            for process in running:
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
    if any(statuses) or None in statuses:
        text = log.read_text(errors="replace")
        told = f"exit status {statuses} (None: stopped, because another one failed or after {TIMEOUT_S:g} s)"
        raise RuntimeError(f"{told} of {shlex.join(started[0].command)}; the end of the output:\n{text[-3000:]}")


def summary(values: Sequence[float]) -> list[float]:
    """Return median, least and most, or the only value."""
    return list(values) if len(values) == 1 else [statistics.median(values), min(values), max(values)]


def results(name: str, case: Case, rounds: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the speed of each measured way of a case, and the ratios of compared ways, as `summary` of all rounds."""
    found = {f"{name}, {way}": summary([each[way] for each in rounds]) for way in rounds[0]}
    for one, other in case.compared:
        if {one, other} <= rounds[0].keys():
            found[f"{name}, {one} / {other}"] = summary([each[one] / each[other] for each in rounds])
    return found


def take(name: str, case: Case, count: int, quiet: bool) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Measure a case in `count` rounds. Print and return the results over the rounds, and the versions."""
    rounds: list[dict[str, float]] = []
    versions: dict[str, str] = {}
    for number in range(count):
        rounds.append({})
        for place in range(len(case.ways)):
            way = case.ways[(place + number) % len(case.ways)]
            rounds[-1][way], found = measure(way, case, quiet)
            versions |= found
        rates = ", ".join(f"{way} {rounds[-1][way]:.4g}" for way in case.ways)
        print(f"{name}, round {number + 1} of {count}: {rates}; load {os.getloadavg()[0]:.1f}", flush=True)
    taken = results(name, case, rounds)
    for key, (median, *limits) in taken.items():
        print(f"{key:32} {median:8.4g}" + (f" ({limits[0]:.4g} to {limits[1]:.4g})" if limits else ""))
    return taken, versions


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and store the figures; return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES, help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--short", action="store_true", help="one short round, which is not stored")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # stop the processes in any case
    if any("ddp" in CASES[name].ways for name in options.cases):
        peers.install("torch")
    machine = this_machine()
    missed: list[str] = []
    for name in options.cases:
        case = CASES[name].shortened() if options.short else CASES[name]
        taken, versions = take(name, case, 1 if options.short else options.rounds, not options.short)
        if not options.short:
            missed += figures.keep(taken, machine=machine, versions=versions)
    print("".join(f"missed: {figure}\n" for figure in missed), end="")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
