"""The text of TensorFlow's errors for messages. This module does not import TensorFlow."""

from __future__ import annotations

import re
from typing import Final

_NODE: Final = re.compile(r"\{\{[^{}]*\}\} ?|\s*\[Op:\w+\].*")
"""Names of nodes and functions in a graph, such as `{{function_node __wrapped__DecodePng_device_/job:localhost}}`."""


def first_line(error: Exception) -> str:
    """Return the first line of an error's text without TensorFlow's names of nodes, or else the error's type."""
    line, *_ = str(error).strip().splitlines() or [""]
    return _NODE.sub("", line).strip() or type(error).__name__
