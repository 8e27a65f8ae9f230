"""Which checkpoints stay. Standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retention:
    """Keep the newest checkpoints and, by choice, the one of the best accuracy."""

    newest: int = 3
    """How many of the newest stay: more than one, so that a damaged one has an elder."""
    best: bool = False
    """Whether that of the best accuracy stays too, of equals the newest."""

    def __post_init__(self) -> None:
        if self.newest < 1:
            raise ValueError(f"newest = {self.newest}: must be at least 1")

    def kept(self, accuracies: Mapping[str, float | None]) -> set[str]:
        """Choose among checkpoints whose names sort by age; None: its accuracy was not measured."""
        names = sorted(accuracies, reverse=True)
        kept = set(names[: self.newest])
        measured = {name: accuracy for name in names if (accuracy := accuracies[name]) is not None}
        if self.best and measured:
            kept.add(max(measured, key=lambda name: (measured[name], name)))
        return kept
