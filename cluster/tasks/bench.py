"""The task that benchmarks a cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from agent.spec.nodes import workers
from cluster.cli import CODE, FOR_NODES, PROJECT
from cluster.cli.task import Key, Queue, Set, Yes, task
from cluster.errors import DeepcdkError, UsageError
from cluster.nodes.worker_group import check_maximum
from cluster.runs.archived_runs import fetch_run
from cluster.runs.launch import Following, Launch, watch_to_end
from cluster.runs.limit_checks import stop_policy
from cluster.runs.recipe_or_program import Benchmark
from cluster.runs.run_options import PreflightOptions, RunOptions
from cluster.runs.run_spec import Stamp, specify
from cluster.session import Session
from cluster.ssh.push import package_tree
from cluster.terminal.output import print_line, print_result
from payload.settings import SettingError
from payload.settings.bench import BenchSettings, parse_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """Flags for what to measure, as typed. Empty flags keep the benchmark's defaults."""

    networks: Annotated[str, "networks, comma-separated; default: lenet,resnet50"] = ""
    batch_sizes: Annotated[str, "images per step and rank, ascending, comma-separated; default: 32"] = ""
    precisions: Annotated[
        str, "number formats of the layers: float32, bfloat16, float16, comma-separated; default: float32"
    ] = ""
    image_size: Annotated[str, "width and height of the images, pixels; default: as each network was published"] = ""
    input_size: Annotated[
        str, "width and height to which the input pipeline resizes, pixels; 0: no resizing; default: 224"
    ] = ""
    storage_mib: Annotated[str, "MiB that each node writes and reads; 0: none; default: 64"] = ""
    message_bytes: Annotated[
        str, "sizes of the allreduces in bytes, ascending, comma-separated; default: five from 1 KiB to 64 MiB"
    ] = ""
    tuning: Annotated[
        str, "chosen (deepcdk's) or defaults (those of TensorFlow, Horovod and Linux); default: chosen"
    ] = ""
    repeats: Annotated[str, "number of rounds; each round measures every cell; default: 5"] = ""
    steps: Annotated[str, "number of timed steps per cell; the median is reported; default: 10"] = ""

    def settings(self, nodes: str) -> BenchSettings:
        """Return the benchmark settings for these numbers of nodes, such as "1,2,4". Raises UsageError."""
        given = {name: text for name, text in dataclasses.asdict(self).items() if text}
        try:
            return parse_settings({**given, "nodes": nodes})
        except SettingError as error:
            raise UsageError(error.flag, error.value, error.rule) from None


def powers_up_to(count: int) -> str:
    """Return the powers of two up to `count`, and `count` itself, separated by commas; "1" for a count below 1."""
    count = max(1, count)
    return ",".join(map(str, sorted({*(1 << power for power in range(count.bit_length())), count})))


@task(short_flags=False)
def bench(
    *,
    set_: Set = (),
    nodes: Annotated[
        str,
        "numbers of worker nodes to measure on, such as 1,2,4; default: the number of workers, and powers of 2 below",
    ] = "",
    cells: BenchFlags,
    run: Annotated[str, "measure nothing and show this earlier benchmark: its id or its fetched directory"] = "",
    against: Annotated[str, "compare with this earlier benchmark: its id or its fetched directory"] = "",
    queue: Queue = False,
    preflight: PreflightOptions,
    yes: Yes = False,
    following: Following,
    key: Key = "",
) -> None:
    """
    Measure networks, allreduces, input pipeline and storage of the cluster, as tables, a picture and JSON.

    A benchmark is a run: it continues without the laptop. If it was stopped, `fab resume` continues it.

    Example: fab bench --nodes 1,2,4 --networks lenet,resnet50 --batch-sizes 32

    Example: fab bench --against 20261120-121314-bench-ab12
    """
    from cluster.plots.style import check_installed
    from cluster.report import chosen_runs  # imports what fetches runs, which the other tasks do not need

    check_installed()
    session = Session(PROJECT, set_, key=key)

    def directory_of(word: str, flag: str) -> Path:
        return chosen_runs.locate(
            word, lambda name: Session(PROJECT, (*set_, f"name={name}"), key=key) if name else session, flag=flag
        )

    if run and (nodes or cells != BenchFlags()):
        raise UsageError("--run", run, "shows an earlier benchmark; leave out the flags that set what to measure")
    cells.settings(nodes or "1")  # reject invalid values before AWS is asked
    earlier = directory_of(against, "--against") if against else None
    if run:
        _show(directory_of(run, "--run"), earlier, json=following.json)
        return
    counts = nodes or powers_up_to(len(session.load_inventory().workers))
    run_id = _measure(session, cells.settings(counts), queue=queue, preflight=preflight, yes=yes, following=following)
    if run_id:
        _show(fetch_run(session, run_id, chosen_runs.RUNS).directory, earlier, json=following.json)


