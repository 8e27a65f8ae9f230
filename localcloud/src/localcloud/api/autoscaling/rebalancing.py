"""Capacity rebalancing: a group replaces a spot instance that is at risk before EC2 takes it back.

EC2 Auto Scaling user guide, "Capacity Rebalancing in Auto Scaling to replace at-risk Spot Instances": on a rebalance
recommendation the group launches another instance, and terminates the one at risk once the other passes its health
checks. Meanwhile it may exceed its maximum by a tenth of its desired capacity; rounded down here, for the guide does
not say how. EC2 gives a recommendation with each notice of an interruption at the latest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.autoscaling.responses import AutoScalingResponse

from localcloud.api.autoscaling import termination
from localcloud.api.ec2 import spot_interruption
from localcloud.api.monkeypatch import replace

_SUCCESSOR: Final = "_localcloud_successor"
_UP: Final = ("pending", "running")
_PROCESSES: Final = {"Launch", "Terminate"}


def apply() -> None:
    """Correct moto, whose updates of groups leave it as it was."""
    original: Any = AutoScalingResponse.update_auto_scaling_group

    def update_auto_scaling_group(self: Any) -> Any:
        answer = original(self)
        given = self._get_bool_param("CapacityRebalance")
        if given is not None:
            name = self._get_param("AutoScalingGroupName")
            self.autoscaling_backend.autoscaling_groups[name].capacity_rebalance = given
        return answer

    replace(AutoScalingResponse, "update_auto_scaling_group", update_auto_scaling_group)


def pending(group: Any) -> int:
    """Return how many instances a group has beyond its size, each in place of one that is at risk and still there."""
    return sum(_successor(state) is not None for state in group.active_instances())


def replace_at_risk(group: Any, launch: Callable[[], Any]) -> None:
    """Launch an instance for each one at risk, and terminate those whose successors run.

    `launch` launches one more instance of the group and returns it; None where that failed.
    """
    if not group.capacity_rebalance or _PROCESSES & set(group._suspended_processes):
        return
    most = int(group.max_size or 0) + int(group.desired_capacity or 0) // 10
    for state in group.active_instances():
        if not spot_interruption.recommended_at(state.instance):
            continue
        successor = _successor(state)
        if successor is not None and successor._state.name == "running":
            termination.end(group, [state])
        elif successor is None and len(group.active_instances()) < most:
            setattr(state.instance, _SUCCESSOR, launch())


def _successor(state: Any) -> Any:
    """Return the instance that was launched in place of another one, where it is there."""
    successor = getattr(state.instance, _SUCCESSOR, None)
    return successor if successor is not None and successor._state.name in _UP else None
