"""All manners of one account, drawn from one seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localcloud.manners import late_states, propagation
from localcloud.manners.capacity import Capacity
from localcloud.manners.draws import Draws
from localcloud.manners.late_states import LateStates
from localcloud.manners.propagation import Propagation
from localcloud.manners.spot_notices import SpotNotices
from localcloud.manners.throttling import Throttle
from localcloud.manners.zone_balance import ZoneBalance


class Manners:
    """Behave as a real account does, in the same way for the same seed."""

    def __init__(self, seed: int, backend: Callable[[str], Any]) -> None:
        self._backend = backend
        draws = Draws(seed)
        self.throttle = Throttle(draws)
        self._states = LateStates(draws)
        Propagation(draws).attach(backend("ec2"), backend("iam"))
        self._states.attach(backend("ec2"))
        Capacity(draws).attach(backend("ec2"))
        self._notices = SpotNotices(draws)
        self._notices.attach(backend("ec2"))
        self._zones = ZoneBalance(draws)

    def is_stable(self, resource_type: str, physical_id: str) -> bool:
        """Return whether a new resource of CloudFormation can be used. The caller holds the API's lock."""
        return propagation.is_stable(self._backend("iam"), resource_type, physical_id) and late_states.is_stable(
            self._backend("ec2"), resource_type, physical_id
        )

    def settle(self) -> bool:
        """Bring each state up to date; return whether one changed. The caller holds the API's lock."""
        ec2 = self._backend("ec2")
        changes = self._states.settle(ec2), self._notices.settle(ec2), self._zones.settle(self._backend("autoscaling"))
        return any(changes)

    def console_delay_s(self, instance_id: str) -> float:
        """Return how late the console of an instance can be read over the API."""
        return self._states.console_delay_s(instance_id)
