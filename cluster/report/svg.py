"""Figures of matplotlib as SVG that takes its colours and its font from the page, and can stand in it many times.

Matplotlib rather than a library of JavaScript: what it draws is there without a script, also on paper and for a screen
reader, and a page with a dozen curves stays under 300 kB. It is drawn in stand-in colours, which become CSS variables;
so one drawing serves the light and the dark.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from cluster.report.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT, LINE, SURFACE = "#010101", "#010102", "#010103", "#010104"
"""Stand-ins of the theme's colours: no figure has these for their own sake."""
SERIES: Final = tuple(f"#0102{number:02x}" for number in range(len(LIGHT.series)))
_VARIABLES: Final[Mapping[str, str]] = {
    INK: "ink",
    FAINT: "faint",
    LINE: "line",
    SURFACE: "surface",
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES)},
}
WIDTH_IN, HEIGHT_IN = 4.6, 2.75
"""Inches, of 72 units each: 331 units, which a phone shows about one to one."""
_SVG: Final = "http://www.w3.org/2000/svg"
_XLINK: Final = "http://www.w3.org/1999/xlink"
_SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout everywhere; the page's font is drawn
    "font.size": 9.0,
    "text.parse_math": False,  # a name with dollars in it is no formula
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": FAINT,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "path.simplify": True,
    "svg.hashsalt": "deepcdk",  # the same figure twice is the same text
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure, drawn."""

    name: str
    title: str
    description: str
    """What it shows in a sentence, for those who do not see it."""
    svg: str
    narrow_svg: str = ""
    """The same for a narrow screen, where the figure takes the width of the page."""


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draw within this block with the report's style. Matplotlib is loaded here, and its settings put back after."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # that it lists the machine's fonts, once
    import matplotlib

    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that its font lacks is drawn by the page's
        yield


def new_figure(width_in: float = WIDTH_IN, height_in: float = HEIGHT_IN) -> Figure:
    """Return an empty figure that no window and no global list knows of."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def svg_text(figure: Figure, *, name: str, title: str, description: str) -> str:
    """Return a figure as an `svg` element for a page. `name`: of letters and digits, other than each other figure's.

    `title` and `description` are what a screen reader reads.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314  # our own drawing, not of the far side
    for child in list(root):
        if child.tag.endswith("}metadata"):
            root.remove(child)
    _recolour(root)
    _rename(root, name)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title {name}-description"}
    for place, (kind, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(
            f"{{{_SVG}}}{kind}", {"id": f"{name}-{'title' if kind == 'title' else 'description'}"}
        )
        element.text = text
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _recolour(root: ElementTree.Element) -> None:
    """Turn the stand-ins into variables of the page, and drop the font that texts name."""

    def variable(found: re.Match[str]) -> str:
        name = _VARIABLES.get(found[0])
        return f"var(--{name})" if name else found[0]

    for element in root.iter():
        for attribute in ("fill", "stroke"):
            if (value := element.attrib.get(attribute)) in _VARIABLES:
                element.attrib["style"] = f"{element.attrib.get('style', '')};{attribute}: {value}".lstrip(";")
                del element.attrib[attribute]
        if style := element.attrib.get("style"):
            style = re.sub(r" ?font-family: [^;]*;?", "", style)
            element.attrib["style"] = re.sub("#[0-9a-f]{6}", variable, style)


def _rename(root: ElementTree.Element, name: str) -> None:
    """Give each id that is used the figure's name in front, and drop the others: a page holds many figures."""
    refers: dict[str, Callable[[str], str]] = {
        f"{{{_XLINK}}}href": lambda value: value.removeprefix("#"),
        "clip-path": lambda value: value.removeprefix("url(#").removesuffix(")"),
    }
    used = {
        read(element.attrib[key]) for element in root.iter() for key, read in refers.items() if key in element.attrib
    }
    for element in root.iter():
        given: dict[str, Any] = element.attrib
        if "id" in given:
            if given["id"] in used:
                given["id"] = f"{name}-{given['id']}"
            else:
                del given["id"]
        if "clip-path" in given:
            given["clip-path"] = f"url(#{name}-{refers['clip-path'](given['clip-path'])})"
        if (href := f"{{{_XLINK}}}href") in given:
            given[href] = f"#{name}-{refers[href](given[href])}"
