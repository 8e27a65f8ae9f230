"""Colours of a report, in the light and in the dark, told apart by people who do not see all colours.

The hues are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), darkened for white and lightened for black until
each has a contrast of 3:1 with the background, as WCAG 2.2 asks of graphics (1.4.11). Lines differ in dashes and marks
too, so that no figure depends on colour.
"""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours by role, as #rrggbb."""

    background: str
    surface: str
    """Behind figures and tables."""
    ink: str
    faint: str
    """Second-rank text."""
    line: str
    """Grids and borders."""
    mark: str
    """Behind what differs."""
    series: tuple[str, ...]
    heat: tuple[str, str]
    """Cells of the confusion matrix, from nothing to all."""


LIGHT: Final = Theme(
    background="#ffffff",
    surface="#f7f8fa",
    ink="#1b2330",
    faint="#586174",
    line="#d5dae2",
    mark="#fff0c2",
    series=("#0072b2", "#d55e00", "#00805c", "#aa4f86", "#8f6b00", "#2f7fb5"),
    heat=("#f7f8fa", "#0072b2"),
)
DARK: Final = Theme(
    background="#11151c",
    surface="#1a202a",
    ink="#e8ebf1",
    faint="#a3adbd",
    line="#39424f",
    mark="#4a3c08",
    series=("#56b4e9", "#f0894a", "#2fc79a", "#dd8fbd", "#e6b030", "#8cc8ee"),
    heat=("#1a202a", "#2f8fd0"),
)
DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
"""Of each series, as matplotlib writes them."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P")


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG defines it, 1 to 21."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def css_variables(theme: Theme) -> str:
    """Return the theme as declarations of CSS variables."""
    named = {name: getattr(theme, name) for name in ("background", "surface", "ink", "faint", "line", "mark")}
    named |= {f"series-{number}": colour for number, colour in enumerate(theme.series)}
    named |= {"heat-0": theme.heat[0], "heat-1": theme.heat[1]}
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())
