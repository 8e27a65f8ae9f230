"""What CloudWatch refuses of metric data: periods that it does not keep, and timestamps too far off."""

from __future__ import annotations

import datetime
from typing import Any, Final

from moto.cloudwatch.exceptions import InvalidParameterValue
from moto.cloudwatch.responses import CloudWatchResponse

from localcloud.api.monkeypatch import check_first

_SHORT_PERIODS: Final = (1, 5, 10, 20, 30)
_PAST: Final = datetime.timedelta(weeks=2)
_FUTURE: Final = datetime.timedelta(hours=2)


def apply() -> None:
    """Correct moto."""
    check_first(CloudWatchResponse, "get_metric_statistics", _check_period)
    check_first(CloudWatchResponse, "put_metric_data", _check_times)


def _check_period(responses: Any) -> None:
    period = responses._get_int_param("Period")
    if period not in _SHORT_PERIODS and (period <= 0 or period % 60):
        # The API reference has the rule; no text of the error was found.
        raise InvalidParameterValue(
            f"The parameter Period must be {', '.join(map(str, _SHORT_PERIODS))} or a multiple of 60, and is {period}."
        )


def _check_times(responses: Any) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for number, datum in enumerate(responses._get_param("MetricData", []), start=1):
        given = datum.get("Timestamp")
        if given is None:
            continue
        moment = given if given.tzinfo else given.replace(tzinfo=datetime.UTC)
        far = "two weeks in the past" if moment < now - _PAST else "two hours in the future"
        if not now - _PAST <= moment <= now + _FUTURE:
            raise InvalidParameterValue(
                f"The parameter MetricData.member.{number}.Timestamp must specify a time no more than {far}."
            )
