"""Auto Scaling groups that balance their zones: first launch in the emptier, then terminate in the fuller.

EC2 Auto Scaling user guide, "Availability Zone rebalancing": the zones of a group can become uneven, for example while
one had no capacity. The group then launches an instance before it terminates one. Suspending its process AZRebalance
prevents this ("Suspend and resume Amazon EC2 Auto Scaling processes").
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from localcloud.api.autoscaling import groups
from localcloud.api_faults.throttling import Draws

WAIT_S: Final = (10.0, 30.0)
"""Seconds until an uneven group is balanced, and between its attempts."""
UNEVEN: Final = 2
"""Difference in instances between two zones that makes a group uneven."""
_PROCESSES: Final = {"AZRebalance", "Launch", "Terminate"}
_DUE_AT: Final = "_localcloud_balanced_at"


class ZoneBalance:
    """Balances the zones of all Auto Scaling groups of a backend."""

    def __init__(self, draws: Draws, clock: Callable[[], float] = time.monotonic) -> None:
        self._draws, self._clock = draws, clock

    def settle(self, autoscaling: Any) -> bool:
        """Launch an instance in each uneven group that is due; return whether a group was due.

        A due group counts even if its launch fails. Call this regularly, because an uneven group is due 10 to 30 s
        after it was found.
        """
        launched = False
        for group in list(autoscaling.autoscaling_groups.values()):
            launched = self._balance(group) or launched
        return launched

    def _balance(self, group: Any) -> bool:
        """Launch an instance that balances a group's zones, if it is due. Return whether it was due.

        A group is due some seconds after it was first found uneven, and again some seconds after each attempt.
        """
        subnet = emptiest_subnet(group)
        if not subnet:
            setattr(group, _DUE_AT, None)
            return False
        now = self._clock()
        due_at = getattr(group, _DUE_AT, None)
        if due_at is None or now >= due_at:
            setattr(group, _DUE_AT, now + self._draws.draw("zone balance").uniform(*WAIT_S))
        if due_at is None or now < due_at:
            return False
        groups.launch_extra(group, subnet)
        return True


def emptiest_subnet(group: Any) -> str:
    """Return the id of the subnet for a launch that balances a group's zones; "" if none is needed or possible now."""
    if _PROCESSES & set(group._suspended_processes):
        return ""
    active = group.active_instances()
    states = {state.instance._state.name for state in active}
    if states - {"running"} or len(active) != int(group.desired_capacity or 0):
        return ""  # The group reaches its desired size first.
    ec2 = group.autoscaling_backend.ec2_backend
    zones = {id: ec2.get_subnet(id).availability_zone for id in str(group.vpc_zone_identifier or "").split(",") if id}
    if not zones:
        return ""
    counts = Counter(dict.fromkeys(zones.values(), 0))
    counts.update(state.availability_zone for state in active)
    emptiest = min(zones, key=lambda id: counts[zones[id]])
    return emptiest if max(counts.values()) - counts[zones[emptiest]] >= UNEVEN else ""
