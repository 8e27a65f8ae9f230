"""Topics of SNS among what tells of a run: an ARN in place of a command."""

from __future__ import annotations

import re
from typing import Final

_TOPIC: Final = re.compile(r"arn:[a-z-]+:sns:([a-z0-9-]+):[0-9]{12}:[A-Za-z0-9_-]{1,256}(?:\.fifo)?")


def is_topic(command: str) -> bool:
    """Return whether this is the ARN of a topic."""
    return _TOPIC.fullmatch(command) is not None


def region_of(topic: str) -> str:
    """Return the region of a topic. Raises ValueError for what is no topic's ARN."""
    if (found := _TOPIC.fullmatch(topic)) is None:
        raise ValueError(f"not the ARN of a topic: {topic!r:.100}")
    return found[1]
