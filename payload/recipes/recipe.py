"""A recipe: settings under a name, and what is known of their results. Standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from payload.recipes.current_types import CurrentType
from payload.settings import Settings

UNKNOWN: Final = "not measured"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """Changes to the settings of a recipe, as published for another number of ranks."""

    name: str
    ranks: int
    """Number of ranks from which it is chosen by default."""
    overrides: Mapping[str, Any]
    expected_time: str
    expected_accuracy: str
    target_epochs: int = 0
    """Epochs after which the source had reached its accuracy, fewer than all where it went on; 0: not stated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of one kind of run. Each can be overridden by its flag (`payload.recipes.config`)."""

    name: str
    summary: str
    """What it trains, in one line."""
    settings: Settings
    command: str
    """How to run it from the laptop."""
    hardware: str
    """Hardware on which the figures below were obtained."""
    expected_time: str
    """How long it took there, start-up included where stated."""
    expected_accuracy: str
    """Accuracy there, on the test images."""
    evidence: Literal["measured", "cited"]
    """Where the figures come from: from running it here, or from the source."""
    source: str
    """The publication whose protocol it is; "" for one of this project."""
    current_types: tuple[CurrentType, ...] = ()
    """Types that do this work today, where AWS's images and the runtime no longer serve `hardware`."""
    variants: tuple[Variant, ...] = ()
    """By rising number of ranks; empty: the settings hold for any number."""

    def variant_for(self, ranks: int) -> Variant | None:
        """Return the variant of the largest number of ranks up to `ranks`, at least the smallest; None without any."""
        fitting = [variant for variant in self.variants if variant.ranks <= ranks]
        return fitting[-1] if fitting else next(iter(self.variants), None)
