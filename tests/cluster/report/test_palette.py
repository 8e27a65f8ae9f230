"""Facts about the colours of a report."""

from __future__ import annotations

import itertools

import pytest

from cluster.report.palette import DARK, DASHES, LIGHT, MARKERS, Theme, contrast, css_variables


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_has_a_contrast_of_4_5_and_lines_of_3(theme: Theme) -> None:
    for behind in (theme.background, theme.surface):
        assert min(contrast(theme.ink, behind), contrast(theme.faint, behind)) >= 4.5
        assert min(contrast(colour, behind) for colour in theme.series) >= 3
    assert contrast(theme.ink, theme.mark) >= 4.5


def test_lines_differ_in_more_than_colour() -> None:
    assert len(LIGHT.series) == len(DARK.series) == len(set(MARKERS)) == len(set(map(str, DASHES)))


# The matrices of Machado, Oliveira and Fernandes (2009) for complete deuteranomaly and protanomaly, on linear RGB.
BLIND = {
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
}


def seen(colour: str, kind: str) -> tuple[float, ...]:
    linear = [(int(colour[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5)]
    mixed = [sum(a * b for a, b in zip(row, linear, strict=True)) for row in BLIND[kind]]
    return tuple(255 * min(1.0, max(0.0, value)) ** (1 / 2.2) for value in mixed)


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_colours_that_share_a_plot_are_told_apart_without_red_or_green(theme: Theme, kind: str) -> None:
    for one, other in itertools.combinations(theme.series[:3], 2):
        far = sum((a - b) ** 2 for a, b in zip(seen(one, kind), seen(other, kind), strict=True)) ** 0.5
        assert far > 60, (one, other)


def test_both_themes_set_the_same_variables() -> None:
    names = [
        [part.split(":")[0].strip() for part in css_variables(theme).split(";") if part.strip()]
        for theme in (LIGHT, DARK)
    ]
    assert names[0] == names[1]
