"""The rules for what a node is called and what it tells of itself: all that comes from another machine must pass them.

The nodes file on the master is made from the registry on the shared file system, in which every worker can write. From
there these texts reach SSH's configuration, shells' command lines and file names, so each rule allows plain characters
only. `stacks/scripts/registry.sh` applies the same patterns; a test compares the two.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

MOST_SLOTS: Final = 1024
SHOWN: Final = 60
"""Characters of a refused value that a message shows."""
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: the whole text must match the pattern, which POSIX's extended syntax reads alike."""

    pattern: str
    words: str
    """What the text must be, for a message."""

    def fits(self, text: str) -> bool:
        """Return whether a text follows the rule."""
        return re.fullmatch(self.pattern, text) is not None


RULES: Final = {
    "name": Rule(
        pattern="deeplearning-(master|worker[1-9][0-9]{0,3})",
        words="deeplearning-master or deeplearning-workerN, N from 1 to 9999",
    ),
    "address": Rule(pattern=rf"({_OCTET}\.){{3}}{_OCTET}", words="an IPv4 address such as 10.0.64.5"),
    "instance_id": Rule(pattern="i-([0-9a-f]{8}|[0-9a-f]{17})", words="i- and 8 or 17 hexadecimal digits"),
    "slots": Rule(
        pattern="[1-9][0-9]{0,2}|10([01][0-9]|2[0-4])",
        words=f"a whole number from 1 to {MOST_SLOTS}",
    ),
    "interface": Rule(
        pattern="[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}",
        words="a network interface: 1 to 15 letters, digits, _, . and -, the first neither . nor -",
    ),
    "zone": Rule(
        pattern="[a-z]{2,8}(-[a-z]{2,12}){1,3}-[0-9]{1,2}([a-z]|(-[a-z0-9]{1,8}){1,4})",
        words="a zone such as us-east-1a or us-west-2-lax-1a",
    ),
}
"""By the fields of `agent.spec.run.Node`."""


def broken(field: str, value: object) -> str:
    """Return why a field cannot have this value, as `address = 'x': must be ...`; "" where it can.

    The value appears in ASCII, with control characters escaped, and cut: the message goes to terminals and logs.
    """
    rule = RULES[field]
    # True is an int to Python, and "4" no number of slots.
    text = str(value) if type(value) is (int if field == "slots" else str) else None
    return "" if text is not None and rule.fits(text) else f"{field} = {escaped(value)}: must be {rule.words}"


def escaped(value: object, most: int = SHOWN) -> str:
    """Return a foreign value as it may be printed: quoted, in ASCII, cut after `most` characters."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[:most]}..."
