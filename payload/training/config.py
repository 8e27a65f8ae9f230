"""The configuration of one training run: the only reader of the command line. Standard library only."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import math
import re
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from payload.models.registry import network
from payload.recipes import RECIPES, Recipe, Variant
from payload.settings import GROUPS, SettingError, Settings, flag_of
from payload.training.checkpoints.location import depot_for
from payload.training.reporting.profiling import Span
from payload.training.run_files import SETTINGS_FILE
from payload.training.schedule import check_schedule

_RATES: Final = (
    *("learning_rate", "base_batch", "warmup_epochs", "warmup_rate"),
    *("decay", "decay_power", "decay_epochs", "decay_factor"),
)
_BATCHES: Final = ("batch_per_rank", "global_batch", "image_size", "global_batch_limit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Describe one run as validated values."""

    recipe: Recipe
    """The recipe from which the settings came that no flag gave."""
    variant: Variant | None = None
    """The variant of the recipe that was taken."""
    settings: Settings
    run_dir: Path
    """Directory of the run, on the shared file system: metrics, checkpoints, events and the result go there."""
    data_dir: str | None = None
    """Directory of the data files, or s3://BUCKET/PREFIX; None where the recipe's data need none."""
    resume: bool = False
    """Continue from the newest valid checkpoint of `run_dir`; begin anew where there is none."""

    def __post_init__(self) -> None:
        network(self.settings.network)
        check_schedule(self.settings)
        Span.parse(self.settings.profile_steps)
        depot_for(self.settings.checkpoint_dir, self.run_dir)
        needs = self.settings.dataset not in ("digits", "synthetic")
        if needs and self.data_dir is None:
            raise SettingError("--data-dir", None, f"data set {self.settings.dataset} needs the directory of its files")
        if not needs and self.data_dir is not None:
            rule = f"data set {self.settings.dataset} needs no files; leave the flag out"
            raise SettingError("--data-dir", self.data_dir, rule)

    @classmethod
    def from_argv(cls, argv: Sequence[str], *, ranks: int = 1) -> TrainConfig:
        """Build the configuration from the arguments after `python -m payload.train`.

        `ranks`: by which a recipe chooses among its variants. Raises SettingError for an unknown flag or recipe (it
        names the nearest), or a value that breaks a rule; UnknownNetworkError for an unknown network.
        """
        given, unknown = _parser().parse_known_args(list(argv))
        if unknown:
            raise _unknown("argument", unknown[0], [flag_of(name) for name in vars(given)])
        values: dict[str, Any] = {name: value for name, value in vars(given).items() if value is not None}
        recipe = _recipe(values.pop("recipe"))
        before = _variant_before(recipe, given.run_dir) if given.resume else None
        variant = _variant(recipe, values.pop("variant", before), ranks)
        own = {name: values.pop(name) for name in ("run_dir", "data_dir", "resume") if name in values}
        settings = dataclasses.replace(recipe.settings, **(variant.overrides if variant else {}))
        return cls(recipe=recipe, variant=variant, settings=_override(settings, values), **own)


def _override(settings: Settings, values: dict[str, Any]) -> Settings:
    """Set what flags gave. Raises SettingError where two of them, or one and the recipe's, contradict each other."""
    if "global_batch" in values and "batch_per_rank" in values:
        raise SettingError("--global-batch", values["global_batch"], "give it or --batch-per-rank, not both")
    for phases, flags, word in (("rate_phases", _RATES, "rates"), ("image_phases", _BATCHES, "sizes and batches")):
        held = values.get(phases, getattr(settings, phases))
        for name in flags:
            if name in values and held:
                rule = f"{flag_of(phases)} hold the {word}: change those, or give {flag_of(phases)}= to go without them"
                raise SettingError(flag_of(name), values[name], rule)
    if "batch_per_rank" in values:  # a batch that the user gave is not cut to what suits the recipe's rate
        values = {"global_batch": 0, "global_batch_limit": Settings().global_batch_limit, **values}
    return dataclasses.replace(settings, **values)


def _recipe(name: str) -> Recipe:
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    raise _unknown("--recipe", name, [recipe.name for recipe in RECIPES])


def _variant(recipe: Recipe, name: str | None, ranks: int) -> Variant | None:
    if name is None:
        return recipe.variant_for(ranks)
    if not recipe.variants:
        raise SettingError("--variant", name, f"recipe {recipe.name} has no variants; leave the flag out")
    for variant in recipe.variants:
        if variant.name == name:
            return variant
    raise _unknown("--variant", name, [variant.name for variant in recipe.variants])


def _variant_before(recipe: Recipe, run_dir: Path) -> str | None:
    """Return the variant with which a run began; None where it is not written, or not one of this recipe."""
    try:
        found = json.loads((run_dir / SETTINGS_FILE).read_text(encoding="utf-8"))["variant"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found in [variant.name for variant in recipe.variants] else None


def _unknown(what: str, value: str, known: Sequence[str]) -> SettingError:
    name = value.split("=")[0]
    near = difflib.get_close_matches(name, known, n=1)
    question = f"; did you mean {near[0]}?" if near else "."
    return SettingError(what, value, f"unknown{question} Known: {', '.join(sorted(known))}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage once a rank."""
        found = re.fullmatch(r"argument (--[a-z0-9-]+)(?:/--no-[a-z0-9-]+)?: (.*)", message, flags=re.DOTALL)
        raise SettingError(*((found[1], None, found[2]) if found else ("arguments", None, message)))


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


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be whole numbers with commas between, not {text!r}") from None


_READERS: Final[dict[Any, Callable[[str], Any]]] = {
    int: _whole,
    float: _number,
    str: str,
    tuple[int, ...]: _whole_numbers,
}


def _parser() -> argparse.ArgumentParser:
    """Make a flag of every setting, from its declaration."""
    parser = _Parser(
        prog="python -m payload.train",
        description="Train one recipe on all ranks of a run. Settings not given are the recipe's.",
        allow_abbrev=False,
    )
    recipes = ", ".join(recipe.name for recipe in RECIPES)
    parser.add_argument("--recipe", required=True, help=f"what to train: {recipes}")
    parser.add_argument("--variant", help="variant of the recipe; default: by the number of ranks")
    parser.add_argument("--run-dir", required=True, type=Path, help="directory of the run")
    parser.add_argument("--data-dir", help="directory of the data files, or s3://BUCKET/PREFIX")
    parser.add_argument("--resume", action="store_true", default=None, help="continue from the newest checkpoint")
    for group in GROUPS:
        section = parser.add_argument_group((group.__doc__ or "").strip().rstrip("."))
        types = typing.get_type_hints(group)
        for field in dataclasses.fields(group):
            text = field.metadata["help"].replace("%", "%%")
            if types[field.name] is bool:
                section.add_argument(
                    flag_of(field.name), action=argparse.BooleanOptionalAction, default=None, help=text
                )
            else:
                section.add_argument(flag_of(field.name), type=_READERS[types[field.name]], metavar="VALUE", help=text)
    return parser
