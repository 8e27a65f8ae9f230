"""Words without a flag: `fab ssh worker3` for `fab ssh --node worker3`.

Invoke knows positional arguments only as ones that must be given. Here they may be left out, so the flag is put in
before Invoke parses the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from invoke.collection import Collection

FLAGS: Final = {
    "scale": "--nodes",
    "replace": "--node",
    "ssh": "--node",
    "notebook": "--node",
    "stage-data": "--source",
    "recipes": "--recipe",
    **dict.fromkeys(("attach", "fetch", "logs", "resume", "rm", "show", "stop", "tensorboard"), "--run"),
}
"""The flag that a task's one word without a flag stands for."""


def contexts_of(collection: Collection) -> list[Any]:
    """Return Invoke's contexts of the tasks, and leave the tasks their help, which Invoke takes out of them."""
    helps = {name: dict(task.help) for name, task in collection.tasks.items()}
    contexts = collection.to_contexts()
    for name, task in collection.tasks.items():
        task.help = helps[name]
    return list(contexts)


def with_flags(words: Sequence[str], contexts: Iterable[Any]) -> list[str]:
    """Put the flag before each such word; `contexts` are Invoke's, and tell which flags take values.

    A word that is a task's name begins the next task. What has a flag already, or is a second word, is left as it is,
    for Invoke to refuse.
    """
    flags_of = {context.name: context.flags for context in contexts}
    found: list[str] = []
    flag, flags, valued = "", {}, False
    for word in words:
        if valued:
            valued = False
        elif word in flags_of:
            flag, flags = FLAGS.get(word, ""), flags_of[word]
        elif word.startswith("-"):
            name, equals, _ = word.partition("=")
            valued = name in flags and flags[name].takes_value and not equals
            if name == flag:
                flag = ""
        elif flag:
            found.append(flag)
            flag = ""
        found.append(word)
    return found
