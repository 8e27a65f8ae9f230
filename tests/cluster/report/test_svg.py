"""Facts about figures as SVG."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from cluster.report.palette import LIGHT, css_variables
from cluster.report.svg import INK, SERIES, drawing, new_figure, svg_text


def drawn(text: str = "a label", name: str = "one") -> str:
    with drawing():
        figure = new_figure()
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=SERIES[0], marker="o")
        axes.text(0.5, 0.5, text, color=INK)
        axes.set_title(text)
        return svg_text(figure, name=name, title=text, description=text)


def test_every_colour_is_one_of_the_pages() -> None:
    svg = drawn()
    variables = set(re.findall(r"--([\w-]+):", css_variables(LIGHT)))
    used = set(re.findall(r"var\(--([\w-]+)\)", svg))
    assert {"series-0", "ink", "faint", "line"} <= used <= variables
    assert re.findall("#[0-9a-f]{6}", re.sub(r'(id|href)="[^"]*"', "", svg)) == []


def test_texts_are_texts_in_the_font_of_the_page() -> None:
    svg = drawn()
    assert ">a label</text>" in svg
    assert "font-family" not in svg


@pytest.mark.parametrize("text", ["<b>&amp;</b>", "$\\frac{1}{0", "100 % 数 \N{WASTEBASKET}", "]]>", "{{ x }}"])
def test_any_text_is_drawn_as_it_is(text: str) -> None:
    root = ElementTree.fromstring(drawn(text))
    found = [
        "".join(element.itertext()) for element in root.iter() if element.tag.endswith(("}text", "}title", "}desc"))
    ]
    assert found.count(text) == 4


def test_two_figures_in_one_page_share_no_id() -> None:
    ids = [set(re.findall(' id="([^"]+)"', drawn(name=name))) for name in ("one", "two")]
    assert ids[0] and not ids[0] & ids[1]


def test_the_same_figure_is_the_same_text() -> None:
    assert drawn() == drawn()


def test_matplotlibs_settings_are_as_before_and_no_window_is_opened() -> None:
    before = dict(mpl.rcParams)
    drawn()
    assert dict(mpl.rcParams) == before
    assert logging.getLogger("matplotlib.font_manager").level == logging.ERROR


def test_matplotlib_and_jinja_are_loaded_only_to_draw() -> None:
    code = (
        "import sys, cluster.report.html, cluster.report.formats, cluster.tasks.report; "
        "print({'matplotlib', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
