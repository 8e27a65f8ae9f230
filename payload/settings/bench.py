"""Settings of a cluster benchmark: its cells and their order. Standard library only."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from payload.settings.parser import SettingsParser, path_argument
from payload.settings.training import FLOAT32, NETWORKS, NUMBER_FORMATS
from payload.settings.validation import SettingError, check_fields, flag_of, setting

TRAINING: Final = "training"
ALLREDUCE: Final = "allreduce"
INPUT: Final = "input"
WRITE: Final = "write"
READ: Final = "read"
KINDS: Final = (TRAINING, ALLREDUCE, INPUT, WRITE, READ)
SHARED: Final = "shared"
LOCAL: Final = "local"
PLACES: Final = (SHARED, LOCAL)
"""Locations of files: the shared file system, or the node's local disk."""
CHOSEN: Final = "chosen"
DEFAULTS: Final = "defaults"
TUNINGS: Final = (CHOSEN, DEFAULTS)
"""Tuning of placement, threads, oneDNN and Horovod's cycle and buffer: as for a recipe, or none."""
INPUT_IMAGES: Final = 256
"""Images in a pass of the input pipeline, on each rank."""
MESSAGE_BYTES: Final = (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26)
"""1 KiB to 64 MiB. The gradients of ResNet-50 have 98 MiB, and Horovod's buffers at most 128 MiB."""
BENCH_FILE: Final = "bench.jsonl"
"""File with the results in the run's directory, one line for each cell and round."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One measurement, on the ranks of the first `nodes` nodes."""

    kind: str
    """One of KINDS: training steps, sums of one tensor, passes of the input pipeline, writing or reading a file."""
    network: str = ""
    batch_per_rank: int = 0
    """Images in a step, or in a pass of the input pipeline, on each rank."""
    image_size: int = 0
    """Image side in pixels; 0: the network's published size."""
    precision: str = FLOAT32
    """Number format of the layers. Weights, gradients and allreduce tensors are float32."""
    message_bytes: int = 0
    """Size of the tensor to sum, or of each node's file."""
    place: str = ""
    """Location of the file, one of PLACES."""
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
        """Return the network's name, followed by the precision unless it is float32: `resnet50 in bfloat16`."""
        return self.network if self.precision == FLOAT32 else f"{self.network} in {self.precision}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """All cells of a benchmark, and how often each is measured. Raises SettingError for invalid values."""

    nodes: tuple[int, ...] = setting(
        (1,), "numbers of nodes, ascending; the run uses the last number", low=1, high=4096
    )
    networks: tuple[str, ...] = setting(("lenet", "resnet50"), "networks to measure", choices=NETWORKS)
    batch_sizes: tuple[int, ...] = setting((32,), "images per step on each rank, ascending", low=1, high=1 << 16)
    precisions: tuple[str, ...] = setting((FLOAT32,), "number formats of the layers", choices=NUMBER_FORMATS)
    message_bytes: tuple[int, ...] = setting(
        MESSAGE_BYTES, "sizes of an allreduce, bytes, ascending", low=1, high=1 << 30
    )
    image_size: int = setting(0, "image size, pixels; 0: as in each network's publication", low=0, high=1 << 13)
    input_size: int = setting(
        224, "image size that the input pipeline resizes to, pixels; 0: not measured", low=0, high=1 << 13
    )
    storage_mib: int = setting(64, "MiB that each node writes and reads per round; 0: none", low=0, high=1 << 16)
    tuning: str = setting(CHOSEN, "placement, threads and Horovod's settings, for all cells", choices=TUNINGS)
    repeats: int = setting(5, "number of rounds; each round measures every cell once", low=2, high=100)
    steps: int = setting(10, "number of measured steps in a cell; the result is their median", low=1, high=10_000)
    warmup_steps: int = setting(
        2, "number of steps before the measurement; the first step compiles the graph", low=1, high=10_000
    )

    def __post_init__(self) -> None:
        for name in ("nodes", "batch_sizes", "message_bytes"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise SettingError(flag_of(name), _text(values), "must be ascending, without duplicates")
        for name in ("networks", "precisions"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise SettingError(flag_of(name), _text(values), "must not list a value twice")
        check_fields(self)
        if not self.nodes:
            raise SettingError("--nodes", None, "must list at least one number of nodes")
        if any(size % 4 for size in self.message_bytes):
            raise SettingError(
                "--message-bytes", _text(self.message_bytes), "must be multiples of 4, the size of a float32"
            )
        if not self.cells():
            rule = "nothing to measure; give a network, a number above 1 in --nodes, --input-size or --storage-mib"
            raise SettingError("--networks", None, rule)

    def cells(self) -> tuple[Cell, ...]:
        """Return all cells: training, allreduce, input, and files. Cells to compare are adjacent.

        Allreduce cells need more than one node. There are no input cells if `input_size` is 0, and no file cells if
        `storage_mib` is 0.
        """
        programs = itertools.product(self.networks, self.precisions, self.batch_sizes, self.nodes)
        training = [
            Cell(
                kind=TRAINING,
                network=network,
                batch_per_rank=batch,
                image_size=self.image_size,
                precision=precision,
                nodes=nodes,
            )
            for network, precision, batch, nodes in programs
        ]
        several = [nodes for nodes in self.nodes if nodes > 1]
        sums = [
            Cell(kind=ALLREDUCE, message_bytes=size, nodes=nodes)
            for size, nodes in itertools.product(self.message_bytes, several)
        ]
        inputs = [
            Cell(kind=INPUT, batch_per_rank=INPUT_IMAGES, image_size=self.input_size, nodes=nodes)
            for nodes in self.nodes
            if self.input_size
        ]
        files = [
            Cell(kind=kind, message_bytes=self.storage_mib << 20, place=place, nodes=nodes)
            for place, kind, nodes in itertools.product(PLACES, (WRITE, READ), self.nodes)
            if self.storage_mib
        ]
        return (*training, *sums, *inputs, *files)

    def rounds(self) -> tuple[tuple[int, Cell], ...]:
        """Return the round, counted from 0, and the cell of each measurement, in order.

        Each round measures every cell, so that a temporary disturbance affects all cells. Every second round is in
        reverse order, so that a slow drift affects them equally.
        """
        cells = self.cells()
        return tuple(
            (number, cell) for number in range(self.repeats) for cell in (reversed(cells) if number % 2 else cells)
        )

    def arguments(self) -> tuple[str, ...]:
        """Return these settings as arguments for `BenchConfig.from_argv`."""
        names = [field.name for field in dataclasses.fields(self)]
        return tuple(word for name in names for word in (flag_of(name), _text(getattr(self, name))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """A benchmark and its run directory."""

    settings: BenchSettings
    run_dir: Path

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> BenchConfig:
        """Build the configuration from the arguments after `python -m payload.bench.ranks`. Raises SettingError.

        `--resume` is accepted, but has no effect, because cells that were measured before are always skipped.
        """
        parser = SettingsParser(prog="python -m payload.bench.ranks", allow_abbrev=False)
        parser.add_argument("--run-dir", required=True, type=path_argument, help="directory of the run")
        parser.add_argument("--resume", action="store_true", default=None, help="measure only missing cells")
        parser.add_settings(BenchSettings)
        values = parser.given(argv)
        values.pop("resume", None)
        return cls(run_dir=values.pop("run_dir"), settings=BenchSettings(**values))


def parse_settings(texts: Mapping[str, str]) -> BenchSettings:
    """Parse settings given as texts, such as {"batch_sizes": "32,64"}, with defaults for the others.

    Raises SettingError for an unknown name or an invalid value.
    """
    parser = SettingsParser(allow_abbrev=False)
    parser.add_settings(BenchSettings)
    return BenchSettings(**parser.given([f"{flag_of(name)}={text}" for name, text in texts.items()]))


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
