"""What `python -m payload.benchmark` measures: the only reader of its command line. Standard library only."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from payload.models.registry import NETWORKS, ImageShapeError, Network, network
from payload.settings import SettingError, flag_of
from payload.settings.parser import SettingsParser, unknown_value

NETWORK_NAMES: Final = ("alexnet", "googlenet", "inception-v3", "resnet50", "resnet152", "vgg16")
BATCH_SIZES: Final = (1, 32, 64, 96, 128)
"""What AWS and Intel measured for "AWS Works with Intel to Enable Optimized Deep Learning Frameworks" (2018)."""

Mode = Literal["training", "inference"]
Variant = Literal["tuned", "stock", "onednn-off"]
"""How a cell runs: as the payload chooses (`payload.training.rank_tuning`); as TensorFlow comes, with its pools of a
thread for each logical CPU; or as the payload chooses without oneDNN, the stand-in for TensorFlow before its Intel
optimisations."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """Describe one measurement: one network at one batch size, in a process of its own."""

    network: str
    batch_size: int
    """Images a step."""
    image_size: int
    """Side of the images, pixels."""
    mode: Mode
    """One training step (forward, backward, update), or one forward pass."""
    variant: Variant
    steps: int
    """Steps that are timed; their median counts."""
    warmup_steps: int
    """Steps before them: the first compiles the graph, and allocations settle in the second."""
    intra_op_threads: int
    """Threads within one operation; 0: one for each physical core that the process may use."""
    inter_op_threads: int
    """Operations run at a time; 0: by the network's branches."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """Describe the whole table as validated values."""

    networks: tuple[Network, ...]
    batch_sizes: tuple[int, ...]
    image_size: int | None = None
    """Side of the images, pixels; None: the one for which each network was published."""
    mode: Mode = "training"
    steps: int = 10
    """Enough for a median that a single disturbance does not move; the source took the mean of 100."""
    warmup_steps: int = 2
    compare_onednn: bool = False
    """Measure each cell again with oneDNN off."""
    compare_tuned: bool = False
    """Measure each cell again as TensorFlow comes."""
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    cell_timeout_s: float = 1800
    json_path: Path | None = None
    """Where to write what was measured, after each cell."""

    def __post_init__(self) -> None:
        for size in self.batch_sizes:
            _within("--batch-sizes", size, 1, 1 << 16)
        _within("--steps", self.steps, 1, 1_000_000)
        _within("--warmup-steps", self.warmup_steps, 1, 1_000_000)
        _within("--intra-op-threads", self.intra_op_threads, 0, 1024)
        _within("--inter-op-threads", self.inter_op_threads, 0, 1024)
        _within("--cell-timeout-s", self.cell_timeout_s, 1, 1e6)
        for known in self.networks:
            size = self.image_size or known.image_size
            if size < known.smallest_size:
                raise ImageShapeError(known, size, size)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Return how each cell is measured."""
        stock: tuple[Variant, ...] = ("stock",) if self.compare_tuned else ()
        off: tuple[Variant, ...] = ("onednn-off",) if self.compare_onednn else ()
        return ("tuned", *stock, *off)

    def cells(self) -> tuple[Cell, ...]:
        """Return the measurements in order; a comparison stands beside what it is compared with."""
        return tuple(
            Cell(
                network=known.name,
                batch_size=batch_size,
                image_size=self.image_size or known.image_size,
                mode=self.mode,
                variant=variant,
                steps=self.steps,
                warmup_steps=self.warmup_steps,
                intra_op_threads=self.intra_op_threads,
                inter_op_threads=self.inter_op_threads,
            )
            for known in self.networks
            for batch_size in self.batch_sizes
            for variant in self.variants
        )

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> BenchmarkConfig:
        """Build the configuration from the arguments after `python -m payload.benchmark`.

        Raises SettingError, UnknownNetworkError or ImageShapeError.
        """
        parser = _parser()
        given, unknown = parser.parse_known_args(list(argv))
        values = vars(given)
        if unknown:
            flags = ["--json" if field == "json_path" else flag_of(field) for field in values]
            raise unknown_value("argument", unknown[0], flags)
        networks = tuple(network(name) for name in dict.fromkeys(_names(values.pop("networks"))))
        batch_sizes = tuple(dict.fromkeys(_numbers("--batch-sizes", values.pop("batch_sizes"))))
        return cls(networks=networks, batch_sizes=batch_sizes, **values)


def _within(flag: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise SettingError(flag, value, f"must be {low:g} to {high:g}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _numbers(flag: str, text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise SettingError(flag, text, "must be whole numbers with commas between, as 1,8,32") from None


def _parser() -> argparse.ArgumentParser:
    default = BenchmarkConfig(networks=(), batch_sizes=())
    parser = SettingsParser(
        prog="python -m payload.benchmark",
        description="Measure images per second of networks on synthetic images, each cell in a fresh process.",
        epilog=f"Networks: {', '.join(known.name for known in NETWORKS)}.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    flag = parser.add_argument
    flag("--networks", default=",".join(NETWORK_NAMES), help="names separated by commas")
    flag("--batch-sizes", default=",".join(map(str, BATCH_SIZES)), help="images a step, separated by commas")
    flag("--image-size", type=int, help="side of the images, pixels; None: as each network was published")
    flag("--mode", choices=("training", "inference"), default=default.mode, help="what a step is")
    flag("--steps", type=int, default=default.steps, help="steps timed; their median counts")
    flag("--warmup-steps", type=int, default=default.warmup_steps, help="steps before them")
    flag("--compare-onednn", action="store_true", help="measure each cell also with TF_ENABLE_ONEDNN_OPTS=0")
    flag("--compare-tuned", action="store_true", help="measure each cell also as TensorFlow comes, untuned")
    flag("--intra-op-threads", type=int, default=default.intra_op_threads, help="0: one a physical core")
    flag("--inter-op-threads", type=int, default=default.inter_op_threads, help="0: by the network's branches")
    flag("--cell-timeout-s", type=float, default=default.cell_timeout_s, help="longest time for one cell, seconds")
    flag("--json", dest="json_path", type=Path, help="file for all that was measured")
    return parser
