"""The id of a run: its form, and the ids that are generated."""

from __future__ import annotations

import datetime
import re
from typing import Final

RUN_ID_RULE: Final = "1 to 128 characters a-z, 0-9, . and -, starting with a letter or digit"
GENERATED_ID_RULE: Final = "DATE-TIME-NAME-TOKEN, for example 20261120-121314-digits-ab12"


def is_run_id(text: str) -> bool:
    """Return whether a text is a valid run id, which is also its directory's name and can never look like a flag."""
    return re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,127}", text) is not None


def make_run_id(now: datetime.datetime, recipe: str, token: str) -> str:
    """Return a run id that sorts by time: `20261120-121314-digits-ab12`. `token`: four random hexadecimal digits.

    `now` must be in UTC. Characters of `recipe` that an id must not contain are replaced by hyphens. It may have at
    most 107 characters.
    """
    word = re.sub(r"[^a-z0-9]+", "-", recipe.lower()).strip("-") or "run"
    return f"{now:%Y%m%d-%H%M%S}-{word}-{token}"


def is_generated_id(text: str) -> bool:
    """Return whether a run id has the form of `make_run_id`. Few other directories have such a name."""
    return is_run_id(text) and re.fullmatch(r"[0-9]{8}-[0-9]{6}(-[a-z0-9]+)+-[0-9a-f]{4}", text) is not None
