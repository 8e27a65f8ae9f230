"""Report unknown words on the command line, with the closest known ones."""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final

_MOST: Final = 3
"""Maximum number of words to suggest."""


def complaint(
    words: Sequence[str], contexts: Iterable[Any], flag_of: Mapping[str, str], everywhere: MutableMapping[str, Any]
) -> str:
    """Return a message about the first word that Invoke would not understand, with the closest known one; "" if there
    is none.

    An empty value of a flag is reported too, because it is probably an unset variable of the shell.
    `words` are the tasks and their flags, after `with_flags`. `contexts` are Invoke's parser contexts of the tasks.
    `flag_of` has each task's flag for positional words. `everywhere` are Invoke's own flags, which it also accepts
    after a task.
    """
    contexts = list(contexts)
    flags_of = {context.name: context.flags for context in contexts}
    inverse_flags_of = {context.name: context.inverse_flags for context in contexts}
    task, waiting, seen = "", "", set[str]()
    flags: Mapping[str, Any] = everywhere
    for word in words:
        if waiting and task and (word in flags_of[task] or word in inverse_flags_of[task]):  # Invoke begins that flag
            return _without_value(waiting, task)
        if waiting:
            if task and not word:
                return _without_value(waiting, task, "; its value is empty")
            waiting = ""
        elif word in flags_of:
            task, flags, seen = word, ChainMap(flags_of[word], everywhere), set()
        elif not word.startswith("-"):
            tasks = list(flags_of)
            return _surplus(word, task, tasks, flag_of.get(task, "")) if task else unknown_task(word, tasks)
        else:
            name, equals, value = word.partition("=")
            if name in flags:
                if task and equals and not flags[name].takes_value:
                    return f"deepcdk: `fab {task}` accepts no value for {name}\n  do: read `fab --help {task}`"
                if task and equals and not value:
                    return _without_value(name, task, "; its value is empty")
                if task and equals and (value in flags_of[task] or value in inverse_flags_of[task]):
                    return _without_value(name, task, f"; {value} is a flag")
                if task and flags[name].takes_value and flags[name].kind is not list:
                    if flags[name].name in seen:
                        return f"deepcdk: `fab {task}` accepts {name} only once\n  do: read `fab --help {task}`"
                    seen.add(flags[name].name)
                needs = flags[name].takes_value and not flags[name].optional
                waiting = name if needs and not equals else ""
            elif task and (name.startswith("--") or len(name) == 2) and not _is_negative(name, flags):
                return _unknown_flag(name, task, list(flags_of[task]))
    return _without_value(waiting, task) if waiting and task else ""


def _is_negative(name: str, flags: Mapping[str, Any]) -> bool:
    """Return whether a flag is --no-FLAG, which Invoke uses to switch off a flag that is on by default."""
    return name.startswith("--no-") and f"--{name.removeprefix('--no-')}" in flags


def _nearest(word: str, known: Sequence[str]) -> str:
    """Return `; did you mean WORDS?` with up to three known words that begin with this one, or else the most similar
    one; "" if there is none.
    """
    begun = sorted(each for each in known if each.startswith(word) and word.strip("-"))
    found = begun[:_MOST] or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def unknown_task(word: str, tasks: Sequence[str]) -> str:
    """Return the message about a word in place of a task, with the closest of the known `tasks`."""
    return f"deepcdk: unknown task {word!r}{_nearest(word, tasks)}\n  do: list the tasks with `fab --list`"


def _surplus(word: str, task: str, tasks: Sequence[str], flag: str) -> str:
    takes = f"accepts one word, the value of {flag}" if flag else "accepts no words without a flag"
    return (
        f"deepcdk: `fab {task}` {takes}: unexpected word {word!r}{_nearest(word, tasks)}\n"
        f"  do: read `fab --help {task}`"
    )


def _without_value(flag: str, task: str, why: str = "") -> str:
    return f"deepcdk: `fab {task}` needs a value after {flag}{why}\n  do: read `fab --help {task}`"


def _unknown_flag(name: str, task: str, flags: Sequence[str]) -> str:
    return f"deepcdk: `fab {task}` has no {name}{_nearest(name, flags)}\n  do: list its flags with `fab --help {task}`"
