"""Compare a run's expected and actual time, cost and speed, using only its record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.spec.run_states import FINAL_STATES
from cluster.report.run_files import document, number
from cluster.terminal.units import duration

SECONDS: Final = "s"
USD: Final = "USD"
IMAGES_S: Final = "images/s"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """One figure of a run, expected and actual."""

    name: str
    unit: str
    """SECONDS, USD or IMAGES_S."""
    expected: float
    low: float | None
    """Low end of the expected range; None if the estimate has no range."""
    high: float | None
    actual: float

    @property
    def ratio(self) -> float | None:
        """Return actual over expected; None if the expected value is 0."""
        return self.actual / self.expected if self.expected else None

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Return four texts to print: name, expected value with its range, actual value, and the difference in percent.

        The last one is "" if the expected value is 0.
        """
        span = f" ({self._text(self.low)} to {self._text(self.high)})" if self.low is not None and self.high else ""
        by = "" if self.ratio is None else f"{self.ratio - 1:+.0%}"
        return self.name, f"{self._text(self.expected)}{span}", self._text(self.actual), by

    def document(self) -> dict[str, Any]:
        """Return the fields and `ratio` (actual over expected) as JSON values."""
        return {**dataclasses.asdict(self), "ratio": self.ratio}

    def _text(self, value: float | None) -> str:
        if value is None:
            return "unknown"
        if self.unit == SECONDS:
            return f"{value:.1f} s" if value < 10 else duration(value)
        return f"${value:,.2f}" if self.unit == USD else f"{value:,.0f}"


def outcomes(record: Mapping[str, Any]) -> tuple[Outcome, ...]:
    """Return the expected and actual time and cost of a run, from its record. Figures that are unknown are left out.

    If the run succeeded in one attempt, its parts are included: start-up (everything besides the epochs), training
    steps, evaluation (the rest of the epochs), and images per second in training steps. Returns () if the run has not
    ended, or had no estimate.
    """
    estimate, state = document(document(record.get("origin")).get("estimate")), document(record.get("state"))
    started, updated = number(state.get("started")), number(state.get("updated"))
    if not estimate or started is None or updated is None or state.get("state") not in FINAL_STATES:
        return ()
    seconds = updated - started
    found = [_outcome("time", SECONDS, document(estimate.get("seconds")), seconds)]
    if state["state"] == "succeeded" and record.get("attempts") == 1:
        found += _parts(estimate, document(record.get("result")), seconds)
    usd = document(estimate.get("usd"))
    found.append(_outcome("cost, expected for only the workers", USD, usd, number(record.get("usd"))))
    return tuple(each for each in found if each is not None)


def parts(found: Sequence[Outcome]) -> list[Outcome]:
    """Return only the outcomes of the run's parts, which have no range."""
    return [each for each in found if each.low is None]


def _parts(estimate: Mapping[str, Any], result: Mapping[str, Any], seconds: float) -> list[Outcome | None]:
    """Return the outcomes of a run's parts; [] if the estimate or the result lacks them. `seconds` is the time of the
    run.
    """
    expected = {name: number(value) or 0.0 for name, value in document(estimate.get("parts")).items()}
    given = result.get("epoch_seconds")
    epochs_s = sum(number(each) or 0.0 for each in given) if isinstance(given, list) else 0.0
    training_s = number(result.get("training_seconds"))
    if not expected or training_s is None or not epochs_s:
        return []
    steps = sum(expected.get(name, 0.0) for name in ("compute", "communication", "input"))
    found = (
        ("start-up", SECONDS, expected.get("start_up"), max(0.0, seconds - epochs_s)),
        ("training steps", SECONDS, steps, training_s),
        ("evaluation", SECONDS, expected.get("evaluation"), max(0.0, epochs_s - training_s)),
        ("images/s", IMAGES_S, estimate.get("images_per_s"), number(result.get("images_per_s"))),
    )
    return [_outcome(name, unit, {"value": value}, actual) for name, unit, value, actual in found]


def _outcome(name: str, unit: str, expected: Mapping[str, Any], actual: float | None) -> Outcome | None:
    """Build an outcome; None if a value is unknown. `expected` has the key value, and low and high if it is a range."""
    value, low, high = (number(expected.get(key)) for key in ("value", "low", "high"))
    if value is None or actual is None:
        return None
    return Outcome(name=name, unit=unit, expected=value, low=low, high=high, actual=actual)