def _measure(
    session: Session,
    settings: BenchSettings,
    *,
    queue: bool,
    preflight: PreflightOptions,
    yes: bool,
    following: Following,
) -> str:
    """Launch a benchmark and watch it. Return its run's id when it has succeeded, or "" with --detach.

    `queue`, `preflight`, `yes` and `following` are flags of the task. Asks before nodes are added, unless `yes` is set.
    Raises DeepcdkError if too few workers are ready, or if the benchmark was stopped, and Exit as `watch_to_end` does.
    """
    count = settings.nodes[-1]
    check_maximum(count, session.load_inventory(), session.config.max_workers)
    launch = Launch(session, CODE, task="fab bench", queue=queue, yes=yes, following=following)
    tree = package_tree(FOR_NODES / "payload")
    with session.connect() as master:
        session.find_pushed(master, [session.agent_tree, tree])
        supervisor = session.supervisor(master)
        occupied = supervisor.occupancy()
        launch.size_for(count, occupied)
        launch.push(master, tree)
        found = launch.free_nodes(master, count, occupied)
        if len(workers(found)) < count:
            raise DeepcdkError(
                f"only {len(workers(found))} of {count} workers are ready",
                remedy="repeat the command when `fab status` lists more workers",
            )
        spec = specify(
            session.stack,
            Benchmark(settings=settings),
            found,
            count,
            agent=session.agent_tree.name,
            tree=tree.name,
            options=RunOptions(
                preflight=preflight, stop_policy=stop_policy(session.stack, wanted=session.config.then_stop)
            ),
            stamp=Stamp.of(CODE),
        )
        spec = launch.configured(spec)
        begun = launch.submit(spec, lambda submission: supervisor.start(submission, {}, queue=queue))
        text = f"run {spec.run_id}: {len(settings.cells())} cells, {settings.repeats} rounds; {begun.placed(spec)}"
        if following.detach:
            launch.follow(supervisor, spec.run_id, begun.position, text, log=True)
            return ""
        launch.announce(spec.run_id, begun.position, text)
        state = watch_to_end(session, supervisor, spec.run_id, log=True, json=following.json, with_document=False)
    if state != "succeeded":
        raise DeepcdkError(
            f"benchmark {spec.run_id} {state} before it was complete",
            remedy=f"continue it with `fab resume {spec.run_id}`, "
            f"or show what it has measured with `fab bench --run {spec.run_id}`",
        )
    return spec.run_id


def _show(directory: Path, earlier: Path | None, *, json: bool) -> None:
    """Print the figures of a benchmark, and write them to its directory as JSON and as a picture.

    With `json`, a JSON document is printed instead of tables. `earlier` is the directory of another benchmark to
    compare with, or None.
    """
    from cluster.bench.bench_comparison import compare
    from cluster.bench.measurements import read_bench
    from cluster.bench.results import document, tables, write_results
    from cluster.terminal.tables import print_table

    found = read_bench(directory)
    comparison = compare(found, read_bench(earlier)) if earlier else None
    files = write_results(directory, found)
    if json:
        further: dict[str, Any] = {"comparison": comparison.document() if comparison else None}
        print_result({**document(found), **further, "files": [str(file) for file in files]}, json=True)
        return
    for table in tables(found):
        print_table(table)
        print_line("")
    for line in comparison.sentences() if comparison else ():
        print_line(line)
    print_line(f"written: {', '.join(map(str, files))}")
