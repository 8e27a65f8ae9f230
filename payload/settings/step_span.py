"""Steps of a run that are profiled. Standard library only."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from payload.settings.rules import SettingError

_SPAN: Final = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSpan:
    """Count steps from 1 since the beginning of the run, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> StepSpan | None:
        """Parse FIRST-LAST or one number; return None for "". Raises SettingError."""
        if not text:
            return None
        found = _SPAN.fullmatch(text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last:
            rule = "must be FIRST-LAST, steps counted from 1, as 20-25"
            raise SettingError("--profile-steps", text, rule)
        return cls(first=first, last=last)
