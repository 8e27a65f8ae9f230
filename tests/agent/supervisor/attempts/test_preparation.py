"""Facts about what a run's supervisor says of hosts that it could not prepare."""

from __future__ import annotations

from agent.remote.command import Completed
from agent.supervisor.attempts.preparation import failures


def done(status: int, output: str) -> Completed:
    return Completed(status=status, output=output, began=0.0, ended=1.0)


def test_a_host_that_is_not_reached_is_to_be_replaced() -> None:
    results = {
        "deeplearning-worker1": done(0, "/opt/python"),
        "deeplearning-worker2": done(255, "ssh: connect to host deeplearning-worker2 port 22: No route to host\n"),
        "deeplearning-worker3": done(1, "no space left\n"),
    }
    assert failures(results) == {
        "deeplearning-worker2": "ssh: connect to host deeplearning-worker2 port 22: No route to host; "
        "do: `fab replace worker2`",
        "deeplearning-worker3": "no space left",
    }
