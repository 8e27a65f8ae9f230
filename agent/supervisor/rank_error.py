"""Find a rank's own error in the log of a run: its last traceback, or the line with which it exited."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final

from agent.spec.long_lines import shortened

_RANK_MARK: Final = re.compile(r"^\[rank\d{1,9}\]: ?")
"""Prefix that PyTorch prints before each line of a traceback."""
_GROUP_MARK: Final = re.compile(r"^ {2,40}[+|] ")
"""Prefix that Python prints before each line of an exception group's traceback."""
_BEGINNINGS: Final = ("Traceback (most recent call last):", "Exception Group Traceback (most recent call last):")
_OF_LAUNCHERS: Final = re.compile(
    r"(?:subprocess\.)?CalledProcessError|(?:torch\.distributed\.elastic\.[a-z_.]{1,99}\.)?(?:ChildFailedError|SignalException)"
)
_OF_AUTOGRAPH: Final = ": in user code:"
"""End of the first line of an exception in a `tf.function`. The traceback and the exception itself follow, indented."""
_HINT: Final = "deepcdk: "
"""Prefix of an explanation after a traceback (`agent.launch.program_hooks`)."""
_MAX_ERROR: Final = 300
_ERROR_STATUSES: Final = (1, 2)
"""Exit statuses of programs that print a reason: Python's `sys.exit("text")`, and argparse."""


def describe(rank: int, log: str, status: int) -> str:
    """Return the error of a rank that exited with `status`, to append to a sentence.

    `log` is the output of one attempt. The error is its last exception or, with the status 1 or 2, its last line if
    that is on stderr. Return "" if the log has neither, or if a signal killed the rank.
    """
    if status > 0 and (text := exception_of(rank, log)):
        return f": {text}"
    if status in _ERROR_STATUSES and (text := last_error_line(rank, log)):
        return f"; its last line: {text}"
    return ""


def exception_of(rank: int, log: str) -> str:
    """Return the exception in the last traceback of a rank, as `RuntimeError: ...`; "" without one.

    `log` is the output of one attempt. If deepcdk printed an explanation after it, the explanation and its remedy are
    added. Programs that start another program, such as `accelerate launch`, print their own traceback when the other
    program fails. Such a traceback is ignored if there is an earlier one.
    """
    mark, found = f"[{rank}]<stderr>:", ""
    own = [line.removeprefix(mark) for line in log.splitlines() if line.startswith(mark)]
    lines = [_GROUP_MARK.sub("", _RANK_MARK.sub("", line)) for line in own]
    is_open = False
    for number, text in enumerate(lines):
        if text.startswith(_BEGINNINGS):
            is_open = True
        elif is_open and text and not text.startswith(" "):
            is_open = False
            if not (found and _OF_LAUNCHERS.match(text)):
                found = shortened(_complete(lines, number), _MAX_ERROR)
        elif found and text.startswith(_HINT):
            remedy = [line.strip() for line in lines[number + 1 : number + 2] if line.startswith("  do: ")]
            found = "; ".join([found, shortened(text.removeprefix(_HINT), _MAX_ERROR), *remedy]).rstrip(";")
    return found


def _complete(lines: Sequence[str], number: int) -> str:
    """Return line `number`, the first of an exception. If it ends with a colon, append the next indented line.

    For an exception in a `tf.function`, return only the last indented line, which is the exception itself.
    """
    text = lines[number]
    if not text.endswith(":"):
        return text
    after = (lines[index] for index in range(number + 1, len(lines)))
    indented = itertools.takewhile(lambda line: not line or line[0] in " \t", after)
    more = [line.strip() for line in indented if line.strip()]
    if not more:
        return text
    return more[-1] if text.endswith(_OF_AUTOGRAPH) else f"{text} {more[0]}"


def last_error_line(rank: int, log: str) -> str:
    """Return a rank's last line if it is on stderr, as with `sys.exit("text")` and argparse; "" otherwise.

    `log` is the output of one attempt. Lines without letters and digits are skipped. A line of deepcdk about the
    placement does not count.
    """
    own = [line for line in log.splitlines() if line.startswith(f"[{rank}]<std")]
    lines = [line for line in own if any(map(str.isalnum, line.partition(":")[2]))]
    stream, _, text = lines[-1].partition(":") if lines else ("", "", "")
    is_own = stream.endswith("<stderr>") and not text.startswith("[placement] ")
    return shortened(text.strip(), _MAX_ERROR) if is_own else ""
