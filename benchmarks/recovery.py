"""Time how long a run takes to continue after a fault: python -m benchmarks.recovery.

    python -m benchmarks.recovery [--nodes 2] [--faults KINDS] [--rounds N]

An embedded cloud trains the digits recipe on all of its workers except one. Each kind of fault is injected into a
worker or its rank, in turns, when all workers are ready. Measured is the time until the restart begins, and until
rank 0 reports the next step. Rank 0 reports steps twice a second.

The benchmark needs root. A run that does not train again within five minutes after a fault is reported, and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from agent.hardware.machine import this_machine
from agent.runs.tail import Tail
from benchmarks import figures
from benchmarks.clouds import on_laptop, output_of, running_cloud
from cluster import demo

CLOUD: Final = "recovery"
FAULTS: Final = "kill-rank,kill-host,cut"
RECIPE: Final = ("--epochs", "100000", "--checkpoint-minutes", "0.1")
"""The run must last longer than the benchmark."""
QUIET_S: Final = 15.0
"""Time that a run trains undisturbed before each fault."""
MAX_DURATION_S: Final = 640
"""A lasting fault takes at least a quarter of this time, longer than Gloo's timeout, so that the run must restart."""
POLL_S: Final = 0.25
PATIENCE_S: Final = 300.0
"""Maximum time until a run trains again."""
Document = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recovery:
    """The cost of one fault."""

    fault: str
    noticed_s: float
    """Seconds from the fault until a restart began."""
    next_step_s: float
    """Seconds from the fault until rank 0 reported a later step."""
    lost_steps: int
    """Steps that were reported before the fault and had to be trained again."""

    def __str__(self) -> str:
        """Return the cost as a line to print."""
        times = f"restart after {self.noticed_s:.1f} s, next step after {self.next_step_s:.1f} s"
        return f"{self.fault}: {times}, {self.lost_steps} steps lost"


def positions(events: Sequence[Document]) -> list[tuple[float, int]]:
    """Return the Unix time and the number of completed steps of each report by rank 0, in order."""
    found = []
    for event in events:
        if event["event"] == "epoch":
            found.append((float(event["time"]), int(event["total_steps"])))
        if event["event"] == "step":
            found.append((float(event["time"]), (event["epoch"] - 1) * event["steps_per_epoch"] + event["step"]))
    return found


def resumed_at(start: Document) -> int:
    """Return the number of steps in the checkpoint that an attempt resumed from, by its event `start`; 0 for none."""
    return int(str(start.get("resumed_from") or "0").rpartition("-")[2])


def recovered(events: Sequence[Document], fault: str, at: float, restarts: Sequence[float]) -> Recovery | None:
    """Return the cost of a fault at Unix time `at`; None if no step was reported since the restart that followed.

    `restarts`: Unix time at which each restart began.
    """
    starts = [event for event in events if event["event"] == "start"]
    start = next((each for each in starts if each["time"] > at), None)
    noticed = next((began for began in restarts if began > at), None)
    if start is None or noticed is None:
        return None
    told = positions(events)
    after = next((when for when, _ in told if when > start["time"]), None)
    if after is None:
        return None
    began = max((each["time"] for each in starts if each["time"] <= at), default=0.0)
    before = max((steps for when, steps in told if began < when < start["time"]), default=0)
    lost = max(0, before - resumed_at(start))
    return Recovery(fault=fault, noticed_s=noticed - at, next_step_s=after - at, lost_steps=lost)


def fab(nodes: int, task: str, *words: str) -> str:
    """Run a fab task for a cluster of `nodes` workers and a spare worker; return its output."""
    return output_of(on_laptop(CLOUD, "env", "CDK_VALIDATION=false", "fab", task, *demo.settings(nodes + 1), *words))


