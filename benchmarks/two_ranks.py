"""Two ranks on two cores beside what they could be at best: `python -m benchmarks.two_ranks`, on a quiet machine.

    python -m benchmarks.two_ranks [--networks NAMES] [--ways NAMES] [--rounds N] [--peers DIR] [--output FILE]

The ways take turns, each in fresh processes, and each round begins with another, so that what else runs on the machine
meets all alike. A ratio is taken within a round; stated is the median of the rounds. Where the machine is not quiet,
rounds are too long for that: ranks under Horovod also change, again and again, between steps that add up gradients and
steps that do not, and the ratio of neighbours is told as "in turns". Horovod's thread wakes in both, so it is nearer to
1 than the ratio to two processes without Horovod, by a wake-up's cost over the cycle. `--peers`: an environment with
PyTorch, for the way `ddp`, which is left out without it. `--output` keeps every step's time as JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import socket
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import replace_file
from agent.hardware.machine import this_machine
from agent.spec.horovod import GLOO, best_controller

ROOT: Final = Path(__file__).parents[1]
WAYS: Final = ("ours", "pair", "one", "defaults", "gloo", "mwms", "ddp")
SAID: Final = {
    "ours": "two ranks, settings chosen by the payload",
    "pair": "two processes without Horovod, a core each",
    "one": "one rank on one core",
    "defaults": "two ranks, Horovod's own settings",
    "mwms": "MultiWorkerMirroredStrategy, two workers",
    "ddp": "PyTorch DistributedDataParallel, Gloo",
    "gloo": "two ranks over Gloo, settings chosen",
}
WANTED: Final = {"pair": 0.95, "one": 1.9, "mwms": 1.0}
"""How many times as many images a second as these, at least."""
NETWORKS: Final = {
    "resnet50": {"network": "resnet50", "batch": 16, "warmup": 2, "steps": 4, "turns": 4, "turn": 1},
    "lenet": {"network": "lenet", "batch": 256, "warmup": 20, "steps": 120, "turns": 16, "turn": 15},
}
HOROVOD_DEFAULTS: Final = {"HOROVOD_CYCLE_TIME": "1", "HOROVOD_FUSION_THRESHOLD": str(128 << 20)}
TIMEOUT_S: Final = 900


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """What the processes of one way measured together."""

    images_per_s: float
    """Over all processes, by each one's median step."""
    cpu_seconds: float
    """Processor time of a step, the mean of the processes."""
    seconds: tuple[tuple[float, ...], ...]
    """Each process's steps."""
    chosen: str
    """Settings, in words."""
    in_turns: tuple[float, ...] = ()
    """Of ranks under Horovod: images a second of steps that add up gradients by those of steps that do not."""


