"""CloudWatch: what is measured here, and alarms that act on it."""

from __future__ import annotations

from typing import Final

GROUP_METRICS: Final = (
    "GroupMinSize",
    "GroupMaxSize",
    "GroupDesiredCapacity",
    "GroupInServiceInstances",
    "GroupPendingInstances",
    "GroupStandbyInstances",
    "GroupTerminatingInstances",
    "GroupTotalInstances",
)
