"""Patience with throttled calls: more attempts than botocore makes of one that fails.

Where AWS does not answer, a few attempts are enough to know it. A throttled call was refused for what all clients of
the account call together, and will be taken within seconds to a minute.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

THROTTLED: Final = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
     "RequestThrottledException", "TooManyRequestsException", "SlowDown"}
)  # fmt: skip
"""Codes by which services say that a call was one too many ("Retry behavior", AWS SDKs reference guide)."""
ATTEMPTS: Final = 10
"""Of a throttled call; the pauses between them add up to 47 s on average."""
LONGEST_PAUSE_S: Final = 10.0


def keep_trying(client: Any) -> None:
    """Have a client go on with throttled calls after the attempts that botocore makes by itself."""
    client.meta.events.register_last("needs-retry", pause_s)


def pause_s(*, response: tuple[Any, Mapping[str, Any]] | None, attempts: int, **_event: Any) -> float | None:
    """Return the seconds until the next attempt; None leaves the decision to botocore. Its handler comes first."""
    if response is None or attempts >= ATTEMPTS or not is_throttled(response[1].get("Error", {})):
        return None
    return min(LONGEST_PAUSE_S, 2.0 ** (attempts - 1)) * random.uniform(0.5, 1.0)  # noqa: S311  # a pause


def is_throttled(error: Mapping[str, Any]) -> bool:
    """Return whether an error of AWS says that the call was one too many."""
    return error.get("Code") in THROTTLED
