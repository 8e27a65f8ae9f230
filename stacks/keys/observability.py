"""Keys of logs, metrics, dashboard and alarms."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservabilityKeys:
    """Describe what is told of the cluster."""

    def check_observability(self) -> None:
        """Raise ConfigError for the first value that is wrong by itself."""
