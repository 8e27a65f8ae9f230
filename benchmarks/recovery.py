"""How long a run takes to go on after a fault, and how much it trains while ranks are killed.

    python -m benchmarks.recovery [--nodes 4] [--faults KINDS] [--rounds N] [--seconds S] [--every S] [--output FILE]

An embedded cloud trains the digits recipe on all of its workers but one. First each kind of fault is done to a worker
or its rank, in turns, and the time is taken until the restart begins and until rank 0 tells the next step; it tells of
steps twice a second. Then a rank is killed about every `--every` seconds, for `--seconds`, twice with the same
seed: once the run restarts by itself, once a script looks every five seconds and types `fab resume`. Goodput is what
was trained in that time, what was trained twice counted once, over what 30 s without a fault, just before, would have
come to. Needs root, as the embedded cloud does. A fault after which a run does not train again within five minutes is
told, and the benchmark ends with 1. `--faults ""` leaves the first part out.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
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
from agent.runs.follow import Tail
from benchmarks.measure import on_laptop, output_of, running_cloud
from tools import demo

CLOUD: Final = "recovery"
laptop = functools.partial(on_laptop, CLOUD)
FAULTS: Final = "kill-rank,kill-host,cut"
RECIPE: Final = ("--epochs", "100000", "--checkpoint-minutes", "0.1")
"""More epochs than the benchmark lasts."""
QUIET_S: Final = 15.0
"""How long a run trains undisturbed before each fault, s."""
BASELINE_S: Final = 30.0
"""And before ranks are killed now and then: its rate is that with which goodput is compared."""
LONGEST_S: Final = 640
"""A fault that lasts takes a quarter of it at least: longer than Gloo's time-out, so that it is not over by itself."""
LOOK_S: Final = 5.0
"""How often the script that resumes looks, s."""
POLL_S: Final = 0.25
PATIENCE_S: Final = 300.0
"""How long a run may take to train again, s."""
RESTARTED: Final = "its own restarts"
RESUMED: Final = "fab resume"
WAYS: Final = (RESTARTED, RESUMED)
"""What lets a run go on while ranks are killed."""
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
    """Steps that were told before the fault and trained again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goodput:
    """What a run trained in a time in which ranks were killed."""

    way: str
    """What started it again."""
    faults: int
    skipped: int
    """Kills for which there was no rank at that moment."""
    seconds: float
    fraction: float
    """Of the steps at the rate of before, in all of that time."""
    steps_per_s: float
    """The rate of before: what it costs to be able to go on so."""


def positions(events: Sequence[Document]) -> list[tuple[float, int]]:
    """Return when rank 0 told of a step, unix time, and how many steps were done, in the order told."""
    found = []
    for event in events:
        if event["event"] == "epoch":
            found.append((float(event["time"]), int(event["total_steps"])))
        if event["event"] == "step":
            found.append((float(event["time"]), (event["epoch"] - 1) * event["steps_per_epoch"] + event["step"]))
    return found


def resumed_at(start: Document) -> int:
    """Return the steps that were done in the checkpoint from which an attempt began."""
    return int(str(start.get("resumed_from") or "0").rpartition("-")[2])


def recovered(events: Sequence[Document], fault: str, at: float, restarts: Sequence[float]) -> Recovery | None:
    """Return what a fault at a unix time cost, None before the next step; `restarts`: when each restart began."""
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


def rate(events: Sequence[Document], since: float, until: float) -> float:
    """Return steps a second between two unix times, by what was told within them. Raises ValueError for too little."""
    within = [(when, steps) for when, steps in positions(events) if since <= when <= until]
    if len(within) < 2 or within[0][0] == within[-1][0]:
        raise ValueError(f"{len(within)} positions within {until - since:g} s give no rate")
    (first, before), (last, after) = within[0], within[-1]
    return (after - before) / (last - first)


def kept_steps(events: Sequence[Document], until: float) -> int | None:
    """Return the steps done at a unix time that are not trained again; None before what comes next is known."""
    told = [steps for when, steps in positions(events) if when <= until]
    following = next((event for event in events if event["time"] > until and event["event"] in _TELLING), None)
    if following is None:
        return None
    return min(told[-1], resumed_at(following)) if following["event"] == "start" else told[-1]


_TELLING: Final = ("start", "step", "epoch")


def fab(nodes: int, task: str, *words: str) -> str:
    """Run a task on a cluster with one worker more than `nodes`, and return what it printed."""
    return output_of(laptop("env", "CDK_VALIDATION=false", "fab", task, *demo.settings(nodes + 1), *words))


class Run:
    """A run of the digits recipe that does not end by itself."""

    def __init__(self, nodes: int, restarts: int) -> None:
        self._nodes = nodes
        words = ["--nodes", str(nodes), "--recipe", "digits", "--restarts", str(restarts), "--yes", "--detach"]
        self.id = str(json.loads(fab(nodes, "train", *words, "--json", "--", *RECIPE))["run_id"])
        shared = Path(json.loads(output_of(demo.localcloud("status", "--name", CLOUD, "--json")))["file_systems"])
        (self._path,) = shared.glob(f"*/runs/{self.id}")
        self._tail, self._events = Tail(self._path / "metrics.jsonl"), list[Document]()

    def events(self) -> list[Document]:
        """Return what rank 0 has told so far."""
        self._events += [json.loads(line) for line in self._tail.lines()]
        return self._events

    @property
    def state(self) -> str:
        """Return the state that stands written."""
        return str(json.loads((self._path / "state.json").read_text())["state"])

    def hosts(self) -> str:
        """Return a pattern of the instance ids of the hosts that the run is on; the cluster has one more."""
        spec = json.loads((self._path / "spec.json").read_text())
        return "|".join(host["instance_id"] for host in spec["hosts"])

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
            time.sleep(POLL_S)
        raise RuntimeError(f"run {self.id}, {self.state}, did not train for {seconds:g} s within {PATIENCE_S:g} s")

    def stop(self) -> None:
        """End the run."""
        fab(self._nodes, "stop", "--run", self.id, "--force")

    def resume(self) -> bool:
        """Type `fab resume`; return whether it was taken, which it is not while the last attempt is cleaned up."""
        with contextlib.suppress(RuntimeError):
            fab(self._nodes, "resume", "--run", self.id, "--detach", "--json")
            return True
        return False


@contextmanager
def chaos(record: Path, hosts: str, *words: str) -> Iterator[None]:
    """Carry out a schedule of faults on hosts like a pattern beside a block, and undo at its end what lasts."""
    command = demo.localcloud("chaos", "--name", CLOUD, "--hosts", hosts, "--record", str(record), *words)
    with subprocess.Popen(command, cwd=demo.ROOT, env=demo.environment(), stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def told(record: Path, word: str) -> list[float]:
    """Return when faults of a record were done (`what`) or `skipped`, unix time."""
    lines = record.read_text().splitlines() if record.exists() else []
    return [float(event["time"]) for line in lines if word in (event := json.loads(line)) and "at_s" in event]


def meet(run: Run, kind: str, seed: int, record: Path) -> Recovery | None:
    """Do one fault to a run that trains; return what it cost, None where it does not train again."""
    run.train_for(QUIET_S)
    times = ("--first", "0", "--every", "3600", "--duration", "1", "--longest", str(LONGEST_S))
    with chaos(record, run.hosts(), "--seed", str(seed), "--kinds", kind, *times):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and run.state not in ("failed", "succeeded", "stopped"):
            done = told(record, "what")
            if done and (found := recovered(run.events(), kind, done[0], run.restarts())):
                return found
            time.sleep(POLL_S)
    return None


def goodput(run: Run, way: str, options: argparse.Namespace, record: Path) -> Goodput:
    """Kill a rank now and then; return how much is trained all the same."""
    began = run.train_for(BASELINE_S)
    ended = began + options.seconds
    undisturbed, before = rate(run.events(), began - BASELINE_S, began), positions(run.events())[-1][1]
    times = ("--first", str(options.every / 2), "--every", str(options.every), "--duration", str(options.seconds))
    with chaos(record, "worker", "--seed", str(options.seed), "--kinds", "kill-rank", *times):
        while (kept := kept_steps(run.events(), ended)) is None:
            if time.time() > ended + PATIENCE_S:
                raise RuntimeError(f"run {run.id}, {run.state}, does not train again with {way}")
            time.sleep(LOOK_S)
            if way == RESUMED and run.state == "failed":
                run.resume()
    return Goodput(
        way=way,
        faults=len(told(record, "what")),
        skipped=len(told(record, "skipped")),
        seconds=options.seconds,
        fraction=(kept - before) / (undisturbed * options.seconds),
        steps_per_s=undisturbed,
    )


@dataclasses.dataclass(kw_only=True)
class Figures:
    """All that was measured so far."""

    recoveries: list[Recovery] = dataclasses.field(default_factory=list)
    missed: list[str] = dataclasses.field(default_factory=list)
    """Kinds of the faults after which the run did not train again by itself."""
    goodputs: list[Goodput] = dataclasses.field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report."""
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
        for each in self.goodputs:
            skipped = f", {each.skipped} skipped" if each.skipped else ""
            yield (
                f"goodput {each.fraction:.2f} by {each.way}: {each.faults} kills{skipped} in {each.seconds:g} s; "
                f"{each.steps_per_s:.1f} steps/s before"
            )

    def keep(self, output: Path | None, nodes: int) -> None:
        """Write the samples, where a file is wanted."""
        if output:
            document = {"machine": str(this_machine()), "nodes": nodes, **dataclasses.asdict(self)}
            replace_file(output, json.dumps(document, indent=1).encode())


