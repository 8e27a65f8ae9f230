"""Scaling activities: what an Auto Scaling group did, and why it could not.

AWS takes a new size at once and launches later; a launch that fails is an activity with the status Failed, which
DescribeScalingActivities shows. moto fails the request that set the size, and shows no activities.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.core.utils import utcnow

from localcloud.api.monkeypatch import replace

# AWS keeps six weeks of them.
_KEPT = 200


@contextlib.contextmanager
def caused_by(group: Any, cause: str) -> Iterator[None]:
    """Set the cause of the activities of a group within a block."""
    group._cause = cause
    try:
        yield
    finally:
        del group._cause


def record(group: Any, description: str, *, failure: str = "") -> None:
    """Add an activity to a group, successful unless there is a `failure`."""
    now = utcnow()
    found: list[dict[str, Any]] = group.__dict__.setdefault("_activities", [])
    found.append(
        {
            "ActivityId": str(uuid.uuid4()),
            "AutoScalingGroupName": group.name,
            "Description": description if not failure else f"{description}.  Status Reason: {failure}",
            "Cause": group.__dict__.get("_cause")
            or f"At {now:%Y-%m-%dT%H:%M:%SZ} the group had to meet its desired capacity.",
            "StartTime": now,
            "EndTime": now,
            "StatusCode": "Failed" if failure else "Successful",
            "StatusMessage": failure or None,
            "Progress": 100,
        }
    )
    del found[:-_KEPT]


def apply() -> None:
    """Correct moto."""

    def describe_scaling_activities(self: Any) -> ActionResult:
        wanted = self._get_param("AutoScalingGroupName")
        groups = self.autoscaling_backend.autoscaling_groups.values()
        found = [
            activity
            for group in groups
            if not wanted or group.name == wanted
            for activity in reversed(group.__dict__.get("_activities", []))
        ]
        return ActionResult({"Activities": found})

    replace(AutoScalingResponse, "describe_scaling_activities", describe_scaling_activities)
