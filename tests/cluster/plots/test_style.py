"""The colors of plots, and figures as SVG."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import itertools
import re
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from cluster.errors import DeepcdkError
from cluster.plots import plan, style
from cluster.plots.style import DARK, DASHES, INK, LIGHT, MARKERS, SERIES, drawing, new_figure, page_svg
from cluster.report import output_formats


def luminance(color: str) -> float:
    """Return the relative luminance as defined by WCAG."""
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio as defined by WCAG, 1 to 21."""
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_has_a_contrast_of_4_5_and_lines_of_3(theme: dict[str, str]) -> None:
    for behind in (theme["background"], theme["surface"]):
        assert min(contrast(theme[name], behind) for name in ("ink", "faint")) >= 4.5
        assert min(contrast(theme[f"series-{n}"], behind) for n in range(6)) >= 3
    assert contrast(theme["ink"], theme["mark"]) >= 4.5
    assert list(theme) == list(LIGHT)


def test_lines_differ_in_more_than_color() -> None:
    assert len(SERIES) == len(set(MARKERS)) == len(set(map(str, DASHES))) == 6


# The matrices of Machado, Oliveira and Fernandes (2009) for complete deuteranomaly and protanomaly, on linear RGB.
BLIND = {
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
}


def seen(color: str, kind: str) -> tuple[float, ...]:
    linear = [(int(color[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5)]
    mixed = [sum(a * b for a, b in zip(row, linear, strict=True)) for row in BLIND[kind]]
    return tuple(255 * min(1.0, max(0.0, value)) ** (1 / 2.2) for value in mixed)


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colors_that_share_a_plot_differ_for_the_color_blind(theme: dict[str, str], kind: str) -> None:
    for one, other in itertools.combinations([theme[f"series-{n}"] for n in range(3)], 2):
        far = sum((a - b) ** 2 for a, b in zip(seen(one, kind), seen(other, kind), strict=True)) ** 0.5
        assert far > 60, (one, other)


def drawn(text: str = "a label", name: str = "one") -> str:
    with drawing():
        figure = new_figure()
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=SERIES[0], marker="o")
        axes.text(0.5, 0.5, text, color=INK)
        axes.set_title(text)
        return page_svg(figure, name=name, title=text, description=text)


def test_every_color_is_a_variable_of_the_page() -> None:
    used = set(re.findall(r"var\(--([\w-]+)\)", drawn()))
    assert {"series-0", "ink", "faint", "line"} <= used <= LIGHT.keys()
    assert re.findall("#[0-9a-f]{6}", re.sub(r'(id|href)="[^"]*"', "", drawn())) == []


@pytest.mark.parametrize("text", ["<b>&amp;</b>", "$\\frac{1}{0", "100 % 数 \N{WASTEBASKET}", "]]>", 'a "b" {{ x }}'])
def test_any_text_is_drawn_unchanged(text: str) -> None:
    root = ElementTree.fromstring(drawn(text))
    found = [
        "".join(element.itertext()) for element in root.iter() if element.tag.endswith(("}text", "}title", "}desc"))
    ]
    assert found.count(text) == 4


def test_same_figure_gives_same_svg_and_other_name_other_ids() -> None:
    assert drawn() == drawn()
    ids = [set(re.findall(' id="([^"]+)"', drawn(name=name))) for name in ("one", "two")]
    assert ids[0] and not ids[0] & ids[1]


def test_settings_of_matplotlib_are_restored() -> None:
    before = dict(mpl.rcParams)
    drawn()
    assert dict(mpl.rcParams) == before


def test_threads_do_not_change_each_others_settings() -> None:
    def other() -> object:
        with drawing(**{"font.size": 5.0}):
            return mpl.rcParams["font.size"]

    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        with drawing(**{"font.size": 20.0}):
            waiting = pool.submit(other)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            assert mpl.rcParams["font.size"] == 20.0
        assert waiting.result(timeout=60) == 5.0


def test_missing_matplotlib_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for check in (
        style.check_installed,
        lambda: output_formats.parse_formats("md,html"),
        lambda: plan.check_path("a.png"),
    ):
        with pytest.raises(DeepcdkError, match=r"Matplotlib[^$]*deepcdk\[plots\]"):
            check()
    assert output_formats.parse_formats("md,json") == ("md", "json")
