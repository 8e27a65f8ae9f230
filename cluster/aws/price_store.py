"""What `fab prices --refresh` learnt, in a file on the laptop, by API endpoint and region."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.files.atomic_write import write_atomically
from cluster.aws.service_prices import ServicePrice, service_price
from cluster.aws.spot_prices import SpotPrice


def store_file(home: Path) -> Path:
    """Return the file in which refreshed prices are kept."""
    return home / ".cache" / "deepcdk" / "refreshed_prices.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refreshed:
    """Prices of one region, as AWS gave them."""

    date: str = ""
    """On which they were asked for, ISO 8601; "" for never."""
    spot: Mapping[str, SpotPrice] = dataclasses.field(default_factory=dict)
    """By instance type."""
    services: Mapping[str, ServicePrice] = dataclasses.field(default_factory=dict)
    """By item of `service_prices.ITEMS`."""


class PriceStore:
    """Keep refreshed prices of one endpoint and region."""

    def __init__(self, path: Path, *, endpoint: str, region: str) -> None:
        self._path, self._key, self.region = path, f"{endpoint}|{region}", region

    def load(self) -> Refreshed:
        """Return what was refreshed last; nothing where the file is missing or damaged."""
        try:
            entry = self._document()[self._key]
            return Refreshed(
                date=str(entry["date"]),
                spot={kind: SpotPrice(**found) for kind, found in entry["spot"].items()},
                services={item: ServicePrice(**found) for item, found in entry["services"].items()},
            )
        except (KeyError, TypeError, AttributeError):
            return Refreshed()

    def save(self, refreshed: Refreshed) -> None:
        """Write refreshed prices beside those of other regions. A file that cannot be written is left as it is."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            document = {**self._document(), self._key: dataclasses.asdict(refreshed)}
            write_atomically(self._path, json.dumps(document))

    def service(self, item: str) -> ServicePrice | None:
        """Return the price of an item: AWS's if it was refreshed, else the one that ships, else None."""
        return self.load().services.get(item) or service_price(self.region, item)

    def _document(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
