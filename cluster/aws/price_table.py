"""List prices that ship with the project, for where AWS's price list cannot be asked; `python -m tools.price_table`.

Only what is in the table is known: no price is carried over from another region.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_suffix(".csv")
COMMENT: Final = "# "
"""Begins the lines before the header, one a region: `# REGION DATE SOURCE`."""
_HEADER: Final = "region,type,usd_per_hour"


class PriceTableError(ValueError):
    """Report a table of prices that cannot be read. Carries `path`, `line` and `rule`."""

    def __init__(self, path: Path, line: int, rule: str) -> None:
        self.path, self.line, self.rule = path, line, rule
        super().__init__(f"{path}, line {line}: {rule}; write it anew with `python -m tools.price_table`")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegionPrices:
    """On-demand prices of one region: Linux, shared tenancy."""

    region: str
    date: str
    """On which AWS gave them, ISO 8601."""
    source: str
    usd_per_hour: Mapping[str, float]
    """By instance type."""


@functools.cache
def shipped() -> Mapping[str, RegionPrices]:
    """Return the prices that ship, by region. Raises PriceTableError for a table that is damaged."""
    try:
        lines = TABLE.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PriceTableError(TABLE, 0, f"cannot be read ({error.strerror})") from None
    return parse(lines)


def parse(lines: Iterable[str]) -> Mapping[str, RegionPrices]:
    """Parse a table's lines. Raises PriceTableError naming the line that breaks its rule."""
    regions: dict[str, tuple[str, str]] = {}
    prices: dict[str, dict[str, float]] = {}
    header = False
    for number, line in enumerate(lines, start=1):
        if not header and line.startswith(COMMENT):
            region, date, source = line[len(COMMENT) :].split(" ", 2)
            regions[region] = (date, source)
        elif not header:
            if line != _HEADER:
                raise PriceTableError(TABLE, number, f"the columns must be {_HEADER}")
            header = True
        else:
            region, kind, price = _parse_row(number, line)
            if region not in regions:
                raise PriceTableError(TABLE, number, f"no line above says where the prices of {region} are from")
            prices.setdefault(region, {})[kind] = price
    return {
        region: RegionPrices(region=region, date=date, source=source, usd_per_hour=prices.get(region, {}))
        for region, (date, source) in regions.items()
    }


def _parse_row(number: int, line: str) -> tuple[str, str, float]:
    cells = line.split(",")
    if len(cells) != 3:
        raise PriceTableError(TABLE, number, f"has {len(cells)} cells in place of 3")
    try:
        price = float(cells[2])
    except ValueError:
        price = 0.0
    if not price > 0:
        raise PriceTableError(TABLE, number, f"{cells[2]!r} is no price")
    return cells[0], cells[1], price


def render(regions: Iterable[RegionPrices]) -> str:
    """Return the text of a table."""
    ordered = sorted(regions, key=lambda each: each.region)
    rows = [
        f"{each.region},{kind},{each.usd_per_hour[kind]:.6g}" for each in ordered for kind in sorted(each.usd_per_hour)
    ]
    return (
        "\n".join([*(f"{COMMENT}{each.region} {each.date} {each.source}" for each in ordered), _HEADER, *rows]) + "\n"
    )
