"""Keys of what bounds a cluster's permissions, time and cost."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuardKeys:
    """Describe the cluster's bounds."""

    def check_guard(self) -> None:
        """Raise ConfigError for the first value that is wrong by itself."""
