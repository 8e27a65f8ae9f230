"""The confusion matrix of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.plots.style import INK, LINE, SERIES, Drawn, drawing, new_figure
from cluster.report.confused_classes import ConfusionMatrix
from cluster.report.shown_values import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_CELLS: Final = 20
"""Maximum number of classes for cells with counts. With more classes, each pair that occurs is drawn as a dot."""
MAX_DOTS: Final = 2000

Cell = tuple[float, int, int, int]
"""Share of the true class, count, row and column."""


def draw_confusion(matrix: ConfusionMatrix) -> Drawn:
    """Draw a confusion matrix, with the share of recognized images and the most frequent confusion as its description.

    The shade of a cell is the square root of its share of the true class, so that one image in 100 is visible. With
    more than MAX_CELLS classes, each pair that occurs is a dot, at most MAX_DOTS.
    """
    classes = len(matrix.labels)
    cells = sorted(
        (
            (count / sum(counts), count, row, column)
            for row, counts in enumerate(matrix.counts)
            for column, count in enumerate(counts)
            if count
        ),
        reverse=True,
    )
    side = min(7.2, max(3.6, 0.9 + 0.34 * classes)) if classes <= MAX_CELLS else 6.0
    images, right = sum(map(sum, matrix.counts)), sum(row[number] for number, row in enumerate(matrix.counts))
    description = f"{percent(right / images if images else None)} of {images:,} test images recognized."
    if matrix.confused:
        description += (
            f" Most frequent confusion: {matrix.confused[0].truth} recognized as {matrix.confused[0].recognized}."
        )
    with drawing():
        figure = new_figure(side, side * 0.96)
        axes = figure.add_subplot()
        if classes <= MAX_CELLS:
            _draw_cells(axes, matrix.labels, cells)
        else:
            _draw_dots(axes, cells[:MAX_DOTS])
        axes.set_xlim(-0.5, classes - 0.5)
        axes.set_ylim(classes - 0.5, -0.5)
        axes.set_aspect("equal")
        axes.set_xlabel("recognized as")
        axes.set_ylabel("true class")
        return Drawn.of(figure, name="confusion", title="Confusion matrix", description=description)


def _draw_cells(axes: Axes, labels: tuple[str, ...], cells: list[Cell]) -> None:
    """Draw each cell as a square with its count, in one color if the prediction is right, in another if it is wrong.

    Also draw lines between cells, and write `labels`, the names of the classes, on both axes. Of a name with more than
    16 characters, the first 13 and `...` are written.
    """
    for share, count, row, column in cells:
        color = SERIES[0] if row == column else SERIES[1]
        axes.barh(row, 1, left=column - 0.5, height=1, color=color, alpha=0.55 * share**0.5)
        axes.text(column, row, f"{count}", ha="center", va="center", color=INK, fontsize=8)
    names = [label if len(label) <= 16 else f"{label[:13]}..." for label in labels]
    axes.set_xticks(range(len(labels)), names, rotation=90 if max(map(len, labels)) > 3 else 0)
    axes.set_yticks(range(len(labels)), names)
    edges = [number - 0.5 for number in range(len(labels) + 1)]
    axes.set_xticks(edges, minor=True)
    axes.set_yticks(edges, minor=True)
    axes.grid(visible=False)
    axes.grid(which="minor", color=LINE, linewidth=0.5)
    axes.tick_params(which="minor", length=0)


def _draw_dots(axes: Axes, cells: list[Cell]) -> None:
    """Draw each cell as a dot of one of three sizes, by its share of the true class. Wrong predictions have another
    color.
    """
    axes.grid(visible=False)
    for is_right, color in ((True, SERIES[0]), (False, SERIES[1])):
        for least, most, size in ((0.5, 1.1, 3.2), (0.1, 0.5, 2.2), (0.0, 0.1, 1.2)):
            chosen = [(x, y) for share, _, y, x in cells if (x == y) == is_right and least <= share < most]
            axes.plot(*zip(*chosen, strict=True) if chosen else ((), ()), "s", ms=size, color=color, mew=0)
