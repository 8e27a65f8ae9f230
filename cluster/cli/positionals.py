"""Words without a flag: `fab ssh worker3` for `fab ssh --node worker3`.

Invoke knows positional arguments only as ones that must be given. Here they may be left out, so the flag is put in
before Invoke parses the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def with_flags(words: Sequence[str], contexts: Iterable[Any], flag_of: Mapping[str, str]) -> list[str]:
    """Put a task's `flag_of` before its one word without a flag; `contexts` are Invoke's: which flags take values.

    A flag that may be repeated is put before each such word. A word that is a task's name begins the next task. What
    has a flag already, or is a second word, is left as it is, for Invoke to refuse.
    """
    flags_of = {context.name: context.flags for context in contexts}
    found: list[str] = []
    flag, flags, valued = "", {}, False
    for word in words:
        if valued:
            valued = False
        elif word in flags_of:
            flag, flags = flag_of.get(word, ""), flags_of[word]
        elif word.startswith("-"):
            name, equals, _ = word.partition("=")
            valued = name in flags and flags[name].takes_value and not equals
            if name == flag and not _is_repeated(flags, flag):
                flag = ""
        elif flag:
            found.append(flag)
            if not _is_repeated(flags, flag):
                flag = ""
        found.append(word)
    return found


def _is_repeated(flags: Mapping[str, Any], flag: str) -> bool:
    """Return whether Invoke collects the values of a flag in a list."""
    return flag in flags and flags[flag].kind is list
