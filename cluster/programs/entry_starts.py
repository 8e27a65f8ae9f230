"""What the entry of a program starts: Python files, installed modules, shell texts and launchers."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cluster.terminal.paths import is_file

TORCHRUN_FLAGS: Final = ("nnodes",), ("node_rank", "rdzv_endpoint", "rdzv_backend")
_ACCELERATE_FLAGS: Final = ("num_machines",), ("machine_rank", "rdzv_backend")
FABRIC_FLAGS: Final = ("num_nodes",), ("node_rank",)
LAUNCHERS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch", "tune"), TORCHRUN_FLAGS),
    **dict.fromkeys(("accelerate", "accelerate-launch", "accelerate.commands.launch"), _ACCELERATE_FLAGS),
    **dict.fromkeys(("fabric", "lightning", "lightning.fabric"), FABRIC_FLAGS),
    **dict.fromkeys(("composer", "composer.cli.launcher"), (("world_size",), ("node_rank",))),
    "deepspeed": (("hostfile", "H", "num_nodes", "node_rank"), ()),
    "colossalai": (("hostfile", "host", "H"), ()),
    **dict.fromkeys(("horovodrun", "mpirun", "mpiexec"), ((), ())),
}
"""Launchers that an entry may start itself, each with its flags for several nodes and for the node's position.

