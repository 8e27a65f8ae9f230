"""What a benchmark of a cluster measures: its cells and their order. Standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from payload.settings.data import NETWORKS
from payload.settings.parser import SettingsParser, unknown_value
from payload.settings.precision import FLOAT32, NUMBER_FORMATS
from payload.settings.rules import SettingError, flag_of

TRAINING: Final = "training"
ALLREDUCE: Final = "allreduce"
INPUT: Final = "input"
WRITE: Final = "write"
READ: Final = "read"
KINDS: Final = (TRAINING, ALLREDUCE, INPUT, WRITE, READ)
SHARED: Final = "shared"
LOCAL: Final = "local"
PLACES: Final = (SHARED, LOCAL)
"""Where files are: on the shared file system, or on the node's own disk."""
CHOSEN: Final = "chosen"
DEFAULTS: Final = "defaults"
TUNINGS: Final = (CHOSEN, DEFAULTS)
"""Placement, threads, oneDNN and Horovod's cycle and buffer: those that a recipe chooses, or none of it."""
INPUT_IMAGES: Final = 256
"""Images of a pass of the input pipeline, on each rank."""
MESSAGE_BYTES: Final = (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26)
"""1 KiB to 64 MiB; a gradient of ResNet-50 has 98 MiB, which Horovod sends in buffers of at most 128."""
BENCH_FILE: Final = "bench.jsonl"
"""What was measured, a line for each cell and round, in the run's directory."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One thing to measure, on the ranks of the first `nodes` nodes."""

    kind: str
    """One of KINDS: steps of a network, sums of one tensor, passes of the input pipeline, a file written or read."""
    network: str = ""
    batch_per_rank: int = 0
    """Images of a step, or of a pass of the input pipeline, on each rank."""
    image_size: int = 0
    """Side of the images, pixels; 0: as the network was published."""
    precision: str = FLOAT32
    """Number format of the layers; weights, gradients and the tensors of allreduces are float32."""
    message_bytes: int = 0
    """Size of the tensor that is summed, or of the file of each node."""
    place: str = ""
    """Where the file is, of PLACES."""
    nodes: int

    def __str__(self) -> str:
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        if self.kind == TRAINING:
            size = f" of {self.image_size} pixels" if self.image_size else ""
            return f"{self.program}, {self.batch_per_rank} images{size} a rank, {nodes}"
        if self.kind == INPUT:
            return f"input, {self.batch_per_rank} images to {self.image_size} pixels a rank, {nodes}"
        if self.kind in (WRITE, READ):
            return f"{self.kind} {self.message_bytes:,} bytes a node, {self.place}, {nodes}"
        return f"allreduce of {self.message_bytes:,} bytes, {nodes}"

    @property
    def program(self) -> str:
        """Return the network with its precision, where that is not float32."""
        return self.network if self.precision == FLOAT32 else f"{self.network} in {self.precision}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """All cells of a benchmark, and how often each is measured."""

    nodes: tuple[int, ...] = (1,)
    """Numbers of nodes, ascending; the run has as many as the last."""
    networks: tuple[str, ...] = ("lenet", "resnet50")
    batch_sizes: tuple[int, ...] = (32,)
    """Images of a step, on each rank."""
    precisions: tuple[str, ...] = (FLOAT32,)
    """Number formats of the layers, as `payload.train --precision` has them."""
    message_bytes: tuple[int, ...] = MESSAGE_BYTES
    image_size: int = 0
    """Side of the images, pixels; 0: as each network was published."""
    input_size: int = 224
    """Side to which the input pipeline crops and resizes, pixels; 0: it is not measured."""
    storage_mib: int = 64
    """MiB that each node writes, and reads, in a round; 0: storage is not measured."""
    tuning: str = CHOSEN
    """One of TUNINGS, for all cells."""
    repeats: int = 5
    """Rounds, in each of which every cell is measured once: enough for a median and a spread."""
    steps: int = 10
    """Steps timed in a cell; their median counts."""
    warmup_steps: int = 2
    """Steps before them: the first compiles the graph."""

    def __post_init__(self) -> None:
        for name, high in (("nodes", 4096), ("batch_sizes", 1 << 16), ("message_bytes", 1 << 30)):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise SettingError(flag_of(name), ",".join(map(str, values)), "must be ascending, none twice")
            if values and not 1 <= values[0] <= values[-1] <= high:
                raise SettingError(flag_of(name), ",".join(map(str, values)), f"each must be 1 to {high}")
        if not self.nodes:
            raise SettingError("--nodes", "", "must name a number of nodes at least")
        if any(size % 4 for size in self.message_bytes):
            raise SettingError("--message-bytes", ",".join(map(str, self.message_bytes)), "must be whole float32s")
        for flag, names, known in (
            ("--networks", self.networks, NETWORKS),
            ("--precisions", self.precisions, NUMBER_FORMATS),
        ):
            for name in names:
                if name not in known:
                    raise unknown_value(flag, name, known)
            if len(set(names)) < len(names):
                raise SettingError(flag, ",".join(names), "must name none twice")
        if self.tuning not in TUNINGS:
            raise unknown_value("--tuning", self.tuning, TUNINGS)
        for name, low, high in (
            ("repeats", 2, 100),
            ("steps", 1, 10_000),
            ("warmup_steps", 1, 10_000),
            ("image_size", 0, 1 << 13),
            ("input_size", 0, 1 << 13),
            ("storage_mib", 0, 1 << 16),
        ):
            if not low <= getattr(self, name) <= high:
                raise SettingError(flag_of(name), getattr(self, name), f"must be {low} to {high}")
        if not self.cells():
            raise SettingError("--networks", "", "there is nothing to measure: name a network, or 2 nodes")

    def cells(self) -> tuple[Cell, ...]:
        """Return all cells, those that are compared side by side; one node alone has no allreduce."""
        training = [
            Cell(
                kind=TRAINING,
                network=network,
                batch_per_rank=batch,
                image_size=self.image_size,
                precision=precision,
                nodes=nodes,
            )
            for network in self.networks
            for precision in self.precisions
            for batch in self.batch_sizes
            for nodes in self.nodes
        ]
        sums = [
            Cell(kind=ALLREDUCE, message_bytes=size, nodes=nodes)
            for size in self.message_bytes
            for nodes in self.nodes
            if nodes > 1
        ]
        inputs = [
            Cell(kind=INPUT, batch_per_rank=INPUT_IMAGES, image_size=self.input_size, nodes=nodes)
            for nodes in self.nodes
            if self.input_size
        ]
        files = [
            Cell(kind=kind, message_bytes=self.storage_mib << 20, place=place, nodes=nodes)
            for place in PLACES
            for kind in (WRITE, READ)
            for nodes in self.nodes
            if self.storage_mib
        ]
        return (*training, *sums, *inputs, *files)

    def rounds(self) -> tuple[tuple[int, Cell], ...]:
        """Return each round with each of its cells, in the order of measuring.

        Each round measures every cell, so that what disturbs for a while meets all cells alike; every second one goes
        backwards, so that what drifts slowly does too.
        """
        cells = self.cells()
        return tuple(
            (number, cell) for number in range(self.repeats) for cell in (reversed(cells) if number % 2 else cells)
        )

    def arguments(self) -> tuple[str, ...]:
        """Return these settings as the arguments that `from_argv` reads."""
        words = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            words += [flag_of(field.name), ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
        return tuple(words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """A benchmark and the directory of its run."""

    settings: BenchSettings
    run_dir: Path

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> BenchConfig:
        """Build it from the arguments after `python -m payload.benchmark.ranks`. Raises SettingError."""
        parser = SettingsParser(prog="python -m payload.benchmark.ranks", allow_abbrev=False)
        parser.add_argument("--run-dir", required=True, type=Path)
        parser.add_argument("--resume", action="store_true", help="what is measured already never is again")
        for field in dataclasses.fields(BenchSettings):
            parser.add_argument(flag_of(field.name))
        given, unknown = parser.parse_known_args(list(argv))
        values = {name: value for name, value in vars(given).items() if value is not None}
        if unknown:
            raise unknown_value("argument", unknown[0], [flag_of(name) for name in vars(given)])
        run_dir, _ = values.pop("run_dir"), values.pop("resume")
        return cls(run_dir=run_dir, settings=parse_settings(values))


def parse_settings(texts: dict[str, str]) -> BenchSettings:
    """Return the settings that are given as texts, by their names; others are the defaults. Raises SettingError."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        default = getattr(BenchSettings, name)
        words = [word.strip() for word in text.split(",") if word.strip()]
        if name in ("networks", "precisions"):
            values[name] = tuple(words)
            continue
        if name == "tuning":
            values[name] = text
            continue
        try:
            numbers = tuple(int(word) for word in words)
        except ValueError:
            raise SettingError(flag_of(name), text, "must be whole numbers with commas between") from None
        if isinstance(default, tuple):
            values[name] = numbers
        elif len(numbers) == 1:
            values[name] = numbers[0]
        else:
            raise SettingError(flag_of(name), text, "must be one whole number")
    return BenchSettings(**values)
