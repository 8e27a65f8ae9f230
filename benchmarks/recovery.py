"""How long a run takes to go on after a fault, and how much of a bad hour it trains.

    python -m benchmarks.recovery [--nodes 4] [--faults KINDS] [--rounds N] [--seconds S] [--every S] [--output FILE]

An embedded cloud trains the digits recipe. First each kind of fault is done to a worker or its rank, in turns, and the
time is taken until the restart begins and until rank 0 tells the next step; it tells of steps twice a second. Then a
rank is killed about every `--every` seconds, for `--seconds`, twice with the same seed: once the run goes on by its own
restarts, and once by a script that looks every five seconds and types `fab resume`. Goodput is what was trained in that
time, less what was trained twice, over what the undisturbed run would have. Needs root, as the embedded cloud does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import replace_file
from agent.hardware.machine import this_machine
from benchmarks.measure import output_of
from localcloud.layout import Layout
from tools import demo

CLOUD: Final = "recovery"
FAULTS: Final = "kill-rank,freeze-rank,kill-host,cut"
CHECKPOINT_MIN: Final = "0.1"
QUIET_S: Final = 15.0
"""How long a run trains undisturbed before each fault."""
LOOK_S: Final = 5.0
"""How often the script that resumes looks."""
PATIENCE_S: Final = 300.0
Document = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recovery:
    """What one fault cost."""

    fault: str
    noticed_s: float
    """From the fault until a restart began."""
    next_step_s: float
    """From the fault until rank 0 told a step that came after."""
    lost_steps: int
    """Steps that were trained again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goodput:
    """What a run trained in a time with faults."""

    way: str
    faults: int
    seconds: float
    fraction: float
    """Of what it would have trained undisturbed."""


def positions(events: Sequence[Document]) -> list[tuple[float, int]]:
    """Return when rank 0 told of a step, unix time, and how many steps were done, in the order told."""
    found = []
    for event in events:
        if event["event"] == "epoch":
            found.append((float(event["time"]), int(event["total_steps"])))
        if event["event"] == "step":
            found.append((float(event["time"]), (event["epoch"] - 1) * event["steps_per_epoch"] + event["step"]))
    return found


def recovered(events: Sequence[Document], fault: str, at: float, restarts: Sequence[float]) -> Recovery | None:
    """Return what a fault at a unix time cost, None before the next step; `restarts`: when each restart began."""
    start = next((event for event in events if event["event"] == "start" and event["time"] > at), None)
    noticed = next((began for began in restarts if began > at), None)
    if start is None or noticed is None:
        return None
    after = next((when for when, _ in positions(events) if when > start["time"]), None)
    if after is None:
        return None
    before = max((steps for when, steps in positions(events) if when < start["time"]), default=0)
    resumed = int(str(start.get("resumed_from") or "0").rpartition("-")[2])
    return Recovery(fault=fault, noticed_s=noticed - at, next_step_s=after - at, lost_steps=max(0, before - resumed))


def rate(events: Sequence[Document], since: float, until: float) -> float:
    """Return steps a second between two unix times, by what was told within them."""
    within = [(when, steps) for when, steps in positions(events) if since <= when <= until]
    (first, before), (last, after) = within[0], within[-1]
    return (after - before) / (last - first)


def trained(events: Sequence[Document], until: float) -> int:
    """Return the steps that were done at a unix time."""
    return [steps for when, steps in positions(events) if when <= until][-1]


def laptop(*command: str) -> list[str]:
    """Return the command line that runs a command on the laptop of the benchmark's own cloud."""
    return demo.localcloud("run", "--name", CLOUD, "--", *command)


def fab(nodes: int, task: str, *words: str) -> str:
    """Run a task, and return what it printed."""
    return output_of(laptop("env", "CDK_VALIDATION=false", "fab", task, *demo.settings(nodes), *words))


@contextmanager
def cloud(nodes: int) -> Iterator[None]:
    """Keep an embedded cloud with a cluster up for the time of a block."""
    output_of(demo.localcloud("start", "--name", CLOUD, *demo.runtime_mount()))
    try:
        output_of(laptop("sh", "-c", demo.shell(demo.SSH_KEYGEN)))
        fab(nodes, "up", "--yes")
        yield
    finally:
        output_of(demo.localcloud("stop", "--name", CLOUD))