def main(argv: Sequence[str]) -> int:
    """Measure, and print the figures; return 1 where a run did not go on by itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4, help="on which the run trains (default: 4)")
    parser.add_argument("--faults", default=FAULTS, help=f"kinds, with commas between (default: {FAULTS})")
    parser.add_argument("--rounds", type=int, default=3, help="how often each kind is done (default: 3)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of kills, each way (default: 300); 0: none")
    parser.add_argument("--every", type=float, default=60.0, help="between kills, s, times 0.5 to 1.5 (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="keep the samples as JSON")
    options = parser.parse_args(argv)
    print(f"{this_machine()}, {options.nodes} hosts", flush=True)
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="recovery-") as name, running_cloud(CLOUD):
        fab(options.nodes, "up", "--yes")
        run = Run(options.nodes, restarts=1000)
        for number in range(options.rounds):
            for kind in filter(None, options.faults.split(",")):
                found = meet(run, kind, options.seed + number, Path(name) / f"{kind}-{number}.jsonl")
                print(found or f"{kind}: run {run.id}, {run.state}, did not train again", flush=True)
                if found:
                    figures.recoveries.append(found)
                else:
                    figures.missed.append(kind)
                    run.stop()
                    run = Run(options.nodes, restarts=1000)
                figures.keep(options.output, options.nodes)
        for number, way in enumerate(WAYS if options.seconds else ()):
            run.stop()
            run = Run(options.nodes, 0 if way == RESUMED else 1000)
            share = goodput(run, way, options, Path(name) / f"goodput-{number}.jsonl")
            print(share, flush=True)
            figures.goodputs.append(share)
            figures.keep(options.output, options.nodes)
        run.stop()
    for line in figures.lines():
        print(line)
    return int(bool(figures.missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
