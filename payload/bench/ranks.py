"""Measure a cluster: `python -m payload.bench.ranks --run-dir DIR --nodes 1,2,4`, on every rank under horovodrun.

`fab bench` starts it. One job measures all cells in sequence, in several rounds. A cell on fewer nodes than the job has
uses the ranks of the first nodes, as a process set of Horovod, while the others wait. Exit status: 0: all measured;
1: failed; 2: invalid arguments; 143: stopped after the current cell, and can be resumed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError
from agent.files.atomic_write import storing
from agent.hardware.machine import this_machine
from payload.bench.input_pipeline import InputBench
from payload.bench.storage import StorageBench
from payload.model_arguments import EXIT_FAILED, EXIT_USAGE, report_error
from payload.models.registry import network
from payload.settings import SettingError, Settings
from payload.settings.bench import BENCH_FILE, CHOSEN, INPUT, READ, TRAINING, WRITE, BenchConfig, BenchSettings, Cell
from payload.tensorflow_errors import first_line
from payload.train import EXIT_STOPPED, StopRequest
from payload.training.rank_setup import RankSetup, set_up_rank, set_up_untuned_rank

LEARNING_RATE: Final = 1e-6
"""Small, so that weights stay finite with random labels. It does not affect the time of a step."""

Step = Callable[[], Any]


def main(argv: Sequence[str]) -> int:
    """As one rank of the benchmark, measure the cells that were not measured before; return the exit status.

    Rank 0 writes the results. The status is 0 if all cells are measured, EXIT_STOPPED if the run was asked to stop,
    EXIT_USAGE for an invalid setting, and EXIT_FAILED after any other error. Errors are printed, an invalid setting
    only by rank 0.
    """
    rank = int(os.environ.get("HOROVOD_RANK", "0"))
    try:
        config = BenchConfig.from_argv(argv)
        stop = StopRequest(config.run_dir, watch_file=rank == 0)
        check_networks(config.settings)
        set_up = set_up_rank if config.settings.tuning == CHOSEN else set_up_untuned_rank
        rank_setup = set_up(settings_of(config.settings.cells()[0], config.settings), os.environ)
        status = _measure(config, rank_setup, stop)
    except SettingError as error:
        return _fail(error, rank, EXIT_USAGE)
    except ReportedError as error:
        return _fail(error, rank, EXIT_FAILED)
    return status


def settings_of(cell: Cell, bench: BenchSettings) -> Settings:
    """Return the training settings for measuring a cell.

    A cell without a network gets the benchmark's first network, or the default network if the benchmark has none.
    """
    name = cell.network or (bench.networks or (Settings().network,))[0]
    size = bench.image_size or network(name).image_size
    return Settings(
        network=name,
        dataset="synthetic",
        image_size=size,
        batch_per_rank=cell.batch_per_rank or 1,
        precision=cell.precision,
    )


def check_networks(bench: BenchSettings) -> None:
    """Raise ImageShapeError if a network of the benchmark does not support the image size in the settings."""
    for name in bench.networks:
        known = network(name)
        size = bench.image_size or known.image_size
        known.require_size(size, bench.image_size or known.image_shape[1])


def ranks_of(bench: BenchSettings, environ: Any) -> dict[int, int]:
    """Map each number of nodes in `--nodes` to its number of ranks.

    `environ`: Horovod's variables. Horovod numbers ranks host by host, and `agent` gives all nodes the same number of
    slots. Raises ReportedError if the nodes have different numbers of ranks, or if there are fewer nodes than the
    benchmark needs.
    """
    size, per_node = int(environ.get("HOROVOD_SIZE", "1")), int(environ.get("HOROVOD_LOCAL_SIZE", "1"))
    there = size // per_node
    if size % per_node or there < bench.nodes[-1]:
        raise ReportedError(
            f"the benchmark needs {bench.nodes[-1]} nodes with equally many ranks, but the job has {size} ranks, "
            f"{per_node} of them on this node; use smaller --nodes, or resume on as many nodes as before"
        )
    return {nodes: nodes * per_node for nodes in bench.nodes}


def _measure(config: BenchConfig, rank_setup: RankSetup, stop: StopRequest) -> int:
    ranks_by_nodes = ranks_of(config.settings, os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # keep TensorFlow's messages out of the results
    from payload.training import distributed
    from payload.training.rank_setup import set_up_tensorflow

    size, steps = int(os.environ.get("HOROVOD_SIZE", "1")), None
    with distributed.raising_lost_ranks():
        ranks = distributed.join([count for count in ranks_by_nodes.values() if count < size])
        try:
            set_up_tensorflow(rank_setup, ranks.local_rank)
            ranks = distributed.with_hosts(ranks, os.environ.get("HOROVOD_HOSTNAME"))
            done = distributed.broadcast_value(measured(config.run_dir), name="measured")
            if ranks.is_root:
                append(config.run_dir, _origin(config.settings, ranks.hosts, rank_setup))
            left = [each for each in config.settings.rounds() if each not in done]
            steps = Steps(config.settings, config.run_dir, ranks.rank)
            for place, (number, cell) in enumerate(left, start=1):
                if any(distributed.gather_values(stop(), name="stop")):
                    return EXIT_STOPPED
                count = ranks_by_nodes[cell.nodes]
                own = steps.seconds(cell, count) if takes_part(cell, ranks.rank, count, os.environ) else None
                slowest = max(each for each in distributed.gather_values(own, name="seconds") if each is not None)
                if ranks.is_root:
                    append_cell(config.run_dir, number, cell, ranks=count, seconds=slowest)
                    print(f"{place} of {len(left)}, round {number + 1}: {cell}: {slowest * 1e3:.4g} ms", flush=True)
        finally:
            if steps:
                steps.remove_files()
            distributed.leave()
    return 0


def measured(run_dir: Path) -> set[tuple[int, Cell]]:
    """Read a run's BENCH_FILE; return the round, counted from 0, and the cell of each earlier measurement.

    The result is empty if the file does not exist. A line that a crash left incomplete is ignored.
    """
    found = set()
    try:
        lines = (run_dir / BENCH_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return set()
    for line in lines:
        try:
            event = json.loads(line)
            if event["type"] == "cell":
                found.add((int(event["round"]), Cell(**event["cell"])))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def append(run_dir: Path, event: Mapping[str, Any]) -> None:
    """Append an event as a line of JSON to the run's BENCH_FILE, and sync the file to the storage.

    The directory is created if necessary. If a crash left the last line incomplete, the event still begins on a new
    line. Raises StorageError.
    """
    path = run_dir / BENCH_FILE
    with storing(path):
        run_dir.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(event).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def append_cell(run_dir: Path, number: int, cell: Cell, *, ranks: int, seconds: float) -> None:
    """Append a cell's time in round `number`, counted from 0, to BENCH_FILE. Raises StorageError.

    `seconds`: the median step of the slowest rank. `ranks`: number of ranks that took part.
    """
    event = {"type": "cell", "round": number, "cell": dataclasses.asdict(cell), "ranks": ranks, "seconds": seconds}
    append(run_dir, event)


def takes_part(cell: Cell, rank: int, count: int, environ: Mapping[str, str]) -> bool:
    """Return whether a rank takes part in a cell, which uses the first `count` ranks.

    Storage is measured by one rank per node. `environ`: Horovod's variables of this rank.
    """
    return rank < count and (cell.kind not in (WRITE, READ) or environ.get("HOROVOD_LOCAL_RANK", "0") == "0")


class Steps:
    """The compiled steps of all cells. Each is compiled once, and kept with its weights for further rounds."""

    def __init__(self, bench: BenchSettings, run_dir: Path, rank: int = 0) -> None:
        self._bench = bench
        self._storage = StorageBench(run_dir, Path.home(), rank)
        self._input = InputBench(Path.home())
        self._models: dict[tuple[str, str], tuple[Any, Any]] = {}
        self._compiled: dict[Cell, Step] = {}

    def seconds(self, cell: Cell, ranks: int) -> float:
        """Run a cell's steps, after warm-up steps; return their median time on this rank, in seconds.

        The call is collective on the first `ranks` ranks. For the input pipeline and storage, the result is the time of
        one pass or file, and the call is not collective. Raises ReportedError if memory or disk space runs out, or
        files cannot be read or written.
        """
        if cell.kind in (WRITE, READ):
            return self._storage.seconds(cell)
        if cell.kind == INPUT:
            return self._input.seconds(cell)
        import tensorflow as tf

        from payload.training import distributed

        with distributed.first_ranks(ranks):
            try:
                if cell not in self._compiled:
                    self._compiled[cell] = self._training(cell, ranks) if cell.kind == TRAINING else _allreduce(cell)
                step = self._compiled[cell]
                for _ in range(self._bench.warmup_steps):
                    step()
                return statistics.median(_timed(step) for _ in range(self._bench.steps))
            except tf.errors.ResourceExhaustedError as error:
                what = f"{cell}: out of memory ({first_line(error)})"
                raise ReportedError(f"{what}; use smaller --batch-sizes, or omit the network from --networks") from None

    def remove_files(self) -> None:
        """Remove this rank's files of the input pipeline and storage. Errors are ignored."""
        self._storage.remove()
        self._input.remove()

    def _training(self, cell: Cell, ranks: int) -> Step:
        """Return a function that runs one training step of `payload.train`, with random images in memory."""
        import numpy as np
        import tensorflow as tf

        from payload.training.train_step import make_train_step

        settings, known = settings_of(cell, self._bench), network(cell.network)
        width = self._bench.image_size or known.image_shape[1]
        model, optimizer = self._model(settings, (settings.image_size, width, known.channels))
        draw = np.random.default_rng(1)
        shape = (cell.batch_per_rank, settings.image_size, width, known.channels)
        images = tf.constant(draw.integers(0, 256, shape, np.uint8))
        labels = tf.constant(draw.integers(0, known.classes, cell.batch_per_rank, np.int32))
        weights = np.ones(cell.batch_per_rank, np.float32)
        step = make_train_step(model, optimizer, settings)
        batch = cell.batch_per_rank * ranks
        return lambda: step(images, labels, weights, batch, LEARNING_RATE, False, 0).numpy()

    def _model(self, settings: Settings, shape: tuple[int, int, int]) -> tuple[Any, Any]:
        """Return the network and its optimizer, shared by all cells with the same network and precision."""
        import keras

        from payload.training.optimizers.optimizer import make_optimizer

        key = (settings.network, settings.precision)
        if key not in self._models:
            keras.utils.set_random_seed(1)
            known = network(settings.network)
            model = known.build(shape, known.classes, precision=settings.precision)
            self._models[key] = (model, make_optimizer(settings, model))
        return self._models[key]


def _allreduce(cell: Cell) -> Step:
    """Return a function that sums a tensor of `cell.message_bytes` (float32) over ranks, and waits for the result."""
    import tensorflow as tf

    from payload.training import distributed

    tensor = tf.zeros(cell.message_bytes // 4, tf.float32)
    name = f"allreduce.{cell.message_bytes}"
    graph = tf.function(lambda values: distributed.total_in_graph(values, name)[0], autograph=False)
    return lambda: graph(tensor).numpy()


def _timed(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _origin(bench: BenchSettings, hosts: Sequence[str], rank_setup: RankSetup) -> dict[str, Any]:
    """Return the event that records the hosts, versions, tuning and arguments of the measurements."""
    import keras
    import tensorflow as tf

    from payload.training import distributed

    return {
        "type": "origin",
        "arguments": list(bench.arguments()),
        "hosts": list(hosts),
        "machine": str(this_machine()),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "horovod": distributed.version(),
        "tuning": rank_setup.values(),
    }


def _fail(error: ReportedError, rank: int, status: int) -> int:
    if rank == 0 or status != EXIT_USAGE:
        report_error("payload.bench.ranks", error, status)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