def main(argv: Sequence[str]) -> int:
    """Print the rounds and the ratios; return 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_ranks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--networks", default=",".join(NETWORKS), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"of {', '.join(WAYS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=ROOT / ".peers", help="virtual environment that has PyTorch")
    parser.add_argument("--output", type=Path, help="file for all that was measured")
    given = parser.parse_args(argv)
    python = given.peers / "bin" / "python"
    ways = [way for way in given.ways.split(",") if way != "ddp" or python.exists()]
    machine = this_machine()
    print(machine, flush=True)
    found: dict[str, list[dict[str, Figures]]] = {}
    for name in given.networks.split(","):
        rounds = found.setdefault(name, [])
        for number in range(given.rounds):
            submission = [ways[(place + number) % len(ways)] for place in range(len(ways))]
            rounds.append({way: run(way, NETWORKS[name], python) for way in submission})
            rates = ", ".join(f"{way} {rounds[-1][way].images_per_s:.4g}" for way in ways)
            print(f"{name} round {number + 1}: {rates}; load {os.getloadavg()[0]:.1f}", flush=True)
            if given.output:
                replace_file(given.output, document(dataclasses.asdict(machine), found).encode())
        print(table(name, rounds), flush=True)
    return 0 if all(kept(rounds) for rounds in found.values()) else 1


def run(way: str, work: Mapping[str, Any], peers_python: Path) -> Figures:
    """Train in one way in fresh processes."""
    text = json.dumps(
        {**work, "way": {"ours": "ranks", "defaults": "ranks", "gloo": "ranks", "mwms": "mwms"}.get(way, "alone")}
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": path}
    program = [sys.executable, "-m", "benchmarks.pair_program", text]
    port = _free_port()
    local = [{"HOROVOD_LOCAL_RANK": str(rank), "HOROVOD_LOCAL_SIZE": "2"} for rank in range(2)]
    match way:
        case "ours" | "defaults" | "gloo":
            controller = best_controller(1, on_cores=True) if way == "ours" else GLOO
            launcher = [
                sys.executable,
                "-m",
                "agent.launch.horovodrun",
                "-np",
                "2",
                "-H",
                "localhost:2",
                f"--{controller}",
            ]
            in_root = ("env", "-C", str(ROOT))  # over MPI the launcher takes no other command of a rank
            outputs = _outputs(
                [[*launcher, *in_root, *program]], [environ | (HOROVOD_DEFAULTS if way == "defaults" else {})]
            )
        case "mwms":
            workers = [f"localhost:{port}", f"localhost:{_free_port()}"]
            tasks = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}} for rank in range(2)]
            outputs = _outputs(
                [program] * 2, [environ | local[rank] | {"TF_CONFIG": json.dumps(tasks[rank])} for rank in range(2)]
            )
        case "ddp":
            meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
            command = [str(peers_python), str(Path(__file__).with_name("ddp_program.py")), text]
            outputs = _outputs([command] * 2, [environ | meeting | {"RANK": str(rank)} for rank in range(2)])
        case _:
            alone = local[:1] if way == "one" else local
            outputs = _outputs([program] * len(alone), [environ | place for place in alone])
    return figures_of(way, outputs, work["batch"])


def figures_of(way: str, outputs: Sequence[str], batch: int) -> Figures:
    """Add up what the processes printed. Raises RuntimeError for one that printed no figures."""
    found = [json.loads(text) for output in outputs for text in re.findall(r"FIGURES (\{.*\})", output)]
    if len(found) != (1 if way == "one" else 2):
        raise RuntimeError(f"{way}: {len(found)} processes printed figures:\n" + "\n".join(o[-2000:] for o in outputs))
    return Figures(
        images_per_s=sum(batch / statistics.median(one["seconds"]) for one in found),
        cpu_seconds=statistics.mean(one["cpu_seconds"] for one in found),
        seconds=tuple(tuple(one["seconds"]) for one in found),
        chosen=found[0]["chosen"],
        in_turns=_in_turns([one.get("turns", ()) for one in found]),
    )


def ratios(rounds: Sequence[Mapping[str, Figures]]) -> dict[str, tuple[float, float, float]]:
    """Return how many times as fast ours is as each other way: least, median and most of the rounds."""
    if not rounds or "ours" not in rounds[0]:
        return {}
    found = {
        way: sorted(one["ours"].images_per_s / one[way].images_per_s for one in rounds)
        for way in rounds[0]
        if way != "ours"
    }
    return {way: (values[0], statistics.median(values), values[-1]) for way, values in found.items()}


def kept(rounds: Sequence[Mapping[str, Figures]]) -> bool:
    """Return whether ours is as fast as promised beside each way that was measured."""
    return all(ratio[1] >= WANTED[way] for way, ratio in ratios(rounds).items() if way in WANTED)


def _in_turns(ranks: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, ...]:
    """Return the ratio of each turn over all ranks, from each one's steps with a reduction and without, s."""
    return tuple(
        sum(1 / together for together, _ in turn) / sum(1 / alone for _, alone in turn)
        for turn in zip(*ranks, strict=True)
    )


def in_turns(rounds: Sequence[Mapping[str, Figures]], way: str) -> list[float]:
    """Return the ratios of all turns of a way."""
    return [ratio for one in rounds if way in one for ratio in one[way].in_turns]


def table(name: str, rounds: Sequence[Mapping[str, Figures]]) -> str:
    """Return medians and ratios as a table, one line a way."""
    lines = [f"{name}: {'images/s':>42} {'cpu ms':>8} {'ours is':>8}  (least to most)  wanted"]
    beside = ratios(rounds)
    for way in sorted(rounds[0], key=WAYS.index):
        rate = statistics.median(one[way].images_per_s for one in rounds)
        cpu = 1000 * statistics.median(one[way].cpu_seconds for one in rounds)
        line = f"  {SAID[way]:<43} {rate:>6.4g} {cpu:>8.5g}"
        if turns := in_turns(rounds, way):
            quarters = statistics.quantiles(turns, n=4)
            line += f"  in turns {quarters[1]:.3f}  ({quarters[0]:.3f} to {quarters[2]:.3f})"
        if way in beside:
            least, ratio, most = beside[way]
            line += f" {ratio:>8.3f}  ({least:.3f} to {most:.3f})"
            if way in WANTED:
                line += f"  {WANTED[way]:g}: {'kept' if ratio >= WANTED[way] else 'NOT kept'}"
        lines.append(line)
    chosen = rounds[0]["ours"].chosen if "ours" in rounds[0] else ""
    return "\n".join([*lines, *([f"  chosen: {chosen}"] if chosen else [])])


def document(machine: Mapping[str, Any], found: Mapping[str, Sequence[Mapping[str, Figures]]]) -> str:
    """Return all that was measured as JSON."""
    networks = {
        name: {
            "rounds": [{way: dataclasses.asdict(figures) for way, figures in one.items()} for one in rounds],
            "ratios": ratios(rounds),
        }
        for name, rounds in found.items()
    }
    return json.dumps({"machine": dict(machine), "networks": networks}, indent=1) + "\n"


def _outputs(commands: Sequence[Sequence[str]], environs: Sequence[Mapping[str, str]]) -> list[str]:
    """Run commands side by side; return what each printed, errors too.

    Each has a session of its own, as horovodrun gives its ranks: the kernel shares the processor out by sessions.
    """
    running = [
        subprocess.Popen(
            command,
            env=dict(environ),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for command, environ in zip(commands, environs, strict=True)
    ]
    try:
        return [process.communicate(timeout=TIMEOUT_S)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()


def _free_port() -> int:
    """Return a port on which nothing listens; another may take it, which then fails loudly."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
