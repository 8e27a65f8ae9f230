"""The confusion matrix as a picture, at 2 classes as at 1000.

Drawn with Pillow, which TensorBoard brings anyway. Matplotlib 3.11 would add six packages of 77 MB to each node's
runtime and take 2.3 to 4.5 s to import and 1.3 s to draw ten classes; this takes 0.7 s and 0.4 s on the same machine.

Shading is by row: the part of a true class that was taken for each class, on a scale of square roots, on which one
image in a hundred can be seen. Numbers stand in the cells, and names at the edges, where there is room for them.
"""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from payload.training.reporting.confusion import Confusion

MOST_WITH_NUMBERS: Final = 30
"""Classes up to which each cell holds its count."""
MOST_WITH_NAMES: Final = 120
"""Classes up to which each row and column has its name."""
SIDE: Final = 1000
"""Pixels that the cells take together, about; more where each cell must hold a number."""
_LEAST_NUMBERED: Final = 44
"""Side of a cell with a number in it, pixels."""
_MARGIN: Final = 24
_BAR: Final = 18
_TICKS: Final = 10
"""Class numbers along an edge that has no names."""
_INK: Final = (31, 41, 55)
_FAINT: Final = (107, 114, 128)
_LINE: Final = (229, 231, 235)
_STOPS: Final = np.array([[255, 255, 255], [198, 219, 239], [107, 174, 214], [33, 113, 181], [8, 48, 107]], np.float64)
"""White to dark blue, even steps in brightness (ColorBrewer's Blues)."""
_WHITE_FROM: Final = 0.3
"""Share from which the number in a cell is white."""
_VISIBLE: Final = 0.3
"""Where small cells' colours begin, 0 to 1: a pixel of the faintest blue would not be seen."""
_LONGEST_NAME: Final = 28
"""Characters of a name; a longer one is cut."""


def draw(confusion: Confusion) -> bytes:
    """Draw the matrix and return a PNG."""
    canvas = _Layout(confusion).picture()
    buffer = io.BytesIO()
    canvas.save(buffer, "PNG")
    return buffer.getvalue()


