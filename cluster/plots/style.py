"""Colors and Matplotlib settings of all plots, and how a figure becomes a picture or a part of a page.

The hues are from Okabe and Ito (https://jfly.uni-koeln.de/color/), darkened for white and lightened for black until
each has a contrast of 3:1 with the background (WCAG 2.2, 1.4.11). Lines also differ in dashes and marks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import importlib.util
import io
import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from cluster.errors import DeepcdkError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIGHT: Final = {
    "background": "#ffffff",
    "surface": "#f7f8fa",
    "ink": "#1b2330",
    "faint": "#586174",
    "line": "#d5dae2",
    "mark": "#fff0c2",
    "series-0": "#0072b2",
    "series-1": "#d55e00",
    "series-2": "#00805c",
    "series-3": "#aa4f86",
    "series-4": "#8f6b00",
    "series-5": "#2f7fb5",
}
"""Colors by role. A page has each as a CSS variable, so that one drawing serves light and dark."""
DARK: Final = {
    "background": "#11151c",
    "surface": "#1a202a",
    "ink": "#e8ebf1",
    "faint": "#a3adbd",
    "line": "#39424f",
    "mark": "#4a3c08",
    "series-0": "#56b4e9",
    "series-1": "#f0894a",
    "series-2": "#2fc79a",
    "series-3": "#dd8fbd",
    "series-4": "#e6b030",
    "series-5": "#8cc8ee",
}
INK, FAINT, LINE = LIGHT["ink"], LIGHT["faint"], LIGHT["line"]
SERIES: Final = tuple(color for name, color in LIGHT.items() if name.startswith("series"))
DASHES: Final[tuple[Any, ...]] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
WIDTH_IN, HEIGHT_IN = 4.6, 2.75
"""Size of a curve in inches: 331 SVG units wide, about one pixel per unit on a phone."""
_SETTINGS: Final[Any] = {
    "font.family": "DejaVu Sans",  # included in Matplotlib, so the layout is the same everywhere
    "font.size": 9.0,
    "text.parse_math": False,  # a dollar sign does not start a formula
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": FAINT,
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
    "svg.hashsalt": "deepcdk",  # the same figure gives the same file
}
_DRAWING: Final = threading.RLock()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure for a page."""

    name: str
    title: str
    description: str
    """One sentence for readers who do not see the figure."""
    svg: str
    narrow_svg: str = ""
    """The same figure for a narrow screen, if it needs the full width of a page."""

    @classmethod
    def of(cls, figure: Figure, *, name: str, title: str, description: str) -> Drawn:
        """Draw a figure as SVG for a page. `name` must be unique on the page."""
        svg = page_svg(figure, name=name, title=title, description=description)
        return cls(name=name, title=title, description=description, svg=svg)


def check_installed() -> None:
    """Raise DeepcdkError if Matplotlib is not installed, so that a task fails before it does any work for a figure."""
    if importlib.util.find_spec("matplotlib") is None:
        raise DeepcdkError(
            "figures need Matplotlib, which is not installed",
            where=sys.prefix,
            remedy="pip install 'deepcdk[plots]', or pip install matplotlib",
        )


@contextlib.contextmanager
def drawing(**settings: Any) -> Iterator[None]:
    """Apply the plots' settings, and `settings` on top of them, in a block. Raises DeepcdkError if Matplotlib is not
    installed.

    Matplotlib's settings belong to the whole process, so other threads that draw wait for the end of the block.
    """
    check_installed()
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it reports that it lists fonts
    import matplotlib

    chosen: Any = {**_SETTINGS, **settings}
    with _DRAWING, matplotlib.rc_context(chosen), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the page's font has the characters that this font lacks
        yield


def new_figure(width_in: float = WIDTH_IN, height_in: float = HEIGHT_IN) -> Figure:
    """Return an empty figure of this size, in inches, without a window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def label_decades(axes: Axes, which: Literal["x", "y"], form: Callable[[float], str]) -> None:
    """Make the x or y axis logarithmic, with labels at 1, 2 and 5. `form` formats a label."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
    axis.set_minor_formatter(NullFormatter())


def page_svg(figure: Figure, *, name: str, title: str, description: str) -> str:
    """Return a figure as an `svg` element that takes colors and font from the page.

    `name` must be unique on the page. Screen readers read `title` and `description`.
    """
    buffer = io.StringIO()
    with drawing(**{"svg.fonttype": "none", "svg.hashsalt": name}):  # the salt makes ids unique on the page
        figure.savefig(buffer, format="svg", transparent=True)
    head, _, body = buffer.getvalue().partition("<defs>")
    (box,) = re.findall(r'viewBox="[^"]*"', head)
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # nothing refers to these
    body = re.sub(r'style="[^"]*"', _with_variables, body)
    spoken = (
        f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-desc">{html.escape(description)}</desc>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box} role="img" '
        f'aria-labelledby="{name}-title {name}-desc">{spoken}<defs>{body}'
    )


def _with_variables(style: re.Match[str]) -> str:
    variables = {color: f"var(--{name})" for name, color in LIGHT.items()}
    return re.sub("#[0-9a-f]{6}", lambda found: variables.get(found[0], found[0]), style[0])


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a PNG or SVG file, by its suffix. Creates the directory, and replaces an existing file.

    Raises DeepcdkError if the file cannot be written, or Matplotlib is not installed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with drawing():
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {})
    except OSError as error:
        raise DeepcdkError(
            f"cannot write {path} ({error.strerror})", remedy="free space there, or make the path writable"
        ) from None