Without a flag from each group, the launcher starts ranks on one node only. `_` in a flag also stands for `-`.
"""
_VERBS: Final = {
    "accelerate": ("launch", "test"),
    **dict.fromkeys(("fabric", "lightning", "colossalai", "tune"), ("run",)),
}
"""Subcommands with which a multi-purpose program acts as a launcher."""
_BEFORE: Final = frozenset(
    (
        *("env", "exec", "command", "time", "nohup", "nice", "ionice", "numactl", "taskset", "timeout", "stdbuf"),
        *("setsid", "sudo", "srun", "if", "elif", "then", "else", "do", "while", "until", "!", "{", "$"),
    )
)
"""Shell words that are followed by the command that they start."""
_RUNNERS: Final = ("uv", "poetry", "conda", "mamba", "micromamba", "pipenv", "pdm", "pixi", "rye", "hatch")
"""Programs with a `run` subcommand that starts the command after it."""
_ARGUMENT: Final = re.compile(r"\$(?:[@*1]|\{[@*1][^}]*\})")
"""A use of a shell text's arguments, such as `$@` or `$1`."""
_MAX_TEXT_BYTES: Final = 1_000_000
SHELLS: Final = ("sh", "bash", "dash", "zsh", "ksh")
_PYTHON: Final = re.compile(r"python[0-9.]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """Something that an entry starts: a Python file or text, an installed module, a shell text or a launcher."""

    kind: str
    """python, module, shell or launcher."""
    name: str
    """Name to show in a message: a path within the program, a command such as `sh -c`, or the dotted name of a module.
    """
    path: Path | None = None
    """The file, if it is one of the program's."""
    text: str = ""
    """Python text after `-c`, or the text of a shell or shell script."""
    words: tuple[str, ...] = ()
    """The words after a launcher's name; () for other kinds."""
    roots: tuple[Path, ...] = ()
    """Directories where Python looks for the program's own modules."""
    module: str = ""
    """Top-level name of a module started with -m."""


def starts(directory: Path, words: Sequence[str]) -> Iterator[Start]:
    """Yield what an entry starts, directly or through shells, shell scripts, `env` and launchers. Nothing is run.

    `words` are the entry's words. Their files are looked up in `directory`.
    """
    yield from _starts(words, directory, [directory], set())


def _starts(words: Sequence[str], directory: Path, bases: Sequence[Path], seen: set[Path]) -> Iterator[Start]:
    """Yield every program that one command starts, directly or through another one. `words` are the command's words.

    `bases` are the directories in which to look for files. Shell scripts that are read are added to `seen`.
    """
    before, command = "", _command(words)
    for index, word in enumerate(words):
        name, rest = Path(word).name, words[index + 1 :]
        if index == command and (path := _console_script(directory, bases, word)):
            yield Start(kind="python", name=shown_path(path, directory), path=path)
            return
        if (
            index == command
            and name in LAUNCHERS
            and "." not in name
            and _is_launcher(name, rest)
            and not ("/" in word and find_file(word, bases))
        ):
            yield Start(kind="launcher", name=name, words=tuple(rest))
        elif word in ("-m", "--module") and rest and re.fullmatch(r"[A-Za-z_][\w.]*", rest[0]):
            path = _module_file(directory, bases, rest[0])
            if path is None and rest[0] in LAUNCHERS and _is_launcher(rest[0], rest[1:]):
                yield Start(kind="launcher", name=rest[0], words=tuple(rest[1:]))
            else:
                yield Start(
                    kind="python" if path else "module",
                    name=shown_path(path, directory) or rest[0],
                    path=path,
                    roots=tuple(bases),
                    module=rest[0].partition(".")[0],
                )
                if path is None:  # it may start the following words, as cProfile, pdb or coverage do
                    yield from _starts(rest[1:], directory, bases, seen)
                return
        elif re.fullmatch(r"-[a-z]*c", word) and rest and (before in SHELLS or _PYTHON.fullmatch(before)):
            if before in SHELLS:
                yield Start(kind="shell", name=f"{before} -c", text=rest[0])
                yield from _commands_start(rest[0], rest[2:], directory, bases, seen)
            else:
                yield Start(kind="python", name=f"{before} -c", text=rest[0], roots=tuple(bases))
            return
        elif path := find_file(word, bases):
            kind = _script_kind(path)
            if kind == "python":
                yield Start(kind="python", name=shown_path(path, directory), path=path, roots=(path.parent,))
            elif kind == "shell" and path not in seen:
                seen.add(path)
                text = path.read_text(encoding="utf-8", errors="replace")
                yield Start(kind="shell", name=shown_path(path, directory), path=path, text=text)
                yield from _commands_start(text, rest, directory, bases, seen)
            if kind:
                return
        if not word.startswith("-"):
            before = name


def _is_launcher(name: str, rest: Sequence[str]) -> bool:
    """Return whether a program from LAUNCHERS starts ranks, by the words `rest` after its name.

    `accelerate launch` does. `accelerate config` does not, and neither does a launcher without words.
    """
    return bool(rest) and rest[0] in _VERBS.get(name, rest[:1])


def _command(words: Sequence[str]) -> int:
    """Return the index of the word that names the command, after assignments, `env`, `exec`, `numactl`, `uv run` and
    similar prefixes. Returns `len(words)` if there is no such word.
    """
    index = 0
    while index < len(words):
        word, following = words[index], next(iter(words[index + 1 :]), "")
        name = Path(word).name
        if name == "command" and following.startswith("-"):
            break  # `command -v` prints the path of a command
        if name in _RUNNERS and following == "run":
            index += 2
        elif name in _BEFORE or re.match(r"\w+=", word) or (index and re.fullmatch(r"[\d.,]+[smhd]?|--", word)):
            index += 1
        elif index and word.startswith("-"):
            is_command = Path(following).name in (*LAUNCHERS, *SHELLS) or _PYTHON.fullmatch(Path(following).name)
            index += 1 if "=" in word or is_command or following.startswith("-") else 2
        else:
            break
    return index


def _console_script(directory: Path, bases: Sequence[Path], word: str) -> Path | None:
    """Return the module file of a console script that pyproject.toml, setup.cfg or setup.py declares under the name
    `word`.

    The module is looked up in `bases`, then in the `src` of `directory`. Returns None if no script has this name, or if
    its module is not found.
    """
    target: object = None
    try:
        found = tomllib.loads(short_text(directory / "pyproject.toml"))
        places = (found.get("project", {}), found.get("tool", {}).get("poetry", {}))
        target = {name: text for place in places for name, text in place.get("scripts", {}).items()}.get(word)
    except (ValueError, AttributeError, RecursionError):
        pass
    if not target and re.fullmatch(r"[\w.-]+", word):
        command = re.compile(rf"(?:^|[\[,])[\s'\"]*{re.escape(word)}\s*=\s*([\w.]+):", re.MULTILINE)
        target = next(
            (each[1] for name in ("setup.cfg", "setup.py") if (each := command.search(short_text(directory / name)))),
            "",
        )
    module = target.partition(":")[0].strip() if isinstance(target, str) else ""
    if not re.fullmatch(r"[A-Za-z_][\w.]*", module):
        return None
    return _module_file(directory, bases, module, "__init__.py")


def short_text(path: Path) -> str:
    """Return the text of a file; "" if it cannot be read or is larger than 1 MB. Invalid UTF-8 is replaced."""
    try:
        if path.stat().st_size > _MAX_TEXT_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _commands_start(
    text: str, words: Sequence[str], directory: Path, bases: Sequence[Path], seen: set[Path]
) -> Iterator[Start]:
    """Yield every program that the commands in a shell text start. `words` are the text's arguments (`$@`).

    If the text uses its arguments, they also count as a command. `bases` are the directories in which to look for
    files, and a `cd` in the text adds one. Shell scripts that are read are added to `seen`.
    """
    bases = list(bases)
    for line in _commands(text):
        command = [
            each
            for word in line
            for each in (words if _ARGUMENT.fullmatch(word.strip('"')) and "1" not in word else [word])
        ]
        if command[0] == "cd" and command[1:] and (moved := bases[0] / command[1]).is_dir():
            bases.append(moved)
        else:
            yield from _starts(command, directory, bases, seen)
    if _ARGUMENT.search(text):
        yield from _starts(words, directory, bases, seen)


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command in a shell text, without running it. Comments and here-documents are
    skipped.
    """
    end = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if end:
            end = "" if line.strip() == end else end
            continue
        if document := re.search(r"(?<!<)<<-?\s*[\\\"']?([A-Za-z_]\w*)", line):
            end = document[1]
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split, lexer.commenters = True, "#"
        try:
            words = list(lexer)
        except ValueError:  # a quotation or a here-document over several lines
            words = line.split()
        command: list[str] = []
        for word in (*words, ";"):
            if set(word) <= set(";&|()"):
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def find_file(word: str, bases: Sequence[Path]) -> Path | None:
    """Return the path of the existing file that a word names in one of the directories `bases`; None if there is none.

    `$DIR/train.py` counts as `train.py`. Absolute paths, flags and paths with `..` are not looked up.
    """
    for name in (word, re.sub(r"^\$(?:\w+|\{[^}]*\})/", "", word), *([Path(word).name] if "$" in word else [])):
        if not name or name.startswith(("-", "/")) or "\0" in name or len(name) > 1000 or ".." in Path(name).parts:
            continue
        for base in bases:
            if is_file(base / name):
                return base / name
    return None


def _script_kind(path: Path) -> str:
    """Return "python" or "shell" for a script, by its suffix or its first line; "" for any other file."""
    with path.open("rb") as file:
        first = file.readline(200).decode(errors="replace")
    interpreter = first.split()[-1] if first.startswith("#!") and first.split() else ""
    if path.suffix == ".py" or _PYTHON.fullmatch(Path(interpreter).name):
        return "python"
    return "shell" if path.suffix in (".sh", ".bash") or Path(interpreter).name in SHELLS else ""


def _module_file(directory: Path, bases: Sequence[Path], module: str, *others: str) -> Path | None:
    """Return a module's file, or else the `__main__.py` of the package with this name; None if there is no such file.

    Looks in `bases`, then in the `src` of `directory`. `others` are names of files to look for in the package instead
    of `__main__.py`.
    """
    for base in (*bases, directory / "src"):
        path = base.joinpath(*module.split("."))
        for candidate in (path.parent / f"{path.name}.py", *(path / name for name in others or ("__main__.py",))):
            if is_file(candidate):
                return candidate
    return None


def shown_path(path: Path | None, directory: Path) -> str:
    """Return a path for messages, relative to `directory`, which must contain it; "" for None."""
    return str(path.relative_to(directory)) if path else ""