class _Layout:
    """The layout of cells, names, title and scale."""

    def __init__(self, confusion: Confusion) -> None:
        self.confusion = confusion
        self.classes = len(confusion.labels)
        self.numbered = self.classes <= MOST_WITH_NUMBERS
        self.named = self.classes <= MOST_WITH_NAMES
        least = _LEAST_NUMBERED if self.numbered else 1
        self.cell = max(least, min(64, SIDE // self.classes))
        self.side = self.cell * self.classes
        self.floor = 0 if self.named else _VISIBLE
        self.small = _font(13 if self.cell >= 16 else max(8, self.cell - 1) if self.named else 13)
        self.normal, self.large = _font(15), _font(20)
        names = [_cut(label) for label in confusion.labels] if self.named else [str(self.classes)]
        self.names = names
        self.name_width = max(_width(name, self.small) for name in names) + 10
        self.upright = self.name_width > self.cell + 4
        """Whether the names of columns are turned, for lack of room."""
        self.left = _MARGIN + 24 + self.name_width
        self.head = _MARGIN + 64
        # Columns are named below the cells, so that the title stays close to them.
        self.top = self.head
        self.foot = self.top + self.side + (self.name_width if self.upright else 24) + 34
        title = max(_width(self._title(), self.large), _width(self._subtitle(), self.normal)) + 2 * _MARGIN
        self.size = (max(self.left + self.side + 120, title), self.foot + _MARGIN)

    def picture(self) -> Image.Image:
        """Draw everything."""
        image = Image.new("RGB", self.size, "white")
        pen = ImageDraw.Draw(image)
        pen.text((_MARGIN, _MARGIN), self._title(), fill=_INK, font=self.large)
        pen.text((_MARGIN, _MARGIN + 28), self._subtitle(), fill=_FAINT, font=self.normal)
        cells = Image.fromarray(colours(self.confusion.shares, self.floor))
        image.paste(cells.resize((self.side, self.side), Image.Resampling.NEAREST), (self.left, self.top))
        self._grid(pen)
        if self.numbered:
            self._numbers(pen)
        if self.named:
            self._names(image, pen)
        else:
            self._ticks(pen)
        self._axes(image, pen)
        self._scale(image, pen)
        return image

    def _title(self) -> str:
        return f"{self.confusion.accuracy:.2%} of {self.confusion.images:,} test images recognised"

    def _subtitle(self) -> str:
        pairs = self.confusion.confused(1)
        if not pairs:
            return "no class was taken for another"
        truth, seen, count = pairs[0]
        return f"most often confused: {_cut(truth)} taken for {_cut(seen)}, {count:,} images"

    def _grid(self, pen: Any) -> None:
        right, bottom = self.left + self.side, self.top + self.side
        if self.cell >= 8:
            for number in range(1, self.classes):
                at = number * self.cell
                pen.line((self.left + at, self.top, self.left + at, bottom), fill=_LINE)
                pen.line((self.left, self.top + at, right, self.top + at), fill=_LINE)
        pen.rectangle((self.left - 1, self.top - 1, right, bottom), outline=_FAINT)

    def _numbers(self, pen: Any) -> None:
        shares = self.confusion.shares
        for row, column in zip(*np.nonzero(self.confusion.counts), strict=True):
            text = f"{self.confusion.counts[row, column]}"
            font = next((f for f in (self.small, _font(11), _font(9)) if _width(text, f) < self.cell - 4), _font(7))
            ink = "white" if shares[row, column] > _WHITE_FROM else _INK
            pen.text(self._centre(row, column), text, fill=ink, font=font, anchor="mm")

    def _names(self, image: Image.Image, pen: Any) -> None:
        for number, name in enumerate(self.names):
            x, y = self._centre(number, number)
            pen.text((self.left - 7, y), name, fill=_INK, font=self.small, anchor="rm")
            if self.upright:
                _write_upwards(image, name, x, self.top + self.side + 7, self.small, _INK)
            else:
                pen.text((x, self.top + self.side + 8), name, fill=_INK, font=self.small, anchor="mt")

    def _ticks(self, pen: Any) -> None:
        step = max(1, round(self.classes / _TICKS))
        for number in range(0, self.classes, step):
            x, y = self._centre(number, number)
            bottom = self.top + self.side
            pen.line((self.left - 6, y, self.left - 1, y), fill=_FAINT)
            pen.line((x, bottom, x, bottom + 5), fill=_FAINT)
            pen.text((self.left - 9, y), str(number), fill=_INK, font=self.small, anchor="rm")
            pen.text((x, bottom + 8), str(number), fill=_INK, font=self.small, anchor="mt")

    def _axes(self, image: Image.Image, pen: Any) -> None:
        unit = "" if self.named else " (number)"
        below = self.foot - 8
        pen.text((self.left + self.side / 2, below), f"recognised as{unit}", fill=_FAINT, font=self.normal, anchor="mb")
        _write_upwards(
            image, f"true class{unit}", _MARGIN + 6, self.top + self.side // 2, self.normal, _FAINT, middle=True
        )

    def _scale(self, image: Image.Image, pen: Any) -> None:
        height = min(self.side, 260)
        left = self.left + self.side + 24
        shares = np.linspace(1, 0, height) ** 2  # even steps of the root, on which colours are even
        bar = Image.fromarray(colours(shares[:, None], self.floor)).resize((_BAR, height), Image.Resampling.NEAREST)
        image.paste(bar, (left, self.top))
        pen.rectangle((left - 1, self.top - 1, left + _BAR, self.top + height), outline=_FAINT)
        for share in (1.0, 0.5, 0.25, 0.1, 0.01, 0.0):
            y = self.top + (1 - share**0.5) * (height - 1)
            pen.text((left + _BAR + 7, y), f"{share:.0%}", fill=_INK, font=_font(13), anchor="lm")

    def _centre(self, row: int, column: int) -> tuple[float, float]:
        return self.left + (column + 0.5) * self.cell, self.top + (row + 0.5) * self.cell


def colours(shares: npt.NDArray[np.float64], floor: float = 0) -> npt.NDArray[np.uint8]:
    """Return the colour of each share of 0 to 1: [..., 3] bytes. `floor`: where on the scale those above 0 begin."""
    roots = np.sqrt(np.clip(shares, 0, 1))
    at = np.where(roots > 0, floor + (1 - floor) * roots, 0) * (len(_STOPS) - 1)
    places = np.arange(len(_STOPS))
    channels = [np.interp(at, places, _STOPS[:, channel]) for channel in range(3)]
    found: npt.NDArray[np.uint8] = np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
    return found


def _write_upwards(
    image: Image.Image, text: str, x: float, y: float, font: Any, ink: tuple[int, int, int], *, middle: bool = False
) -> None:
    """Write a text turned by a quarter; its end, or its `middle`, is at (x, y)."""
    box = font.getbbox(text)
    height = sum(font.getmetrics())
    mask = Image.new("L", (int(box[2]) + 2, height), 0)
    ImageDraw.Draw(mask).text((0, 0), text, fill=255, font=font)
    turned = mask.rotate(90, expand=True)
    top = y - turned.height / 2 if middle else y
    image.paste(Image.new("RGB", turned.size, ink), (round(x - turned.width / 2), round(top)), turned)


def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _width(text: str, font: Any) -> int:
    return int(font.getlength(text)) + 1


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."
