"""The words of --entry: how they are split, which of them is the script, and which commands nodes cannot start."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.spec.launchers import PLACEHOLDERS
from cluster.errors import UsageError
from cluster.programs.entry_starts import SHELLS
from cluster.terminal.paths import expanded, is_file, resolved

MAX_WORD_BYTES: Final = 128 * 1024 - 1
"""Maximum size of one argument or NAME=VALUE in Linux, without the terminating byte."""
PYTHONS: Final = ("python", "python3")
_OPERATOR: Final = re.compile(
    r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|"""
    r"""((?<=\s)(?:&&|\|\||\|)(?=\s)|;(?=\s)|(?<=\s)&$|(?<=\s)[0-9&]?(?:>>?|<)\S*|\$(?:\w+|[{(])|`)""",
    re.DOTALL,
)
"""Quoted parts of an entry; group 1 is syntax that only a shell understands."""
_SHELL_COMMANDS: Final = (
    *("cd", "source", ".", "export", "unset", "set", "exec", "eval", "trap", "ulimit", "umask", "alias"),
    *("if", "for", "while", "until", "case", "{", "("),
)


def split_entry(entry: str) -> list[str]:
    """Split --entry as a shell would. Raises UsageError for an open quote, and for shell syntax outside of quotes.

    Shell syntax is what only a shell interprets, such as `&&`, `>` or `$NAME`.
    """
    try:
        words = shlex.split(entry)
    except ValueError:
        rule = "cannot be split into words, because it has an open quote or ends with a backslash"
        raise UsageError("--entry", entry, rule) from None
    if operator := next((found[1] for found in _OPERATOR.finditer(entry) if found[1]), ""):
        name = operator.removeprefix("$").lower()
        instead = f"{{{name}}}, " if name in PLACEHOLDERS else ""
        rule = f"has {operator}, which only a shell interprets: give {instead}sh -c '...', a script, or quote it"
        raise UsageError("--entry", entry, rule)
    return words


def check_word(flag: str, word: str) -> None:
    """Raise UsageError, which names `flag`, for a word that cannot be passed to a program as an argument.

    Such a word contains a NUL character, is not UTF-8, or has more than MAX_WORD_BYTES bytes.
    """
    if "\0" in word:
        raise UsageError(flag, None, "has a NUL character, which no program can receive; remove it")
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(flag, None, "has a word that is not UTF-8; encode it as UTF-8") from None
    if (size := len(os.fsencode(word))) > MAX_WORD_BYTES:
        rule = f"has a word of {size:,} bytes, but Linux allows at most {MAX_WORD_BYTES:,}; pass a file instead"
        raise UsageError(flag, None, rule)


def why_nodes_cannot_start(first: str, rest: Sequence[str]) -> str:
    """Return why nodes cannot start an entry, and what to give instead; "" for no known mistake.

    The text is the end of a sentence about `first`, the first word of the entry. `rest` are the other words.
    """
    if re.match(r"[A-Za-z_]\w*=", first):
        return "sets a variable, which needs a shell or `env`: put `env` before it, or give --env NAME=VALUE"
    if first in _SHELL_COMMANDS:
        return "is a command of the shell: give sh -c '...', or a script"
    flags = rest if first in (*PYTHONS, *SHELLS) else [first, *rest]
    if all(re.fullmatch("-[a-gi-zA-UW-Z]*", word) for word in flags):  # -h and -V print something, and end
        return "starts no program: name the program in the same --entry"
    if first in SHELLS and rest[2:] and re.fullmatch(r"-\w*c", rest[0]) and re.fullmatch(r"[\w./-]+", rest[1]):
        return f"runs only {rest[1]}: give {first} {rest[0]} {shlex.quote(shlex.join(rest[1:]))}"
    if first in ("uv", "poetry", "conda", "mamba", "micromamba", "pipenv", "pdm") and rest[:1] == ["run"]:
        return "is not on the nodes, which install the packages themselves: give only the command after `run`"
    if first.endswith(".ipynb"):
        convert = f"convert it with `jupyter nbconvert --to script {shlex.quote(first)}`"
        packages = "name the packages of its `pip install` cells in requirements.txt"
        return f"is a notebook: {convert}, and {packages}; or run it with papermill (docs/scripts.md)"
    return ""


def located_file(flag: str, given: str, directory: Path) -> str:
    """Return a file's path relative to the program's directory, or the absolute path of a file elsewhere.

    `given` is the path as typed. If it is relative, it is looked up in the program's directory, then in the current
    one. Raises UsageError, which names `flag`, if neither has the file, or if the path is ambiguous: both have such a
    file, and the current directory is inside of the program's.
    """
    typed = expanded(given)
    both = [place / typed for place in (directory, resolved("."))]
    if both[1].is_relative_to(directory) and all(map(is_file, both)) and not both[0].samefile(both[1]):
        raise UsageError(flag, given, f"matches two files, {both[0]} and {both[1]}; give the absolute path")
    if not typed.is_absolute() and ".." not in typed.parts and is_file(directory / typed):
        return typed.as_posix()
    places = [directory / typed, Path.cwd() / typed]
    found = next((resolved(str(place)) for place in places if is_file(place)), None)
    if found is None:
        raise UsageError(flag, given, f"is not a file in {directory} or in the current directory")
    return found.relative_to(directory).as_posix() if found.is_relative_to(directory) else str(found)


def with_located_script(words: Sequence[str], directory: Path) -> list[str]:
    """Return the words of --entry with the script's path made relative to the program's directory.

    The script is a Python file, or another existing file given by a path with `/`, which gets the prefix `./` if it was
    relative to the current directory. Other commands are returned unchanged. Raises UsageError for a missing Python
    file, and for a script outside of the program's directory.
    """
    own = without_python(words)
    word, at = own[0] if own else "", len(words) - len(own)
    if not word.endswith(".py"):
        place = Path.cwd() / expanded(word)
        if "/" not in word or not is_file(place) or (is_file(directory / word) and not Path(word).is_absolute()):
            return list(words)  # a command, a correct path, or a missing file, which is reported elsewhere
        if Path(word).is_absolute() and not resolved(word).is_relative_to(directory):
            return list(words)  # a command on the nodes, such as /usr/bin/env
    script = located_file("--entry", word, directory)
    if Path(script).is_absolute():
        rule = (
            f"is {script}, outside of the uploaded directory {directory}; give a --payload directory that contains both"
        )
        raise UsageError("--entry", word, rule)
    return [*words[:at], script if word.endswith(".py") else f"./{script}", *words[at + 1 :]]


def without_python(entry: Sequence[str]) -> tuple[str, ...]:
    """Return an entry's words without Python and its own flags, such as `-u`. `-m MODULE` and `-c TEXT` are kept."""
    words = list(entry)
    if words and words[0] in PYTHONS and words[1:]:
        del words[0]
        while words[1:] and (flag := re.match(r"-[bBdEiIOPqRsSuvx]*([WX]?)(.*)", words[0])) and words[0] != "-":
            if flag.group(2) and not flag.group(1):
                break  # -m MODULE, -c TEXT
            del words[: 2 if flag.group(1) and not flag.group(2) else 1]
    return tuple(words) or tuple(entry)
