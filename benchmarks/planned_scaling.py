"""How well the planner foretells training on 1 to 8 nodes, from one node and the link between them.

    python -m benchmarks.planned_scaling [--nodes 2,4,8] [--networks NAME:BATCH,...] [--cpus 0.15]
                                         [--link-mbit 100,1000] [--repeats N] [--plot FILE] [--output FILE]
    python -m benchmarks.planned_scaling --runs DIR [--plot FILE]      # judge benchmarks that were fetched to DIR

For each speed of the link an embedded cloud is started whose hosts have so much processor time each, and no more, so
that they do not take it from each other: together less than the machine has. `fab bench` measures training of each
network on each number of nodes, and allreduces. The planner is told the rate on one node and the link, as `fab plan`
would find them in ./runs, and nothing of training on several nodes; what it expects of those stands beside what was
measured. A host with 0.15 of a processor pauses for 17 ms after each 3, and a step of a few such pauses lasts one more
or less as chance has it: with LeNet's batch its step lasts more than a tenth of a second. Eight hosts and the master so
leave a third of two cores to the router between them. Needs root, as the embedded cloud does. Return 1 where an
expectation is off by more than 20%.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.files.atomic_write import replace_file
from agent.hardware.machine import this_machine
from agent.spec.states import RECORD_FILE
from benchmarks.measure import output_of
from cluster.bench.measurements import Bench, Measurement, read_bench
from cluster.planner.past_runs import NO_FIGURE, bench_link, bench_rates, predicted_step_s
from cluster.planner.plot import SETTINGS
from cluster.report.palette import DASHES, LIGHT, MARKERS
from cluster.report.run_files import read_run
from payload.settings.bench import TRAINING
from tools import demo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLOUD: Final = "planned"
WANTED: Final = 0.2
"""How far off an expectation may be, as a fraction of what was measured."""
NETWORKS: Final = "lenet:64,resnet20:8,fashion-vgg:8"
MESSAGE_BYTES: Final = "1024,16384,262144,4194304,16777216"
"""The gradients of the networks lie between these; 64 MiB would take a quarter of an hour over 100 Mbit/s."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One network on one number of nodes."""

    link: str
    network: str
    nodes: int
    measured: float
    """Images a second, the median of the rounds."""
    quickest: float
    slowest: float
    expected: float
    """Images a second; on one node, what was measured."""

    @property
    def off(self) -> float:
        """Return how far the expectation is off, as a fraction of what was measured."""
        return self.expected / self.measured - 1


def judge(directory: Path, link: str) -> list[Point]:
    """Return each cell of the benchmarks that were fetched to a directory beside what the planner expects of it.

    It is told the rates of the benchmarks on one node, and of each on several its link, and nothing else of that.
    """
    runs = [path.parent for path in sorted(directory.glob(f"*/{RECORD_FILE}"))]
    benches = [(read_bench(run), read_run(run).record) for run in runs]
    one = [each for each in benches if _most_nodes(each[0]) == 1]
    several = [each for each in benches if _most_nodes(each[0]) > 1]
    if not one or not several:
        raise SystemExit(f"{directory}: there must be a benchmark on one node and one on several")
    rates = {rate.network: rate for bench in one for rate in bench_rates(*bench)}
    points = [_point(each, link, each.median_s) for bench, _ in one for each in bench.of_kind(TRAINING)]
    for bench, record in several:
        try:
            links = [bench_link(bench, record)]
        except NO_FIGURE:
            links = []
        for each in (each for each in bench.of_kind(TRAINING) if each.cell.nodes > 1):
            seconds = predicted_step_s(each, rates[each.cell.network], record, links, bench.cycle_s)
            points.append(_point(each, link, seconds))
    networks = list(dict.fromkeys(point.network for point in points))
    return sorted(points, key=lambda point: (networks.index(point.network), point.nodes))


def _most_nodes(bench: Bench) -> int:
    return max((each.cell.nodes for each in bench.of_kind(TRAINING)), default=0)


def _point(cell: Measurement, link: str, expected_s: float) -> Point:
    images = cell.cell.batch_per_rank * cell.ranks
    return Point(
        link=link,
        network=cell.cell.network,
        nodes=cell.cell.nodes,
        measured=cell.images_per_s,
        quickest=images / min(cell.seconds),
        slowest=images / max(cell.seconds),
        expected=images / expected_s,
    )


@contextmanager
def cloud(link_mbit: int, cpus: str) -> Iterator[None]:
    """Keep an embedded cloud up, with an SSH key on its laptop, for the time of a block."""
    limits = ("--cpus", cpus, "--link-mbit", str(link_mbit))
    output_of(demo.localcloud("start", "--name", CLOUD, *limits, *demo.runtime_mount()))
    try:
        output_of(laptop("sh", "-c", demo.shell(demo.SSH_KEYGEN)))
        yield
    finally:
        output_of(demo.localcloud("stop", "--name", CLOUD))


def laptop(*command: str) -> list[str]:
    """Return the command line that runs a command on the laptop of the benchmark's own cloud."""
    return demo.localcloud("run", "--name", CLOUD, "--", *command)


