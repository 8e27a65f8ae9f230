"""All API faults of one account, drawn from one seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localcloud.api_faults import delays, propagation
from localcloud.api_faults.capacity import Capacity
from localcloud.api_faults.delays import Delays
from localcloud.api_faults.propagation import Propagation
from localcloud.api_faults.throttling import Draws, Throttle
from localcloud.api_faults.zone_balance import ZoneBalance


class ApiFaults:
    """All API faults of an account. The same seed draws the same faults.

    New objects propagate late, start late, and may lack capacity, as soon as ApiFaults is created and until moto is
    reset. Calls are only rejected if the server asks `throttle`, and late states only change in `settle`.
    """

    def __init__(self, seed: int, backend: Callable[[str], Any]) -> None:
        self._backend = backend
        draws = Draws(seed)
        self.throttle, self.delays, self._zones = Throttle(draws), Delays(draws), ZoneBalance(draws)
        Propagation(draws).attach(backend("ec2"), backend("iam"))
        self.delays.attach(backend("ec2"))
        Capacity(draws).attach(backend("ec2"))

    def is_stable(self, resource_type: str, physical_id: str) -> bool:
        """Return whether a new CloudFormation resource has propagated and has started. The caller holds the API's lock.

        True for types of resources that no fault delays.
        """
        return propagation.is_stable(self._backend("iam"), resource_type, physical_id) and delays.is_stable(
            self._backend("ec2"), physical_id
        )

    def settle(self) -> bool:
        """Start instances and NAT gateways whose delay is over, and balance the zones of groups that are due.

        Return whether anything was due. The caller holds the API's lock, and calls this regularly.
        """
        changes = self.delays.settle(self._backend("ec2")), self._zones.settle(self._backend("autoscaling"))
        return any(changes)
