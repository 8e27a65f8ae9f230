"""A run's states, its id, two of its files, the SNS topics to notify, and the grace period when it is stopped."""

from __future__ import annotations

import datetime
import re
from typing import Final

QUEUED: Final = "queued"
LIVE_STATES: Final = ("starting", "running")
FINAL_STATES: Final = ("succeeded", "failed", "stopped")
STATES: Final = (QUEUED, *LIVE_STATES, *FINAL_STATES)
LAST_TIME: Final = 253_402_300_799
"""The end of the year 9999, in seconds since 1970: the last date of Python's datetime."""
RECORD_FILE: Final = "record.json"
STOP_FILE: Final = "stop.json"
"""A user's request to stop the run."""
MAX_STOP_GRACE_S: Final = 86400.0
STOP_GRACE_S: Final = 30.0
"""Default seconds from SIGTERM to SIGKILL when a run is stopped, for a checkpoint."""
RUN_ID_RULE: Final = "1 to 128 characters a-z, 0-9, . and -, starting with a letter or digit"
GENERATED_ID_RULE: Final = "DATE-TIME-NAME-TOKEN, for example 20261120-121314-digits-ab12"
_TOPIC: Final = re.compile(r"arn:[a-z-]+:sns:([a-z0-9-]+):[0-9]{12}:[A-Za-z0-9_-]{1,256}(?:\.fifo)?")


def is_run_id(text: str) -> bool:
    """Return whether a text is a valid run id, which is also its directory's name and can never look like a flag."""
    return re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,127}", text) is not None


def make_run_id(now: datetime.datetime, recipe: str, token: str) -> str:
    """Return a run id that sorts by time: `20261120-121314-digits-ab12`. `token`: four random hexadecimal digits.

    Characters of `recipe` that an id must not contain are replaced by hyphens.
    """
    word = re.sub(r"[^a-z0-9]+", "-", recipe.lower()).strip("-") or "run"
    return f"{now:%Y%m%d-%H%M%S}-{word}-{token}"


def is_generated_id(text: str) -> bool:
    """Return whether a run id has the form of `make_run_id`. Few other directories have such a name."""
    return is_run_id(text) and re.fullmatch(r"[0-9]{8}-[0-9]{6}(-[a-z0-9]+)+-[0-9a-f]{4}", text) is not None


def topic_region(command: str) -> str:
    """Return the region of an SNS topic if a `--notify` command is a topic's ARN; "" for other commands."""
    found = _TOPIC.fullmatch(command)
    return found[1] if found else ""
