"""Check and describe a run's cost and time limits before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import SpecError
from agent.spec.run import RunSpec
from agent.spec.run_limits import RunLimits, dollars, hours
from agent.spec.submission import Origin
from cluster.aws.prices import Prices, shown, total_per_hour
from cluster.aws.stack import Stack
from cluster.errors import DeepcdkError


def check_prices(bounds: RunLimits, kinds: Sequence[str], prices: Prices) -> None:
    """Raise DeepcdkError if the cost is limited and the price of one of these instance types is unknown. Waits up to 3
    s for prices.
    """
    if not bounds.max_usd:
        return
    found = prices.per_hour(kinds, wait_s=3.0)
    if unknown := sorted(kind for kind, price in found.items() if price is None):
        raise _unpriced(unknown)


def check_left(spec: RunSpec, spent: Mapping[str, Any] | None) -> None:
    """Raise DeepcdkError if a run's earlier attempts have used up its limits, or if its cost is limited but unknown.

    `spent` comes from the run's record. It is None if nothing is recorded, and then nothing is raised.
    """
    if not spec.bounds or not spent:
        return
    seconds, usd = float(spent["seconds"]), spent.get("usd")
    if spec.bounds.max_usd and usd is None:
        raise DeepcdkError(
            f"--max-cost cannot be checked: the cost of the earlier attempts of run {spec.run_id} is unknown",
            remedy="give --max-cost none, and limit the time with --max-hours",
        )
    if spec.bounds.share(seconds, usd) >= 1:
        told = spec.bounds.describe(seconds, usd)
        flag = told.partition(" ")[0]
        remedy = f"give a higher limit with {flag}, or {flag} none"
        raise DeepcdkError(f"run {spec.run_id} has reached {told}", remedy=remedy)


def stop_policy(stack: Stack, *, wanted: bool) -> str:
    """Return the ARN of the scaling policy that terminates the workers after a run; "" if `wanted` is False.

    Raises DeepcdkError if `wanted` is True and the stack has no such policy.
    """
    if wanted and not stack.stop_policy:
        raise DeepcdkError(
            f"--then-stop, or then_stop of cdk.json: stack {stack.name} has no policy that terminates its workers",
            remedy="run `fab up`, which adds the policy, then repeat the command",
        )
    return stack.stop_policy if wanted else ""


def usd_per_hour(spec: RunSpec, origin: Origin) -> float | None:
    """Return the hourly price of a run's nodes and the master, USD; None if a price is unknown."""
    ids = [*(host.instance_id for host in spec.hosts), origin.master]
    return total_per_hour([origin.instance_types.get(id, "") for id in ids], origin.usd_per_hour)


def describe(spec: RunSpec, origin: Origin) -> list[str]:
    """Describe the limits of a new run, and that its workers are terminated afterwards, one line each; [] for neither.

    Raises DeepcdkError if the cost is limited and a price is unknown.
    """
    bounds, price = spec.bounds, usd_per_hour(spec, origin)
    if bounds.max_usd and price is None:
        raise _unpriced(sorted(kind for kind, known in origin.usd_per_hour.items() if known is None))
    ends = (
        ["all workers are terminated after the run, unless another run is queued; the master keeps running"]
        if spec.stop_policy
        else []
    )
    if not bounds:
        return ends
    told = [f"{dollars(bounds.max_usd)} for its instances"] if bounds.max_usd else []
    told += [hours(bounds.max_hours * 3600)] if bounds.max_hours else []
    at = f", at {shown(price)}" if price is not None else ""
    # A user program may ignore the signal.
    ending = "gets SIGTERM, so that it can write a checkpoint," if spec.program else "writes a checkpoint"
    return [f"the run {ending} and is stopped after {' or '.join(told)}{at}", *ends]


def describe_spent(record: Mapping[str, Any]) -> str:
    """Return the limit that a run is closest to and how much of it is used, from the run's record.

    An example is `--max-cost 5: $4.02 of $5 after 1.5 h`. Returns "" without valid limits, or if nothing is recorded.
    """
    given, spent = (record.get("spec") or {}).get("bounds") or {}, record.get("spent")
    try:
        bounds = RunLimits(max_hours=given.get("max_hours") or 0.0, max_usd=given.get("max_usd") or 0.0)
    except SpecError:  # the master wrote the record, so it may be invalid
        return ""
    return bounds.describe(float(spent["seconds"]), spent.get("usd")) if bounds and spent else ""


def _unpriced(kinds: Sequence[str]) -> DeepcdkError:
    """Return the error for a cost limit with unknown prices. `kinds` are the instance types."""
    return DeepcdkError(
        f"--max-cost cannot be checked: the price of {', '.join(kinds) or 'a node'} in this region is unknown",
        remedy="limit the time with --max-hours instead. Or repeat the command, with credentials that may read AWS's "
        "price list (pricing:GetProducts)",
    )
