"""Time the whole path on one machine, part by part, against the figures that the project promises.

    python -m benchmarks.whole_path [--repeat N] [--only NAME ...] [--output FILE]

Each figure is the median of its repetitions. It needs root, as the embedded cloud does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools import demo

ROOT = Path(__file__).resolve().parent.parent
CLOUD = "bench"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """Hold one measured quantity."""

    name: str
    unit: str
    promise: float
    """The bound that the project promises, in `unit`: an upper one, or a lower one where `at_least` is set."""
    samples: tuple[float, ...]
    at_least: bool = False

    @property
    def median(self) -> float:
        """Return the middle of the samples."""
        return statistics.median(self.samples)

    @property
    def kept(self) -> bool:
        """Tell whether the median keeps the promise."""
        return self.median >= self.promise if self.at_least else self.median <= self.promise


def seconds(command: Sequence[str]) -> float:
    """Run a command to its end and return its wall time; raise with its output where it fails."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=demo.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return time.monotonic() - began


def repeated(measure: Callable[[], float], repeat: int, *, warm_up: bool) -> tuple[float, ...]:
    """Measure several times, after one unrecorded time where asked."""
    if warm_up:
        measure()
    return tuple(round(measure(), 3) for _ in range(repeat))


def laptop(*command: str) -> list[str]:
    """Return the command line that runs a command on the laptop of the benchmark's own cloud."""
    return demo.localcloud("run", "--name", CLOUD, "--", *command)


@contextmanager
def cloud() -> Iterator[None]:
    """Keep an embedded cloud up, with an SSH key on its laptop, for the time of a block."""
    seconds(demo.localcloud("start", "--name", CLOUD, *demo.runtime_mount()))
    try:
        seconds(laptop("sh", "-c", demo.shell(demo.SSH_KEYGEN)))
        yield
    finally:
        subprocess.run(demo.localcloud("stop", "--name", CLOUD), cwd=ROOT, check=False, stdout=subprocess.DEVNULL)


def up_to_deployed() -> float:
    """Time from no cloud at all to a bootstrapped account with a deployed cluster of two workers."""
    began = time.monotonic()
    with cloud():
        seconds(laptop("fab", "up", "--yes", *demo.settings(2)))
        return time.monotonic() - began


def sixteen_hosts() -> float:
    """Time from SetDesiredCapacity to sixteen more hosts whose SSH port answers through the master's network."""
    with cloud():
        seconds(laptop("fab", "up", "--yes", *demo.settings(2), "--set", "workers=0"))
        script = ROOT / "benchmarks" / "hosts_up.py"
        done = subprocess.run(laptop(sys.executable, str(script), "16"), cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"hosts_up.py failed:\n{done.stdout}{done.stderr}")
        return float(done.stdout.split()[-1])


def measures() -> dict[str, tuple[str, float, Callable[[], float], bool]]:
    """List every measure: its unit, its promise, how it is taken, and whether it wants a warm-up."""
    python = sys.executable
    synth = ["cdk", "synth", "--quiet", "-c", f"ssh_cidr={demo.LAPTOP_CIDR}", "--output"]

    def synth_once() -> float:
        with tempfile.TemporaryDirectory() as directory:
            return seconds([*synth, directory])

    return {
        "fab --list": ("s", 0.7, lambda: seconds(["fab", "--list"]), True),
        "cdk synth, warm": ("s", 10, synth_once, True),
        "embedded cloud up, bootstrapped and deployed": ("s", 25, up_to_deployed, False),
        "sixteen hosts up": ("s", 3, sixteen_hosts, False),
        "demo, everything cached": ("s", 150, lambda: seconds([python, str(ROOT / "tools" / "demo.py")]), False),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table and write the figures; return 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measures whose name contains one of these")
    parser.add_argument("--output", type=Path, help="write the figures here as JSON")
    options = parser.parse_args(argv)
    figures = []
    for name, (unit, promise, measure, warm_up) in measures().items():
        if options.only and not any(part in name for part in options.only):
            continue
        figure = Figure(
            name=name, unit=unit, promise=promise, samples=repeated(measure, options.repeat, warm_up=warm_up)
        )
        figures.append(figure)
        print(
            f"{figure.name:48} {figure.median:8.2f} {unit}  promised {promise:g}  {'kept' if figure.kept else 'MISSED'}"
        )
        sys.stdout.flush()
    if options.output:
        machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
        document = {"machine": machine, "figures": [dataclasses.asdict(f) | {"median": f.median} for f in figures]}
        options.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
