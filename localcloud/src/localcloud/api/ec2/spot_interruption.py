"""Spot interruptions: a recommendation and a notice that the instance can read, and then its end."""

from __future__ import annotations

import datetime
from typing import Any, Final

NOTICE_S: Final = 120.0
"""The notice of AWS."""
_MARK: Final = "_interrupted_at"
_RECOMMENDED: Final = "_recommended_at"
_UP: Final = ("pending", "running")


class NotInterruptibleError(ValueError):
    """Report an instance that AWS would never interrupt."""


def announce(ec2: Any, instance_id: str, notice_s: float) -> None:
    """Give a spot instance its interruption notice, and with it the recommendation, where it came no sooner.

    Raises NotInterruptibleError for any other instance.
    """
    instance = _interruptible(ec2, instance_id)
    if not recommended_at(instance):
        _recommend(instance)
    if getattr(instance, _MARK, None) is None:
        now = datetime.datetime.now(datetime.UTC)
        setattr(instance, _MARK, now + datetime.timedelta(seconds=notice_s))


def recommend(ec2: Any, instance_id: str) -> None:
    """Give a spot instance the recommendation to be replaced: it is more likely to be interrupted from now on.

    Raises NotInterruptibleError for any other instance.
    """
    _recommend(_interruptible(ec2, instance_id))


def _recommend(instance: Any) -> None:
    setattr(instance, _RECOMMENDED, datetime.datetime.now(datetime.UTC))


def _interruptible(ec2: Any, instance_id: str) -> Any:
    instance = ec2.get_instance(instance_id)
    if getattr(instance, "lifecycle", None) != "spot":
        raise NotInterruptibleError(
            f"{instance_id} is an on-demand instance; only spot instances are interrupted (spot = true)"
        )
    if instance._state.name not in _UP:
        raise NotInterruptibleError(f"{instance_id} is {instance._state.name}")
    return instance


def deadline(instance: Any) -> str:
    """Return when an instance ends, as in its metadata; empty without a notice."""
    mark: datetime.datetime | None = getattr(instance, _MARK, None)
    return mark.strftime("%Y-%m-%dT%H:%M:%SZ") if mark else ""


def recommended_at(instance: Any) -> str:
    """Return when an instance got its rebalance recommendation, as in its metadata; empty without one."""
    mark: datetime.datetime | None = getattr(instance, _RECOMMENDED, None)
    return mark.strftime("%Y-%m-%dT%H:%M:%SZ") if mark else ""


def end_due(ec2: Any) -> list[str]:
    """Terminate the instances whose notice is over; return their ids."""
    now = datetime.datetime.now(datetime.UTC)
    ended = []
    for reservation in ec2.reservations.values():
        for instance in reservation.instances:
            mark: datetime.datetime | None = getattr(instance, _MARK, None)
            if mark is not None and mark <= now and instance._state.name in _UP:
                ec2.terminate_instances([instance.id])
                instance.state_reason.code = "Server.SpotInstanceTermination"
                instance.state_reason.message = "Server.SpotInstanceTermination: Spot instance termination"
                ended.append(instance.id)
    return ended