class Run:
    """A run of the digits recipe that does not end by itself."""

    def __init__(self, nodes: int, restarts: int) -> None:
        self._nodes = nodes
        words = ("--nodes", str(nodes), "--recipe", "digits", "--restarts", str(restarts), "--yes", "--detach")
        settings = ("--epochs", "1000000", "--checkpoint-minutes", CHECKPOINT_MIN)
        self.id = str(json.loads(fab(nodes, "train", *words, "--json", "--", *settings))["run_id"])
        (self._path,) = Layout(name=CLOUD).efs.glob(f"*/runs/{self.id}")

    def events(self) -> list[Document]:
        """Return what rank 0 has told so far."""
        metrics = self._path / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    @property
    def state(self) -> str:
        """Return the state that stands written."""
        return str(json.loads((self._path / "state.json").read_text())["state"])

    def restarts(self) -> list[float]:
        """Return when each restart began, unix time."""
        course = json.loads((self._path / "course.json").read_text())
        return [float(each["time"]) for each in course.get("restarts") or ()]

    def train_for(self, seconds: float) -> float:
        """Wait until rank 0 has told steps for so long without a restart; return when the last of them was told."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            events = self.events()
            starts = [event["time"] for event in events if event["event"] == "start"]
            told = [when for when, _ in positions(events) if starts and when > starts[-1]]
            if told and told[-1] - told[0] >= seconds and time.time() - told[-1] < 2.0:
                return told[-1]
            time.sleep(0.2)
        raise RuntimeError(f"run {self.id}, {self.state}, did not train for {seconds:g} s within {PATIENCE_S:g} s")

    def stop(self) -> None:
        """End the run."""
        fab(self._nodes, "stop", "--run", self.id, "--force")

    def resume(self) -> None:
        """Type `fab resume`."""
        fab(self._nodes, "resume", "--run", self.id, "--detach", "--json")


@contextmanager
def chaos(record: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Carry out a schedule of faults on the workers beside a block, and wait for its end after it."""
    command = demo.localcloud("chaos", "--name", CLOUD, "--hosts", "worker", "--record", str(record), *words)
    with subprocess.Popen(command, cwd=demo.ROOT, env=demo.environment(), stdout=subprocess.DEVNULL, text=True) as run:
        try:
            yield run
        except BaseException:
            run.terminate()
            raise
        if run.wait():
            raise RuntimeError(f"{' '.join(command)} ended with {run.returncode}")


def done(record: Path) -> list[float]:
    """Return when the faults of a record were done, unix time."""
    lines = record.read_text().splitlines() if record.exists() else []
    return [float(event["time"]) for line in lines if "what" in (event := json.loads(line)) and "at_s" in event]


def fault(run: Run, kind: str, seed: int, record: Path) -> Recovery:
    """Do one fault to a run that trains, and wait until it trains again."""
    run.train_for(QUIET_S)
    times = ("--first", "0", "--every", "3600", "--duration", "1", "--longest", "120")
    with chaos(record, "--seed", str(seed), "--kinds", kind, *times):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if at := done(record):
                found = recovered(run.events(), kind, at[0], run.restarts())
                if found:
                    return found
            time.sleep(0.1)
    raise RuntimeError(f"run {run.id} did not train again within {PATIENCE_S:g} s of {kind}")


def goodput(run: Run, way: str, options: argparse.Namespace, record: Path) -> Goodput:
    """Kill a rank now and then; return how much is trained all the same."""
    began = run.train_for(QUIET_S)
    undisturbed, before = rate(run.events(), began - QUIET_S, began), trained(run.events(), began)
    times = ("--first", str(options.every / 2), "--every", str(options.every), "--duration", str(options.seconds))
    with chaos(record, "--seed", str(options.seed), "--kinds", "kill-rank", *times):
        while time.time() < began + options.seconds:
            time.sleep(LOOK_S)
            if way == "fab resume" and run.state == "failed":
                run.resume()
    ended = began + options.seconds
    share = (trained(run.events(), ended) - before) / (undisturbed * options.seconds)
    return Goodput(way=way, faults=len(done(record)), seconds=options.seconds, fraction=share)


def table(recoveries: Sequence[Recovery], goodputs: Sequence[Goodput]) -> Iterator[str]:
    """Yield the lines of a report."""
    for kind in dict.fromkeys(each.fault for each in recoveries):
        of = [each for each in recoveries if each.fault == kind]
        texts = [
            f"{name} {statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"
            for name, values in (
                ("restart after", [each.noticed_s for each in of]),
                ("next step after", [each.next_step_s for each in of]),
            )
        ]
        lost = statistics.median(each.lost_steps for each in of)
        yield f"{kind:<12} {', '.join(texts)}; {lost:g} steps lost; {len(of)} times"
    for put in goodputs:
        yield f"goodput {put.fraction:.2f} with {put.way}: {put.faults} ranks killed in {put.seconds:g} s"


def main(argv: Sequence[str]) -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--faults", default=FAULTS, help=f"kinds, with commas between (default: {FAULTS})")
    parser.add_argument("--rounds", type=int, default=3, help="how often each kind is done (default: 3)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each trace of killed ranks; 0: no trace")
    parser.add_argument("--every", type=float, default=60.0, help="between two killed ranks, s, times 0.5 to 1.5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="keep the samples as JSON")
    options = parser.parse_args(argv)
    print(f"{this_machine()}, {options.nodes} hosts", flush=True)
    recoveries: list[Recovery] = []
    goodputs: list[Goodput] = []
    with tempfile.TemporaryDirectory(prefix="recovery-") as name, cloud(options.nodes):
        run = Run(options.nodes, restarts=1000)
        for turn in range(options.rounds):
            for kind in options.faults.split(","):
                recoveries.append(fault(run, kind, options.seed + turn, Path(name) / f"{kind}-{turn}.jsonl"))
                print(recoveries[-1], flush=True)
        if options.seconds:
            goodputs.append(goodput(run, "its own restarts", options, Path(name) / "restarts.jsonl"))
            run.stop()
            run = Run(options.nodes, restarts=0)
            goodputs.append(goodput(run, "fab resume", options, Path(name) / "resume.jsonl"))
        run.stop()
    for line in table(recoveries, goodputs):
        print(line)
    if options.output:
        kept = {
            "machine": str(this_machine()),
            "nodes": options.nodes,
            "recoveries": [dataclasses.asdict(each) for each in recoveries],
            "goodput": [dataclasses.asdict(each) for each in goodputs],
        }
        replace_file(options.output, json.dumps(kept, indent=1).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