def measure(options: argparse.Namespace, link_mbit: int, into: Path) -> Path:
    """Run `fab bench` over such links, on one node alone and on several; return where all were fetched to.

    There are two for each size of the batch. Within a job on several nodes, one of them also answers the others'
    Horovod while it computes alone.
    """
    into.mkdir(parents=True)
    most = options.nodes.split(",")[-1]
    messages = {"1": MESSAGE_BYTES.partition(",")[0], options.nodes: MESSAGE_BYTES}
    with cloud(link_mbit, options.cpus):
        output_of(laptop("fab", "up", "--yes", *demo.settings(int(most))))
        for batch, networks in options.networks.items():
            for nodes, sizes in messages.items():
                command = ["fab", "bench", "--nodes", nodes, "--networks", ",".join(networks), "--yes", "--json"]
                command += ["--batch-sizes", str(batch), "--repeats", str(options.repeats)]
                command += ["--input-size", "0", "--storage-mib", "0", "--message-bytes", sizes]
                done = json.loads(output_of(laptop(*command, "--steps", str(options.steps))))
                shutil.move(demo.ROOT / "runs" / str(done["run_id"]), into)
    return into


def by_batch(text: str) -> dict[int, list[str]]:
    """Return the networks of each batch, images a rank and step, of `network:batch,...`. Raises ArgumentTypeError."""
    found: dict[int, list[str]] = {}
    for each in text.split(","):
        network, _, batch = each.partition(":")
        if not network or not batch.isdecimal() or not int(batch):
            raise argparse.ArgumentTypeError(f"{each!a} must be a network and its batch, as lenet:64")
        found.setdefault(int(batch), []).append(network)
    return found


def draw(points: Sequence[Point]) -> Figure:
    """Draw what was measured as points with the range of their rounds, and what was expected as lines."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    links = list(dict.fromkeys(each.link for each in points))
    with rc_context(SETTINGS):
        figure = Figure(figsize=(4.5 * len(links), 3.8), layout="constrained")
        for axes, link in zip(figure.subplots(1, len(links), sharey=True, squeeze=False)[0], links, strict=True):
            here = [each for each in points if each.link == link]
            for number, network in enumerate(dict.fromkeys(each.network for each in here)):
                _draw_network(axes, [each for each in here if each.network == network], number)
            every = sorted({each.nodes for each in here})
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.set_xticks(every, labels=[str(n) for n in every])
            axes.set_xlabel("nodes")
            axes.set_title(f"images/s, {link}", loc="left", fontsize=10)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def _draw_network(axes: Any, points: Sequence[Point], number: int) -> None:
    network, colour, nodes = points[0].network, LIGHT.series[number], [each.nodes for each in points]
    expected = [each.expected for each in points]
    axes.plot(nodes, expected, color=colour, ls=DASHES[number], lw=1.4, label=f"{network}, expected")
    measured = [each.measured for each in points]
    bars = [[each.measured - each.slowest for each in points], [each.quickest - each.measured for each in points]]
    label = f"{network}, measured"
    axes.errorbar(nodes, measured, yerr=bars, fmt=MARKERS[number], color=colour, ms=5, capsize=3, label=label)


def table(points: Sequence[Point]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"{'link':<14}{'network':<14}{'nodes':>5}{'measured':>12}{'expected':>12}{'off':>8}  images/s"
    for each in points:
        shown = f"{each.link:<14}{each.network:<14}{each.nodes:>5}{each.measured:>12.1f}{each.expected:>12.1f}"
        yield shown + (f"{100 * each.off:>+7.0f}%" if each.nodes > 1 else f"{'known':>8}")


def main(argv: Sequence[str]) -> int:
    """Print the table; return 1 where an expectation is off by more than is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="2,4,8", help="numbers of nodes beside 1, ascending (default: 2,4,8)")
    parser.add_argument(
        "--networks",
        type=by_batch,
        default=NETWORKS,
        metavar="NAME:BATCH,...",
        help=f"networks, and images a rank and step of each (default: {NETWORKS})",
    )
    parser.add_argument("--cpus", default="0.15", help="processors' worth of time of each host (default: 0.15)")
    parser.add_argument("--link-mbit", default="100,1000", help="speeds of the link, Mbit/s (default: 100,1000)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--runs", type=Path, help="measure nothing: directory with a directory for each link's benchmarks"
    )
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(argv)
    print(f"{this_machine()}, {options.cpus} processors each", flush=True)
    points: list[Point] = []
    with tempfile.TemporaryDirectory(prefix="planned-") as name:
        if options.runs:
            for path in sorted(path for path in options.runs.iterdir() if path.is_dir()):
                points += judge(path, path.name.replace("-", " "))
        else:
            for mbit in map(int, options.link_mbit.split(",")):
                into = (options.output.parent if options.output else Path(name)) / f"{mbit}-Mbit-s"
                points += judge(measure(options, mbit, into.resolve()), f"{mbit} Mbit/s")
    for line in table(points):
        print(line)
    if options.plot:
        draw(points).savefig(options.plot, dpi=120)
    if options.output:
        replace_file(options.output, json.dumps([dataclasses.asdict(each) for each in points], indent=1).encode())
    worst = max((each for each in points if each.nodes > 1), key=lambda each: abs(each.off))
    print(f"the farthest off: {100 * worst.off:+.0f}%, {worst.network} on {worst.nodes} nodes, {worst.link}")
    return int(abs(worst.off) > WANTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