class Run:
    """A run of the digits recipe. The constructor starts it and returns; the run then trains until it is stopped."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        words = ["--nodes", str(nodes), "--recipe", "digits", "--restarts", "1000", "--yes", "--detach"]
        self.id = str(json.loads(fab(nodes, "train", *words, "--json", "--", *RECIPE))["run_id"])
        shared = Path(json.loads(output_of(demo.localcloud("status", "--name", CLOUD, "--json")))["file_systems"])
        (self._path,) = shared.glob(f"*/runs/{self.id}")
        self._tail, self._events = Tail(self._path / "metrics.jsonl"), list[Document]()

    def events(self) -> list[Document]:
        """Return all events that rank 0 has reported so far."""
        self._events += [json.loads(line) for line in self._tail.lines()]
        return self._events

    @property
    def state(self) -> str:
        """Return the state in the run's state file."""
        return str(json.loads((self._path / "state.json").read_text())["state"])

    def hosts(self) -> str:
        """Return a pattern that matches the instance ids of the run's hosts. The cluster has one more host."""
        spec = json.loads((self._path / "spec.json").read_text())
        return "|".join(host["instance_id"] for host in spec["hosts"])

    def restarts(self) -> list[float]:
        """Return the Unix time at which each restart began."""
        course = json.loads((self._path / "course.json").read_text())
        return [float(each["time"]) for each in course.get("restarts") or ()]

    def train_for(self, seconds: float) -> float:
        """Wait until rank 0 has reported steps for `seconds` without a restart; return the last report's Unix time.

        Raises RuntimeError after PATIENCE_S.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            events = self.events()
            starts = [event["time"] for event in events if event["event"] == "start"]
            told = [when for when, _ in positions(events) if starts and when > starts[-1]]
            if told and told[-1] - told[0] >= seconds and time.time() - told[-1] < 2.0:
                return told[-1]
            time.sleep(POLL_S)
        raise RuntimeError(
            f"run {self.id} (state: {self.state}) did not train for {seconds:g} s within {PATIENCE_S:g} s; repeat the "
            "benchmark when the machine is less busy"
        )

    def stop(self) -> None:
        """Stop the run immediately."""
        fab(self._nodes, "stop", "--run", self.id, "--force")


@contextlib.contextmanager
def chaos(record: Path, hosts: str, *words: str) -> Iterator[None]:
    """Inject scheduled faults during a block, on hosts whose instance ids match the pattern `hosts`.

    `words` are further arguments of `localcloud chaos`. The faults are written to `record`. At the end, lasting faults
    are undone.
    """
    command = demo.localcloud("chaos", "--name", CLOUD, "--hosts", hosts, "--record", str(record), *words)
    with subprocess.Popen(command, cwd=demo.ROOT, env=demo.environment(), stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def fault_times(record: Path) -> list[float]:
    """Return the Unix times of the injected faults in a record, without skipped faults and faults that ended; []
    without the file.
    """
    lines = record.read_text().splitlines() if record.exists() else []
    return [float(event["time"]) for line in lines if "what" in (event := json.loads(line)) and "at_s" in event]


def inject_fault(run: Run, kind: str, seed: int, record: Path) -> Recovery | None:
    """Inject one fault while a run trains; return its cost.

    Returns None if the run ends or does not train again within five minutes. Raises RuntimeError if it does not train
    before the fault.
    """
    run.train_for(QUIET_S)
    times = ("--first", "0", "--every", "3600", "--duration", "1", "--longest", str(MAX_DURATION_S))
    with chaos(record, run.hosts(), "--seed", str(seed), "--kinds", kind, *times):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and run.state not in ("failed", "succeeded", "stopped"):
            done = fault_times(record)
            if done and (found := recovered(run.events(), kind, done[0], run.restarts())):
                return found
            time.sleep(POLL_S)
    return None


@dataclasses.dataclass(kw_only=True)
class Figures:
    """All results so far."""

    recoveries: list[Recovery] = dataclasses.field(default_factory=list)
    missed: list[str] = dataclasses.field(default_factory=list)
    """Kinds of faults that the run did not recover from by itself."""

    def lines(self) -> Iterator[str]:
        """Yield the report's lines: one per kind of fault, and one per fault without recovery."""
        for kind in dict.fromkeys(each.fault for each in self.recoveries):
            of = [each for each in self.recoveries if each.fault == kind]
            texts = [
                f"{name} {statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"
                for name, values in (
                    ("restart after", [each.noticed_s for each in of]),
                    ("next step after", [each.next_step_s for each in of]),
                )
            ]
            lost = statistics.median(each.lost_steps for each in of)
            yield f"{kind:<12} {', '.join(texts)}; {lost:g} steps lost; {len(of)} times"
        yield from (f"{kind:<12} the run did not train again" for kind in self.missed)

    def results(self, nodes: int) -> dict[str, list[float]]:
        """Return what figures.json stores: for each kind of fault, the median time until the next step, s."""
        times: dict[str, list[float]] = {}
        for each in self.recoveries:
            times.setdefault(f"{each.fault}, next step, {nodes} hosts", []).append(each.next_step_s)
        return {name: [statistics.median(taken)] for name, taken in times.items()}


def main(argv: Sequence[str]) -> int:
    """Measure, print and store the results; return 1 if a run did not recover by itself, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2, help="number of nodes that the run trains on (default: 2)")
    parser.add_argument("--faults", default=FAULTS, help=f"kinds of faults, separated by commas (default: {FAULTS})")
    parser.add_argument("--rounds", type=int, default=3, help="number of faults of each kind (default: 3)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    print(f"{this_machine()}, {options.nodes} hosts", flush=True)
    taken = Figures()
    with tempfile.TemporaryDirectory(prefix="recovery-") as name, running_cloud(CLOUD):
        fab(options.nodes, "up", "--yes")
        run = Run(options.nodes)
        for number in range(options.rounds):
            for kind in filter(None, options.faults.split(",")):
                fab(options.nodes, "scale", str(options.nodes + 1), "--yes")  # waits for the replacement of a lost host
                found = inject_fault(run, kind, options.seed + number, Path(name) / f"{kind}-{number}.jsonl")
                print(found or f"{kind}: run {run.id} (state: {run.state}) did not train again", flush=True)
                if found:
                    taken.recoveries.append(found)
                else:
                    taken.missed.append(kind)
                    run.stop()
                    run = Run(options.nodes)
        run.stop()
    figures.keep(taken.results(options.nodes))
    for line in taken.lines():
        print(line)
    return int(bool(taken.missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
