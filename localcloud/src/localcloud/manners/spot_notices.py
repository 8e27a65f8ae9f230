"""Spot instances that AWS takes back: a rebalance recommendation, and then or soon the notice of an interruption.

EC2 user guide, "EC2 instance rebalance recommendations" (it "can arrive sooner than the two-minute Spot Instance
interruption notice", or with it) and "Spot Instance interruption notices".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from localcloud.api.ec2 import spot_interruption
from localcloud.api.monkeypatch import call_after
from localcloud.manners.draws import Draws

PROBABILITY: Final = 1 / 4
"""That a spot instance is taken back at all."""
RECOMMENDED_S: Final = (60.0, 300.0)
"""From its launch until the recommendation."""
NOTICED_S: Final = (0.0, 120.0)
"""From the recommendation until the notice."""
_PLANNED: Final = "_localcloud_taken_back"


class SpotNotices:
    """Take back some of a backend's spot instances."""

    def __init__(self, draws: Draws, clock: Callable[[], float] = time.monotonic) -> None:
        self._draws, self._clock = draws, clock

    def attach(self, ec2: Any) -> None:
        """Plan it for the instances that this backend launches from now on; a reset of moto ends it."""
        call_after(ec2, "run_instances", self._plan)

    def _plan(self, reservation: Any) -> None:
        for instance in reservation.instances:
            if getattr(instance, "lifecycle", None) == "spot":
                draw = self._draws.draw("spot instance")
                if draw.random() < PROBABILITY:
                    recommended_at = self._clock() + draw.uniform(*RECOMMENDED_S)
                    setattr(instance, _PLANNED, (recommended_at, recommended_at + draw.uniform(*NOTICED_S)))

    def settle(self, ec2: Any) -> bool:
        """Give the recommendations and notices that are due; return whether there were any."""
        now, changed = self._clock(), False
        for reservation in ec2.reservations.values():
            for instance in reservation.instances:
                recommended_at, noticed_at = getattr(instance, _PLANNED, (float("inf"), float("inf")))
                if instance._state.name != "running" or now < recommended_at:
                    continue
                if not spot_interruption.recommended_at(instance):
                    spot_interruption.recommend(ec2, instance.id)
                    changed = True
                if now >= noticed_at and not spot_interruption.deadline(instance):
                    spot_interruption.announce(ec2, instance.id, spot_interruption.NOTICE_S)
                    changed = True
        return changed
