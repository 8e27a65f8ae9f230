"""The ARN of an SNS topic as a `--notify` command."""

from __future__ import annotations

import re
from typing import Final

_TOPIC: Final = re.compile(r"arn:[a-z-]+:sns:([a-z0-9-]+):[0-9]{12}:[A-Za-z0-9_-]{1,256}(?:\.fifo)?")


def topic_region(command: str) -> str:
    """Return the region of an SNS topic if a `--notify` command is a topic's ARN; "" for other commands."""
    found = _TOPIC.fullmatch(command)
    return found[1] if found else ""
