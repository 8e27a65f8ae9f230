"""A recipe: named settings, and their known results. Standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from payload.recipes.recipe_times import CurrentType
from payload.settings import Settings

UNKNOWN: Final = "not measured"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """Changes to a recipe's settings for another number of ranks, as published."""

    name: str
    ranks: int
    """Minimum number of ranks at which this variant is the default."""
    overrides: Mapping[str, Any]
    expected_time: str
    expected_accuracy: str
    target_epochs: int = 0
    """Epochs until the source reached its accuracy, possibly before the last one; 0: not stated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings for one kind of run. A flag can override each setting (`payload.recipes.train_config`)."""

    name: str
    summary: str
    """One-line description."""
    settings: Settings
    command: str
    """Command to run it from the laptop."""
    hardware: str
    """Hardware used for `expected_time` and `expected_accuracy`."""
    expected_time: str
    """Duration on that hardware, including startup if stated."""
    expected_accuracy: str
    """Accuracy on the test images, on that hardware."""
    evidence: Literal["measured", "cited"]
    """Whether the results were measured here or cited from the source."""
    source: str
    """The publication of the protocol; "" for this project's own recipes."""
    current_types: tuple[CurrentType, ...] = ()
    """Current instance types for this recipe, if AWS's images and the runtime no longer support `hardware`."""
    variants: tuple[Variant, ...] = ()
    """Variants by rising number of ranks; empty: the settings apply to any number."""

    def variant_for(self, ranks: int) -> Variant | None:
        """Return the variant for a run on `ranks` ranks; None if the recipe has no variants.

        It is the variant with the largest `Variant.ranks` up to `ranks`. If all are larger, it is the smallest.
        """
        fitting = [variant for variant in self.variants if variant.ranks <= ranks]
        return fitting[-1] if fitting else next(iter(self.variants), None)
