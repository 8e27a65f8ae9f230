"""Programs of a user's own, on two ranks, as `fab train` starts them and as `horovodrun` does by itself.

    python -m benchmarks.own_programs [--programs NAMES] [--ways NAMES] [--rounds N] [--before-others] [--output FILE]

On a quiet machine with two cores. `--before-others`, as root, is for one where other work cannot be stopped: the kernel
then gives nearly all time to the session of a way. Over Gloo horovodrun starts ranks in sessions of their own, so that
this compares `ours` and `bare-mpi` alone. The ways take turns, each in fresh processes, and each round begins with
another, so that what else runs on the machine meets all alike. A ratio is taken within a round; stated is the median of
the rounds.

The program (`benchmarks.own_program`) knows nothing of this project. `ours` goes the way of `fab train --nodes 1
--ranks-per-node 2` from the run's spec on: launcher, rank, placement. The others are Horovod's own `horovodrun -np 2`,
whose ranks have Horovod's settings and TensorFlow's threads. A program's first round of `ours` has the cycle of
assumed steps and measures them, and the next ones have the cycle that follows from them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.files.atomic_write import replace_file
from agent.hardware.machine import this_machine
from agent.launch.first_steps import choose_cycle
from agent.launch.horovodrun_command import Interpreters, launcher_command, launcher_environment
from agent.spec.horovod import GLOO, MPI, best_controller
from agent.spec.nodes import Node
from agent.spec.run import RunSpec

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = Path(__file__).with_name("own_program.py")
SAID: Final = {
    "ours": "fab train's ranks, which meet over Open MPI",
    "ours-gloo": "fab train's ranks, --controller gloo",
    "bare": "horovodrun --gloo",
    "bare-mpi": "horovodrun --mpi",
}
PROGRAMS: Final = {
    "mnist": ("mnist", "64", "15", "50"),
    "resnet": ("resnet", "8", "4", "12"),
    "text": ("text", "64", "15", "50"),
}
"""The arguments of each program: model, batch, steps before those that are timed, and steps."""
RANKS: Final = 2
TIMEOUT_S: Final = 900
BEFORE_OTHERS: Final = ("/bin/sh", "-c", 'echo -20 > /proc/self/autogroup && exec "$@"', "sh")
"""Puts the session of a command before all others (sched(7), "The autogroup feature")."""

_NODE: Final = {"instance_id": "i-0123456789abcdef0", "interface": "lo", "zone": "us-east-1a"}

Round = dict[str, float]
"""Of each way, the examples a second of both ranks."""


def main(argv: Sequence[str]) -> int:
    """Print the rounds and the ratios; return 1 where a program is slower than under either bare launcher."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_programs", description="Time programs of one's own")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--ways", default=",".join(SAID), help=f"of {', '.join(SAID)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before-others", action="store_true", help="as root: before all other work of the machine")
    parser.add_argument("--output", type=Path, help="file for all that was measured")
    given = parser.parse_args(argv)
    ways = given.ways.split(",")
    before = BEFORE_OTHERS if given.before_others else ()
    if before and not {"ours", "bare-mpi"}.issuperset(ways):
        parser.error("--before-others: compare with --ways ours,bare-mpi; the others' ranks leave the session")
    print(this_machine(), flush=True)
    found: dict[str, list[Round]] = {name: [] for name in given.programs.split(",")}
    for name, rounds in found.items():
        with tempfile.TemporaryDirectory(prefix="own-programs-") as efs:
            for number in range(given.rounds):
                turn = [ways[(place + number) % len(ways)] for place in range(len(ways))]
                rounds.append({way: run(way, name, Path(efs), before) for way in turn})
                rates = ", ".join(f"{way} {rounds[-1][way]:.4g}" for way in ways)
                print(f"{name} round {number + 1}: {rates}; load {os.getloadavg()[0]:.1f}", flush=True)
                if given.output:
                    replace_file(given.output, document(found).encode())
        print(table(name, rounds), flush=True)
    return 0 if all(kept(rounds) for rounds in found.values()) else 1


def run(way: str, name: str, efs: Path, before: Sequence[str] = ()) -> float:
    """Run a program in one way, in fresh processes; return the examples a second of both ranks.

    `efs`: directory in the place of the shared file system, in which the runs of a program leave their steps; `before`:
    words before each command.
    """
    if way.startswith("bare"):
        controller = f"--{MPI if way == 'bare-mpi' else GLOO}"
        words = [sys.executable, str(PROGRAM), *PROGRAMS[name]]
        command = [
            str(Path(sys.executable).with_name("horovodrun")),
            "-np",
            str(RANKS),
            "-H",
            "localhost:2",
            controller,
        ]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return rate(
            way, _output([*before, *command, *words], {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PATH": path}, ROOT)
        )
    spec = lay_out(efs, name, GLOO if way == "ours-gloo" else best_controller(1, on_cores=True))
    python = Interpreters(launcher=sys.executable, ranks=sys.executable, runtime=sys.prefix)
    command = [word.replace(spec.hosts[0].name, "localhost") for word in launcher_command(spec, python)]
    cycle = choose_cycle(spec)
    environ = {**launcher_environment(spec, os.environ), **(cycle.variables if cycle else {})}
    output = _output([*before, *command], environ, Path(spec.agent_directory))
    if cycle:
        cycle.keep(spec.run_id)  # as the supervisor does
    return rate(way, output)


def rate(way: str, output: str) -> float:
    """Add up what the ranks printed, by each one's median step. Raises RuntimeError where one printed nothing."""
    found = [json.loads(text) for text in re.findall(r"FIGURES (\{.*\})", output)]
    if len(found) != RANKS:
        raise RuntimeError(f"{way}: {len(found)} ranks printed figures:\n{output[-2000:]}")
    return float(sum(one["batch"] / statistics.median(one["seconds"]) for one in found))


def lay_out(folder: Path, name: str, controller: str) -> RunSpec:
    """Lay out a run as the supervisor does; return its spec."""
    spec = RunSpec(
        run_id="20261123-120000-own-program-0000",
        efs_mount=str(folder),
        agent="a" * 16,
        program="b" * 16,
        command=(PROGRAM.name, *PROGRAMS[name]),
        hosts=(Node(name="deeplearning-worker1", address="127.0.0.1", slots=RANKS, **_NODE),),
        controller=controller,
        environment=(("TF_CPP_MIN_LOG_LEVEL", "2"),),
    )
    work = Path(spec.working_directory)
    work.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROGRAM, work)
    (Path(spec.run_directory) / "spec.json").write_text(spec.to_json())
    tree = Path(spec.agent_directory)
    tree.parent.mkdir(parents=True, exist_ok=True)
    if not tree.exists():
        tree.symlink_to(ROOT)
    return spec


def ratios(rounds: Sequence[Round]) -> dict[str, tuple[float, float, float]]:
    """Return how many times as fast ours is as each other way: least, median and most of the rounds, if any."""
    first = rounds[0] if rounds else {}
    others = [way for way in first if way != "ours"] if "ours" in first else []
    found = {way: sorted(one["ours"] / one[way] for one in rounds) for way in others}
    return {way: (values[0], statistics.median(values), values[-1]) for way, values in found.items()}


def kept(rounds: Sequence[Round]) -> bool:
    """Return whether ours is as fast as each bare launcher, or faster."""
    return all(median >= 1 for way, (_, median, _) in ratios(rounds).items() if way.startswith("bare"))


def table(name: str, rounds: Sequence[Round]) -> str:
    """Return medians and ratios as a table, one line a way."""
    lines = [f"{name}: {'examples/s':>50} {'ours is':>8}  (least to most)"]
    beside = ratios(rounds)
    for way in (way for way in SAID if way in rounds[0]):
        line = f"  {SAID[way]:<46} {statistics.median(one[way] for one in rounds):>9.4g}"
        if way in beside:
            least, median, most = beside[way]
            line += f" {median:>8.3f}  ({least:.3f} to {most:.3f})"
        lines.append(line)
    return "\n".join(lines)


def document(found: Mapping[str, Sequence[Round]]) -> str:
    """Return all that was measured as JSON."""
    return json.dumps({name: {"rounds": list(rounds), "ratios": ratios(rounds)} for name, rounds in found.items()})


def _output(command: Sequence[str], environ: Mapping[str, str], directory: Path) -> str:
    """Run a command to its end in a session of its own; return what it printed, errors too."""
    pipe = subprocess.PIPE
    done = subprocess.run(
        command, env=dict(environ), cwd=directory, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT,
        text=True, timeout=TIMEOUT_S, start_new_session=True, check=False,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
