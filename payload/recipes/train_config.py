"""The configuration of a training run, read from its command line. Standard library only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from payload.recipes import RECIPES, Recipe, Variant
from payload.settings import SETTINGS_FILE, SettingError, Settings, flag_of
from payload.settings.parser import SettingsParser, path_argument, unknown_value
from payload.settings.training import DATASETS_OF_FILES

_RATES: Final = (
    *("learning_rate", "base_batch", "warmup_epochs", "warmup_rate"),
    *("decay", "decay_power", "decay_epochs", "decay_factor"),
)
_BATCHES: Final = ("batch_per_rank", "global_batch", "image_size", "global_batch_limit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The configuration of one run. Raises SettingError if `data_dir` is missing, or set for data without files."""

    recipe: Recipe
    """The recipe. It provides the settings that no flag overrides."""
    variant: Variant | None = None
    """The chosen variant of the recipe."""
    settings: Settings
    run_dir: Path
    """Directory of the run on the shared file system, for metrics, checkpoints, events and the result."""
    data_dir: str | None = None
    """Directory of the data files, or s3://BUCKET/PREFIX; None if the data set needs no files."""
    resume: bool = False
    """Resume from the newest valid checkpoint of the run; start from the beginning if there is none."""

    def __post_init__(self) -> None:
        needs = self.settings.dataset in DATASETS_OF_FILES
        if needs and self.data_dir is None:
            raise SettingError("--data-dir", None, f"data set {self.settings.dataset} needs the directory of its files")
        if not needs and self.data_dir is not None:
            rule = f"data set {self.settings.dataset} needs no files; remove --data-dir"
            raise SettingError("--data-dir", self.data_dir, rule)

    @classmethod
    def from_argv(cls, argv: Sequence[str], *, ranks: int = 1) -> TrainConfig:
        """Build the configuration from the arguments after `python -m payload.train`.

        `ranks`: number of ranks, used to choose the recipe's variant if --variant is missing. With --resume, the
        variant that the run recorded is kept. Raises SettingError if a flag or recipe is unknown (with the nearest
        name) or a value is invalid.
        """
        values = _parser().given(argv)
        recipe = _recipe(values.pop("recipe"))
        before = _variant_before(recipe, values["run_dir"]) if values.get("resume") else None
        variant = _variant(recipe, values.pop("variant", before), ranks)
        own = {name: values.pop(name) for name in ("run_dir", "data_dir", "resume") if name in values}
        settings = dataclasses.replace(recipe.settings, **(variant.overrides if variant else {}))
        return cls(recipe=recipe, variant=variant, settings=_override(settings, values), **own)


def _override(settings: Settings, values: dict[str, Any]) -> Settings:
    """Return the settings with the values of the flags.

    A flag for the batch per rank also turns off the recipe's global batch and its limit. Raises SettingError if flags
    contradict each other or the recipe.
    """
    if "global_batch" in values and "batch_per_rank" in values:
        raise SettingError("--global-batch", values["global_batch"], "use this flag or --batch-per-rank, not both")
    for phases, flags, word in (("rate_phases", _RATES, "rates"), ("image_phases", _BATCHES, "sizes and batches")):
        held = values.get(phases, getattr(settings, phases))
        for name in flags:
            if name in values and held:
                rule = f"{flag_of(phases)} sets the {word}: change the phases, or turn them off with {flag_of(phases)}="
                raise SettingError(flag_of(name), values[name], rule)
    if "batch_per_rank" in values:  # the recipe's batch limit does not apply to a batch that the user sets
        values = {"global_batch": 0, "global_batch_limit": Settings().global_batch_limit, **values}
    return dataclasses.replace(settings, **values)


def _recipe(name: str) -> Recipe:
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    raise unknown_value("--recipe", name, [recipe.name for recipe in RECIPES])


def _variant(recipe: Recipe, name: str | None, ranks: int) -> Variant | None:
    if name is None:
        return recipe.variant_for(ranks)
    if not recipe.variants:
        raise SettingError("--variant", name, f"recipe {recipe.name} has no variants; remove the flag")
    for variant in recipe.variants:
        if variant.name == name:
            return variant
    raise unknown_value("--variant", name, [variant.name for variant in recipe.variants])


def _variant_before(recipe: Recipe, run_dir: Path) -> str | None:
    """Return the variant of the run to resume; None if it is not recorded or belongs to another recipe."""
    try:
        found = json.loads((run_dir / SETTINGS_FILE).read_text(encoding="utf-8"))["variant"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found in [variant.name for variant in recipe.variants] else None


def _parser() -> SettingsParser:
    parser = SettingsParser(
        prog="python -m payload.train",
        description="Train a recipe on all ranks of a run. The recipe sets the default of each setting.",
        allow_abbrev=False,
    )
    recipes = ", ".join(recipe.name for recipe in RECIPES)
    parser.add_argument("--recipe", required=True, help=f"recipe to train: {recipes}")
    parser.add_argument("--variant", help="variant of the recipe; default: by the number of ranks")
    parser.add_argument("--run-dir", required=True, type=path_argument, help="directory of the run")
    parser.add_argument("--data-dir", help="directory of the data files, or s3://BUCKET/PREFIX")
    parser.add_argument("--resume", action="store_true", default=None, help="continue from the newest valid checkpoint")
    parser.add_settings()
    return parser
