"""Rules of logs, metrics and alarms."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.validation.problem import Problem


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule of logs, metrics and alarms that the configuration breaks."""
    del config
    yield from ()
