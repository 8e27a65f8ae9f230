"""One rank beside a plain TensorFlow loop and Keras's `fit`: `python -m benchmarks.one_rank`, on a quiet machine.

The ways take turns, each in a fresh process, and each round begins with another, so that what else runs on the machine
meets all alike. A ratio is taken within a round; stated is the median of the rounds. Ratios of processor time are less
exact, since a waiting thread spins, but move less when the machine is busy.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.measure import output_of

WAYS: Final = ("payload", "plain", "fit", "fit-graph")
CASES: Final = {
    "resnet50": {"network": "resnet50", "batch": 32, "warmup": 2, "steps": 6},
    "lenet": {"network": "lenet", "batch": 256, "warmup": 30, "steps": 200},
}
FURTHER: Final = {"resnet50": ("keras-norm",), "lenet": ()}
"""Ways that are measured beside, to say what a part is worth."""
LONG: Final = {"network": "lenet", "batch": 256, "warmup": 100, "steps": 1000}
"""Enough steps to see memory that grows with them."""
WANTED_SPEED: Final = 0.98
WANTED_MEMORY: Final = 1.1
GROWTH_MIB: Final = 8.0
"""Resident memory within which 1,000 steps count as no growth: a few pages come and go."""

Round = dict[str, dict[str, float]]


def main(argv: Sequence[str]) -> int:
    """Print the rounds and the ratios; return 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_rank", description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}, with commas between")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(argv)
    kept = [_case(name, CASES[name], given.rounds) for name in given.cases.split(",")]
    kept.append(_memory())
    return 0 if all(kept) else 1


def run(way: str, case: dict[str, Any]) -> dict[str, float]:
    """Train in one way in a fresh process; the payload as the only rank of a run."""
    launcher = ["-m", "agent.launch.horovodrun", "-np", "1", "-H", "localhost:1", "--gloo", sys.executable]
    program = ["-m", "benchmarks.training_loop", json.dumps({"way": way, **case})]
    output = output_of([sys.executable, *(launcher if way == "payload" else []), *program])
    found = re.search(r"\{.*\}", output)
    if not found:
        raise RuntimeError(f"{way} printed no figures:\n{output[-2000:]}")
    figures: dict[str, float] = json.loads(found[0])
    return figures


def ratios(rounds: Sequence[Round], field: str) -> dict[str, float]:
    """Return how many times as fast the payload is as each other way, by the median of the rounds."""
    others = [way for way in rounds[0] if way != "payload"]
    return {way: statistics.median(one[way][field] / one["payload"][field] for one in rounds) for way in others}


def _case(name: str, case: dict[str, Any], count: int) -> bool:
    rounds: list[Round] = []
    for number in range(count):
        ways = (*WAYS, *FURTHER[name])
        submission = [ways[(place + number) % len(ways)] for place in range(len(ways))]
        rounds.append({way: run(way, case) for way in submission})
        print(f"{name} round {number + 1}: {_line(rounds[-1], case)}", flush=True)
    speed, work = ratios(rounds, "step_seconds"), ratios(rounds, "cpu_seconds")
    worst = min(speed[way] for way in WAYS[1:])
    peak = {way: statistics.median(one[way]["peak_mib"] for one in rounds) for way in WAYS}
    memory = peak["payload"] / peak["plain"]
    for way, ratio in speed.items():
        print(f"{name}: payload / {way}: {ratio:.3f} images/s, {work[way]:.3f} by processor time")
    print(f"{name}: peak {peak['payload']:.0f} MiB, {memory:.2f} of the plain loop's")
    print(f"{name}: speed {_said(worst >= WANTED_SPEED)}, memory {_said(memory <= WANTED_MEMORY)}", flush=True)
    return worst >= WANTED_SPEED and memory <= WANTED_MEMORY


def _memory() -> bool:
    growth = run("payload", LONG)["growth_mib"]
    print(f"lenet: {growth:+.1f} MiB over {LONG['steps']} steps: {_said(growth <= GROWTH_MIB)}", flush=True)
    return growth <= GROWTH_MIB


def _line(one: Round, case: dict[str, Any]) -> str:
    return ", ".join(
        f"{way} {case['batch'] / figures['step_seconds']:.4g} images/s"
        f" ({figures['cpu_seconds'] / figures['mean_seconds']:.2f} cores)"
        for way, figures in one.items()
    )


def _said(kept: bool) -> str:
    return "as promised" if kept else "NOT as promised"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
