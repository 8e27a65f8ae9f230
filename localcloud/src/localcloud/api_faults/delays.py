"""Slow boots, slow NAT gateways and late console output.

An instance is `pending` until its host starts, and runs its user data afterwards (EC2 user guide, "Amazon EC2 instance
state changes"). A NAT gateway is `pending` until it forwards traffic (VPC user guide, "NAT gateways"). The API returns
console output late (EC2 user guide, "Instance console output"). The times are drawn. They are shorter than AWS's,
because tests wait for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from localcloud.api.monkeypatch import call_after
from localcloud.api_faults.throttling import Draws

BOOT_S: Final = (2.0, 10.0)
"""Seconds from a launch until the instance runs, for most boots."""
SLOW_BOOT_S: Final = (15.0, 40.0)
SLOW_BOOTS: Final = 1 / 6
GATEWAY_S: Final = (5.0, 25.0)
"""Seconds until a NAT gateway is available. On AWS it takes minutes."""
CONSOLE_S: Final = (2.0, 20.0)
_SETTLES_AT: Final = "_localcloud_settles_at"
_RUNNING: Final = 16
_PENDING: Final = 0


class Delays:
    """Delays the new instances and NAT gateways of a backend."""

    def __init__(self, draws: Draws, clock: Callable[[], float] = time.monotonic) -> None:
        self._draws, self._clock = draws, clock
        self._console_delays: dict[str, float] = {}

    def attach(self, ec2: Any) -> None:
        """Delay all instances and NAT gateways that moto's EC2 creates from now on. A reset of moto ends this.

        They are `pending` until `settle` is called after their delay.
        """
        call_after(ec2, "run_instances", self._delay_instances)
        call_after(ec2, "create_nat_gateway", self._delay_gateway)

    def _delay_instances(self, reservation: Any) -> None:
        for instance in reservation.instances:
            setattr(instance, _SETTLES_AT, self._clock() + self._boot_s())
            instance._state.name, instance._state.code = "pending", _PENDING

    def _boot_s(self) -> float:
        draw = self._draws.draw("boot")
        return draw.uniform(*(SLOW_BOOT_S if draw.random() < SLOW_BOOTS else BOOT_S))

    def _delay_gateway(self, gateway: Any) -> None:
        setattr(gateway, _SETTLES_AT, self._clock() + self._draws.draw("NAT gateway").uniform(*GATEWAY_S))
        gateway.state = "pending"

    def console_delay_s(self, instance_id: str) -> float:
        """Return the seconds from printing a line until the API returns it. They are constant for each instance."""
        if instance_id not in self._console_delays:
            self._console_delays[instance_id] = self._draws.draw("console").uniform(*CONSOLE_S)
        return self._console_delays[instance_id]

    def settle(self, ec2: Any) -> bool:
        """Make instances `running` and NAT gateways `available` whose delay is over; return whether there were any."""
        now = self._clock()
        due = [each for each in _pending(ec2) if getattr(each, _SETTLES_AT, 0.0) <= now]
        for each in due:
            if each.id in ec2.nat_gateways:
                each.state = "available"
            else:
                each._state.name, each._state.code = "running", _RUNNING
        return bool(due)


def _pending(ec2: Any) -> Iterator[Any]:
    """Yield all pending instances and NAT gateways."""
    for reservation in ec2.reservations.values():
        yield from (instance for instance in reservation.instances if instance._state.name == "pending")
    yield from (gateway for gateway in ec2.nat_gateways.values() if gateway.state == "pending")


def is_stable(ec2: Any, physical_id: str) -> bool:
    """Return False for the id of a pending instance or NAT gateway, and True for all other ids."""
    return all(each.id != physical_id for each in _pending(ec2))
