"""Shell completion: a script for each shell, and the words that can come next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cluster.cli import task_modules

_BASH: Final = """\
_deepcdk_complete() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$("$1" --complete -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)" -- "${2#=}"))
}
complete -o default -F _deepcdk_complete deepcdk fab
"""
_ZSH: Final = """\
_deepcdk_complete() {
    local -a found
    found=(${(f)"$("${words[1]}" --complete -- "${(@)words[1,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
compdef _deepcdk_complete deepcdk fab
"""
_FISH: Final = """\
function __deepcdk_complete
    set -l before (commandline --cut-at-cursor --current-process --tokenize)
    set -l current (commandline --cut-at-cursor --current-token)
    set -l found ($before[1] --complete -- $before "$current" 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete --command deepcdk --no-files --arguments '(__deepcdk_complete)'
complete --command fab --no-files --arguments '(__deepcdk_complete)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""Scripts that run `deepcdk --complete -- WORDS` to get the possible next words. The shell keeps the matching ones."""


def next_words(words: Sequence[str], everywhere: Mapping[str, Any]) -> list[str]:
    """Return the words that can be in the place of the last one of `words`. `everywhere` are Fabric's own flags.

    They need not begin with the last word: the shell selects those that do. Returns [] if any text is allowed, such as
    a path. The shell then completes file names.
    """
    *before, last = [word for word in words if word != "="] or [""]  # bash splits --run=ID into three words
    names = [name for names in task_modules.MODULES.values() for name in names]
    named = [word for word in before if word in names]
    tasks = task_modules.collection(named) if named else None
    flags_of = {context.name: context.flags for context in tasks.to_contexts()} if tasks else {}
    task, valued, flags = "", "", everywhere
    for word in before:
        if valued:
            valued = ""
        elif word == "--":
            return []
        elif word in flags_of:
            task, flags = word, flags_of[word]
        elif word.startswith("-"):
            flag, equals, _ = word.partition("=")
            valued = flag if flag in flags and flags[flag].takes_value and not equals else ""
    if valued:
        return _values(valued)
    if last.startswith("-"):
        flag, equals, _ = last.partition("=")
        return [f"{flag}={value}" for value in _values(flag)] if equals else sorted(f for f in flags if f[:2] == "--")
    return _values(task_modules.flags_of_words(tasks).get(task, "")) if tasks and task else sorted(names)


def _values(flag: str) -> list[str]:
    """Return the known values of a flag, without asking AWS; [] for any other flag."""
    return _VALUES[flag]() if flag in _VALUES else []


def _runs() -> list[str]:
    """Return the ids of the runs that were fetched to this directory, newest first."""
    from agent.spec.run_id import is_run_id
    from cluster.report.run_files import RUNS

    found = [path.name for path in RUNS.iterdir() if is_run_id(path.name)] if RUNS.is_dir() else []
    return sorted(found, reverse=True)


def _recipes() -> list[str]:
    from payload.recipes import RECIPES

    return [each.name for each in RECIPES]


def _launchers() -> list[str]:
    from agent.spec.launchers import LAUNCHERS

    return list(LAUNCHERS)


_VALUES: Final[Mapping[str, Callable[[], list[str]]]] = {
    "--run": _runs,
    "--recipe": _recipes,
    "--launcher": _launchers,
}
