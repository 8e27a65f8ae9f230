"""Spot interruptions: a rebalance recommendation, a notice that the instance can read, and the termination."""

from __future__ import annotations

import datetime
from typing import Any, Final

NOTICE_S: Final = 120.0
"""AWS's time between notice and termination."""
_MARK: Final = "_interrupted_at"
_RECOMMENDED: Final = "_recommended_at"
_UP: Final = ("pending", "running")


class NotInterruptibleError(ValueError):
    """The instance cannot be interrupted: it is not a spot instance, or neither pending nor running."""


def give_notice(ec2: Any, instance_id: str, notice_s: float) -> None:
    """Give a spot instance its interruption notice, and the rebalance recommendation if it has none.

    `terminate_due` terminates the instance `notice_s` seconds later. A second notice changes nothing. Raises
    NotInterruptibleError if the instance is not a spot instance, or neither pending nor running.
    """
    instance = _interruptible(ec2, instance_id)
    if not recommended_at(instance):
        _recommend(instance)
    if getattr(instance, _MARK, None) is None:
        now = datetime.datetime.now(datetime.UTC)
        setattr(instance, _MARK, now + datetime.timedelta(seconds=notice_s))


def recommend(ec2: Any, instance_id: str) -> None:
    """Give a spot instance a rebalance recommendation: a higher risk of interruption.

    It replaces an earlier one. Raises NotInterruptibleError like `give_notice`.
    """
    _recommend(_interruptible(ec2, instance_id))


def _recommend(instance: Any) -> None:
    setattr(instance, _RECOMMENDED, datetime.datetime.now(datetime.UTC))


def _interruptible(ec2: Any, instance_id: str) -> Any:
    """Return a pending or running spot instance. Raises NotInterruptibleError for any other instance."""
    instance = ec2.get_instance(instance_id)
    if getattr(instance, "lifecycle", None) != "spot":
        raise NotInterruptibleError(
            f"{instance_id} is not a spot instance, and only spot instances can be interrupted; choose a spot instance"
        )
    if instance._state.name not in _UP:
        raise NotInterruptibleError(
            f"{instance_id} is {instance._state.name}, and only pending or running instances can be interrupted"
        )
    return instance


def deadline(instance: Any) -> str:
    """Return the time at which an interrupted instance is terminated (ISO 8601, UTC), or "" without a notice."""
    mark: datetime.datetime | None = getattr(instance, _MARK, None)
    return mark.strftime("%Y-%m-%dT%H:%M:%SZ") if mark else ""


def recommended_at(instance: Any) -> str:
    """Return the time of an instance's rebalance recommendation (ISO 8601, UTC), or "" if there is none."""
    mark: datetime.datetime | None = getattr(instance, _RECOMMENDED, None)
    return mark.strftime("%Y-%m-%dT%H:%M:%SZ") if mark else ""


def terminate_due(ec2: Any) -> list[str]:
    """Terminate the interrupted spot instances whose notice period is over; return their ids."""
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
