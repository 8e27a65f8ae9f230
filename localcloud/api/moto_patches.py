"""All corrections of moto, applied once and by name."""

from __future__ import annotations

import importlib.metadata
from typing import Final

from localcloud.api import failures

MOTO_VERSION: Final = "5.2.5"
"""The only version whose insides these corrections know."""

_applied: list[object] = []


def apply() -> object:
    """Correct moto in this process, once; return the console that instances print to.

    Raises WrongMotoError where another version is installed.
    """
    found = importlib.metadata.version("moto")
    if found != MOTO_VERSION:
        raise failures.WrongMotoError(found, MOTO_VERSION)
    if not _applied:
        from localcloud.api import (
            activities,
            addresses,
            autoscaling,
            buckets,
            instances,
            lustre,
            placement,
            policies,
            security_groups,
        )
        from localcloud.api.cloudwatch import alarms, scaling

        console = instances.Console()
        addresses.apply()
        instances.apply(console)
        placement.apply()
        autoscaling.apply()
        activities.apply()
        policies.apply()
        buckets.apply()
        alarms.apply()
        scaling.apply()
        lustre.apply()
        security_groups.apply()
        _applied.append(console)
    return _applied[0]
