"""The words of a command line: those without a flag get theirs, and one that means nothing is reported.

Invoke knows positional arguments only as required ones. Here they are optional (`fab ssh worker3` for `fab ssh --node
worker3`), so the flag is put in before Invoke parses the words.
"""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final

_MOST: Final = 3
"""How many words a question names."""


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


def complaint(
    words: Sequence[str], contexts: Iterable[Any], flag_of: Mapping[str, str], everywhere: MutableMapping[str, Any]
) -> str:
    """Return which word Invoke would not understand, and which is nearest; "" where it understands all.

    `words` are the tasks and their flags, words without a flag with theirs already (`flag_of` each task); `contexts`
    are Invoke's for the tasks; `everywhere` are its own flags, which it takes behind a task too.
    """
    contexts = list(contexts)
    flags_of = {context.name: context.flags for context in contexts}
    inverse_flags_of = {context.name: context.inverse_flags for context in contexts}
    task, waiting = "", ""
    flags: Mapping[str, Any] = everywhere
    for word in words:
        if waiting and task and (word in flags_of[task] or word in inverse_flags_of[task]):  # Invoke begins that flag
            return _without_value(waiting, task)
        if waiting:
            waiting = ""
        elif word in flags_of:
            task, flags = word, ChainMap(flags_of[word], everywhere)
        elif not word.startswith("-"):
            tasks = list(flags_of)
            return _surplus(word, task, tasks, flag_of.get(task, "")) if task else _unknown_task(word, tasks)
        else:
            name, equals, _ = word.partition("=")
            if name in flags:
                needs = flags[name].takes_value and not flags[name].optional
                waiting = name if needs and not equals else ""
            elif task and (name.startswith("--") or len(name) == 2) and not _is_negative(name, flags):
                return _unknown_flag(name, task, list(flags_of[task]))
    return _without_value(waiting, task) if waiting and task else ""


def _is_negative(name: str, flags: Mapping[str, Any]) -> bool:
    """Return whether this is --no-FLAG, by which Invoke switches off what is on by default."""
    return name.startswith("--no-") and f"--{name.removeprefix('--no-')}" in flags


def _nearest(word: str, known: Sequence[str]) -> str:
    """Return a question that names the word or words that begin with this one, else the most similar; "" without."""
    begun = sorted(each for each in known if each.startswith(word) and word.strip("-"))
    found = begun[:_MOST] or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _unknown_task(word: str, tasks: Sequence[str]) -> str:
    return f"deepcdk: there is no task {word!r}{_nearest(word, tasks)}\n  do: `fab --list` lists the tasks"


def _surplus(word: str, task: str, tasks: Sequence[str], flag: str) -> str:
    takes = f"takes one word, as {flag}" if flag else "takes no word without a flag"
    return (
        f"deepcdk: `fab {task}` {takes}: {word!r} is too much{_nearest(word, tasks)}\n"
        f"  do: `fab --help {task}` explains it"
    )


def _without_value(flag: str, task: str) -> str:
    return f"deepcdk: `fab {task}` needs a value behind {flag}\n  do: `fab --help {task}` explains it"


def _unknown_flag(name: str, task: str, flags: Sequence[str]) -> str:
    return f"deepcdk: `fab {task}` has no {name}{_nearest(name, flags)}\n  do: `fab --help {task}` lists its flags"
