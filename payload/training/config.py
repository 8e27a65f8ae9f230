"""The configuration of one training run: the only reader of the command line. Standard library only."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from payload.errors import PayloadError
from payload.training.recipes import RECIPES, Recipe

MAX_THREADS: Final = 1024


class TrainConfigError(PayloadError, ValueError):
    """Report a flag whose value breaks a rule. Carries `flag`, `value` and `rule`."""

    def __init__(self, flag: str, value: object, rule: str) -> None:
        self.flag, self.value, self.rule = flag, value, rule
        super().__init__(f"{flag}: {rule}" if value is None else f"{flag} {value}: {rule}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Describe one run as validated values; a recipe (`payload.training.recipes`) holds most."""

    recipe: Recipe
    """The recipe from which the values came that no flag gave."""
    run_dir: Path
    """Directory of the run, on the shared file system: metrics, checkpoints, events and the result go there."""
    data_dir: Path | None = None
    """Directory of the data files; None where the recipe's data ship with a library."""
    epochs: int
    batch_per_rank: int
    global_batch: int | None = None
    """Images a step over all ranks; None: from `batch_per_rank` and the recipe's limit."""
    limit_global_batch: bool = True
    """Whether the recipe's limit holds; it does not for a batch that the user gave."""
    learning_rate: float
    warmup_epochs: float
    momentum: float
    rotation_deg: float
    shift_fraction: float
    zoom_fraction: float
    checkpoint_epochs: int
    keep_checkpoints: int = 3
    """Newest checkpoints kept: more than one, so that a damaged one has an elder."""
    seed: int = 1
    """Seed of initial weights, of the order of the images and of their augmentation."""
    resume: bool = False
    """Continue from the newest valid checkpoint of `run_dir`; begin anew where there is none."""
    intra_op_threads: int = 0
    """Threads within one operation; 0: the cores that this rank may use, shared among the ranks of its host."""
    inter_op_threads: int = 1
    """Operations run at a time: one, since these networks are chains."""

    def __post_init__(self) -> None:
        self._within("epochs", 1, 100_000)
        self._within("batch_per_rank", 1, 1 << 20)
        if self.global_batch is not None:
            self._within("global_batch", 1, 1 << 24)
        self._within("learning_rate", 1e-12, 1e6)
        self._within("warmup_epochs", 0, 100_000)
        self._within("momentum", 0, 1)
        self._within("rotation_deg", 0, 180)
        self._within("shift_fraction", 0, 1)
        self._within("zoom_fraction", 0, 0.9)
        self._within("checkpoint_epochs", 1, 100_000)
        self._within("keep_checkpoints", 1, 1000)
        self._within("seed", 0, (1 << 31) - 1)
        self._within("intra_op_threads", 0, MAX_THREADS)
        self._within("inter_op_threads", 0, MAX_THREADS)
        if self.recipe.needs_data_dir and self.data_dir is None:
            rule = f"recipe {self.recipe.name} needs the directory of its data files"
            raise TrainConfigError("--data-dir", None, rule)
        if not self.recipe.needs_data_dir and self.data_dir is not None:
            rule = f"recipe {self.recipe.name} brings its own data; leave the flag out"
            raise TrainConfigError("--data-dir", self.data_dir, rule)

    def _within(self, field: str, low: float, high: float) -> None:
        value = getattr(self, field)
        if not low <= value <= high:
            raise TrainConfigError(_flag(field), value, f"must be {low:g} to {high:g}")

    def global_batch_for(self, ranks: int) -> int:
        """Return the images a step over all ranks."""
        if self.global_batch is not None:
            return self.global_batch
        batch = self.batch_per_rank * ranks
        return min(batch, self.recipe.global_batch_limit) if self.limit_global_batch else batch

    def peak_learning_rate(self, global_batch: int) -> float:
        """Scale the learning rate linearly with the global batch (Goyal et al. 2017, arXiv:1706.02677)."""
        return self.learning_rate * global_batch / self.recipe.base_batch

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> TrainConfig:
        """Build the configuration from the arguments after `python -m payload.train`.

        Raises TrainConfigError for an unknown flag or recipe (it names the nearest), or a value that breaks a rule.
        """
        given, unknown = _parser().parse_known_args(list(argv))
        if unknown:
            raise _unknown("argument", unknown[0], [_flag(name) for name in vars(given)])
        values: dict[str, Any] = {name: value for name, value in vars(given).items() if value is not None}
        recipe = _recipe(values.pop("recipe"))
        if "global_batch" in values and "batch_per_rank" in values:
            raise TrainConfigError("--global-batch", values["global_batch"], "give it or --batch-per-rank, not both")
        own = {field.name for field in dataclasses.fields(cls)}
        defaults = {name: value for name, value in dataclasses.asdict(recipe).items() if name in own}
        limit = "batch_per_rank" not in values
        return cls(recipe=recipe, limit_global_batch=limit, **{**defaults, **values})


def _recipe(name: str) -> Recipe:
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    raise _unknown("--recipe", name, [recipe.name for recipe in RECIPES])


def _unknown(what: str, value: str, known: Sequence[str]) -> TrainConfigError:
    name = value.split("=")[0]
    near = difflib.get_close_matches(name, known, n=1)
    question = f"; did you mean {near[0]}?" if near else "."
    return TrainConfigError(what, value, f"unknown{question} Known: {', '.join(sorted(known))}")


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage once a rank."""
        found = re.fullmatch(r"argument (--[a-z-]+): (.*)", message, flags=re.DOTALL)
        raise TrainConfigError(*((found[1], None, found[2]) if found else ("arguments", None, message)))


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m payload.train",
        description="Train one recipe on all ranks of a run. Values not given come from the recipe.",
        allow_abbrev=False,
    )
    recipes = ", ".join(recipe.name for recipe in RECIPES)
    parser.add_argument("--recipe", required=True, help=f"what to train: {recipes}")
    parser.add_argument("--run-dir", required=True, type=Path, help="directory of the run")
    parser.add_argument("--data-dir", type=Path, help="directory of the data files")
    parser.add_argument("--epochs", type=_whole, help="passes over the training images")
    parser.add_argument("--batch-per-rank", type=_whole, help="images a rank and step")
    parser.add_argument(
        "--global-batch", type=_whole, help="images a step over all ranks, in place of --batch-per-rank"
    )
    parser.add_argument("--learning-rate", type=_number, help="learning rate at the recipe's base batch")
    parser.add_argument("--warmup-epochs", type=_number, help="epochs in which the rate climbs")
    parser.add_argument("--momentum", type=_number, help="momentum, 0 to 1")
    parser.add_argument("--rotation-deg", type=_number, help="augmentation: largest rotation, degrees")
    parser.add_argument("--shift-fraction", type=_number, help="augmentation: largest shift, part of the image")
    parser.add_argument("--zoom-fraction", type=_number, help="augmentation: largest zoom, part of the image")
    parser.add_argument("--checkpoint-epochs", type=_whole, help="epochs between checkpoints")
    parser.add_argument("--keep-checkpoints", type=_whole, help="newest checkpoints kept")
    parser.add_argument("--seed", type=_whole, help="seed of weights, order and augmentation")
    parser.add_argument("--resume", action="store_true", default=None, help="continue from the newest checkpoint")
    parser.add_argument("--intra-op-threads", type=_whole, help="threads within an operation; 0: a share of cores")
    parser.add_argument("--inter-op-threads", type=_whole, help="operations at a time; 0: TensorFlow's choice")
    return parser
