"""What Horovod, Gloo and NCCL raise on a healthy rank when another one is gone. Standard library only."""

from __future__ import annotations

import re
from typing import Final

_LOST: Final = re.compile(
    r"Horovod has been shut down|[Cc]onnection (?:closed|reset|refused)[^\n.]*|Timed out waiting[^\n.]*|"
    r"Broken pipe|(?:Gloo|NCCL)[^\n]*(?:abort|timed? ?out|closed)[^\n.]*"
)
_RAISED: Final = ("HorovodInternalError", "OpError")
"""Horovod's own error, and the one of which all of TensorFlow's are."""


def lost_rank(error: BaseException) -> str:
    """Return, in Horovod's own words, that another rank is gone; "" for an error that says nothing of the kind."""
    names = {each.__name__ for each in type(error).__mro__}
    found = _LOST.search(str(error)) if names.intersection(_RAISED) else None
    return found[0] if found else ""
