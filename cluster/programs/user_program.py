"""A user program: its directory and the command that each rank runs. It is checked before AWS is asked."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from agent.spec.frameworks import LOCK_FILE
from agent.spec.run import PROGRAM_FOLDER
from cluster.errors import UsageError
from cluster.programs.deepcdkignore import IGNORE_FILE, unreadable
from cluster.programs.entry_flag import (
    MAX_WORD_BYTES,
    check_word,
    located_file,
    split_entry,
    why_nodes_cannot_start,
    with_located_script,
    without_python,
)
from cluster.programs.entry_starts import SHELLS, starts
from cluster.programs.files_to_push import Upload, survey
from cluster.programs.ipython_calls import line_of_ipython_call
from cluster.programs.keras3_lint import KerasTrapError, Trap, find
from cluster.programs.launcher_choice import Joining, examine
from cluster.programs.python_ast import imports, modules, parsed_text
from cluster.programs.python_environment import RUNTIME_MODULES, Wanted
from cluster.programs.requirements_formats import check_format, chosen_file
from cluster.ssh.push import Tree, check_syntax, pack
from cluster.terminal.paths import is_directory, is_file, resolved

_FRAMEWORKS: Final = re.compile(rb"horovod|tensorflow|keras|torch")
"""Words in files whose imports may decide the environment."""
MAX_TREE_BYTES: Final = 1 << 30
"""Maximum size of a program's directory. It is meant for code, not data, and is packed in memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A user program. Creating one checks that the nodes can start it: its files exist, are uploaded, and compile.

    Raises UsageError, UploadError if the directory cannot be read, or BrokenPackageError for a syntax error.
    """

    directory: Path
    entry: tuple[str, ...]
    """Words that each rank runs: `train.py --flag v`, `-m package --flag v`, or a command and its arguments."""

    requirements: str = ""
    """Path of the file that lists its packages, relative to the directory if it is inside; "" for none."""
    extras: tuple[str, ...] = ()
    """Optional dependencies of pyproject.toml or uv.lock to install."""
    groups: tuple[str, ...] = ()
    """Dependency groups of pyproject.toml or uv.lock to install."""
    keras: int = 3
    """Keras version of tf.keras and keras in the program: 3 or 2."""
    entry_words: int = 0
    """Number of words that come from --entry. Placeholders are expanded only in these."""
    is_keras_chosen: bool = False
    """Whether the user chose the Keras version, which also confirms that the program works with it."""

    def __post_init__(self) -> None:
        if not is_directory(self.directory):
            raise UsageError("--payload", str(self.directory), "is not a directory; give the directory of your program")
        if not self.entry:
            raise UsageError("--entry", None, 'must be the command of each rank, such as --entry "train.py --epochs 3"')
        for word in self.entry:
            check_word("--entry", word)
        script = self.script
        if script is not None:
            self.check_uploaded("--entry", str(script.relative_to(self.directory)), script.relative_to(self.directory))
            check_syntax(script)
            if line := line_of_ipython_call(_read(script)):
                rule = f"has a Jupyter command at line {line}, which Python cannot run: remove it"
                raise UsageError(
                    "--entry",
                    str(script.relative_to(self.directory)),
                    f"{rule}, and name its packages in requirements.txt",
                )
        self._check_command()

    def _check_command(self) -> None:
        """Raise UsageError for a command that a node could not start. Python files are checked elsewhere."""
        first, *rest = self._words
        if self.script is not None:
            return
        if self.entry_words and (instead := why_nodes_cannot_start(first, rest)):
            raise UsageError("--entry", first, instead)
        if first == "-m" and rest:
            self._check_module(rest[0])
        elif Path(first).name in SHELLS:
            while rest and re.fullmatch(r"-[abefhklmnpuvx]+", rest[0]):
                del rest[0]
            if rest and not rest[0].startswith("-"):  # not for `sh -c COMMAND`
                self._check_script(rest[0])
        elif "/" in first and not Path(first).is_absolute():
            self._check_script(first)
            file = self.directory / first
            if not os.access(file, os.X_OK):
                raise UsageError("--entry", first, f"is not executable: `chmod +x {shlex.quote(str(file))}`")
            if not _begins_with(file, b"#!", b"\x7fELF"):
                raise UsageError("--entry", first, "must start with the line of its interpreter, such as #!/bin/sh")
        elif "/" not in first and is_file(self.directory / first) and not shutil.which(first):
            raise UsageError("--entry", first, f"is a file, not a command: give ./{first}")

    def _check_module(self, module: str) -> None:
        """Raise UsageError for a module after `-m` that the nodes cannot find or run.

        If the program has requirements, a module that is not in the directory is accepted: they may contain it.
        """
        top = module.partition(".")[0]
        if is_directory(self.directory / top) or is_file(self.directory / f"{top}.py"):
            path = module.replace(".", "/")
            rule = f"cannot be run: {self.directory} has neither {path}.py nor {path}/__main__.py"
            raise UsageError("--entry", f"-m {module}", rule)
        if not self.requirements and top not in sys.stdlib_module_names | RUNTIME_MODULES:
            if is_directory(self.directory / "src" / top) or is_file(self.directory / "src" / f"{top}.py"):
                rule = f"is in src/, which is not on Python's path: give 'env PYTHONPATH=src python -m {module}'"
                raise UsageError("--entry", f"-m {module}", rule)
            rule = f"is neither in {self.directory} nor in the nodes' environment: list its package in requirements.txt"
            raise UsageError("--entry", f"-m {module}", rule)

    def _check_script(self, name: str) -> None:
        """Raise UsageError for a script that is not uploaded, or has Windows line ends.

        Scripts with an absolute path are not checked, because they are on the nodes.
        """
        if Path(name).is_absolute():
            return  # it is on the nodes
        self.check_uploaded("--entry", name, Path(os.path.normpath(name)))
        with (self.directory / name).open("rb") as file:
            first_line = file.readline(MAX_WORD_BYTES)
        if first_line.endswith(b"\r\n"):
            path = shlex.quote(str(self.directory / name))
            rule = f"has Windows line ends, which shells on the nodes cannot read: `perl -pi -e 's/\\r$//' {path}`"
            raise UsageError("--entry", name, rule)

    def check_uploaded(self, flag: str, given: str, file: Path) -> None:
        """Raise UsageError for a file, relative to the directory, that does not exist or is not uploaded.

        The message names `flag` and the value `given` with it.
        """
        if not is_file(self.directory / file):
            raise UsageError(flag, given, f"is not a file in {self.directory}")
        if reason := self.upload.reason_against(file):
            raise UsageError(flag, given, f"is not uploaded: {reason}")

    @classmethod
    def from_arguments(
        cls,
        payload: str,
        entry: str,
        further: Sequence[str],
        *,
        requirements: str = "",
        keras: str = "",
        extras: Sequence[str] = (),
        groups: Sequence[str] = (),
    ) -> Program:
        """Build a program from --payload, --entry, and `further`, the words after `--`.

        --entry is split as a shell would. Paths in it and in --requirements are relative to the payload, or else to the
        current directory. Without --requirements, the payload's own file is used. Raises the errors of `Program`, and
        KerasTrapError for a program that would train wrongly without an error, unless --keras is given. If the program
        has requirements, that check comes later, because they may contain another Keras.
        """
        if keras not in ("", "2", "3"):
            raise UsageError("--keras", keras, "must be 2 or 3")
        words = split_entry(entry)
        directory = resolved(payload)
        if is_file(directory):
            raise UsageError(
                "--payload", payload, f"is a file; give its directory, {directory.parent}, and the command in --entry"
            )
        located = with_located_script(words, directory)
        if requirements:
            requirements = located_file("--requirements", requirements, directory)
            check_format(requirements)
        else:
            requirements = chosen_file(directory, next(iter(without_python(located)), ""))
        program = cls(
            directory=directory,
            entry=(*located, *further),
            entry_words=len(words),
            requirements=requirements,
            extras=tuple(extras),
            groups=tuple(groups),
            keras=int(keras or 3),
            is_keras_chosen=bool(keras),
        )
        if not program.requirements:
            program.check_keras_traps()
        return program

    def check_keras_traps(self, *, nodes: int = 1) -> None:
        """Raise KerasTrapError if the program would train wrongly with Keras 3, or cannot train on several nodes.

        The second is checked only if `nodes` is more than 1. Uses that fail with an error of their own on any number of
        nodes are accepted. If the user chose the Keras version with --keras, nothing is raised.
        """
        rejected = [trap for trap in self.keras_traps(nodes=nodes) if trap.is_silent or trap.is_for_several]
        if rejected and not self.is_keras_chosen:
            raise KerasTrapError(rejected)

    def wanted(self, *, horovod: bool) -> Wanted:
        """Return what the program requires of its environment. `horovod` says whether Horovod starts it."""
        return Wanted(
            directory=self.directory,
            requirements=self.requirements,
            extras=self.extras,
            groups=self.groups,
            uploaded=frozenset(self.upload.files),
            modules=self._modules,
            keras=self.keras,
            horovod=horovod,
        )

    @functools.cached_property
    def _modules(self) -> frozenset[str]:
        """Return the modules that the script imports, directly or through the program's other modules.

        Without a script, they are the imports of all uploaded Python files that name a framework.
        """
        trees: Iterator[ast.AST | None]
        if self.script is not None:
            trees = (tree for _, tree in modules(self.directory, self.script, named=True))
        else:
            texts = (_read(self.directory / name) for name in self.upload.files if name.suffix == ".py")
            trees = (parsed_text(text) for text in texts if _FRAMEWORKS.search(text))
        return frozenset(module for tree in trees if tree for module in imports(tree, relative=False))

    def keras_traps(self, *, nodes: int = 1) -> list[Trap]:
        """Return the program's uses of Horovod and tf.distribute that do not work with Keras 3 on this number of nodes;
        [] with --keras 2, or without a Python file.
        """
        return [trap for trap in self._traps if nodes > 1 or not trap.is_for_several] if self.keras == 3 else []

    @functools.cached_property
    def _traps(self) -> list[Trap]:
        begun = [start.path for start in starts(self.directory, self.entry) if start.kind == "python" and start.path]
        return [trap for script in ([self.script] if self.script else begun) for trap in find(self.directory, script)]

    @property
    def _words(self) -> tuple[str, ...]:
        """Return the entry without Python and its own flags, such as `-u`."""
        return without_python(self.entry)

    @property
    def script(self) -> Path | None:
        """Return the Python file that the entry starts, directly or with -m; None for another command.

        Also None for a module that is not in the directory. A file that is given directly may be missing. Raises
        UsageError if the word after -m is not the name of a module.
        """
        first, *rest = self._words
        if first == "-m" and rest:
            parts = rest[0].split(".")
            if "" in parts or "/" in rest[0]:
                raise UsageError("--entry", rest[0], "is not the name of a module, such as package.train")
            path = self.directory.joinpath(*parts)
            return next((p for p in (path.with_suffix(".py"), path / "__main__.py") if is_file(p)), None)
        if not first.endswith(".py"):
            return None
        return self.directory / first

    @property
    def label(self) -> str:
        """Return the label for runs of this program: `train` for `train.py` and for `-m package.train`.

        It has at most 40 lower-case letters, digits and hyphens. It is "program" if nothing of the entry remains.
        """
        is_module = self._words[0] == "-m"
        first = next(iter(self._words[is_module:]), "program")
        if not is_module and "/" not in first and not first.endswith(".py"):  # `sh -c`, `env`, `accelerate launch`, ...
            begun = [start for start in starts(self.directory, self._words) if start.path or start.kind == "module"]
            first, is_module = (begun[0].name, begun[0].path is None) if begun else (first, False)
        first = re.sub(r"\{\{?[a-z_]+\}?\}", "", first)
        word = first.rpartition(".")[2] if is_module else Path(first).name.removesuffix(".py")
        return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:40] or "program"

    @functools.cached_property
    def joining(self) -> Joining:
        """Return what entry and sources show about how the ranks join: launchers, calls, libraries and settings."""
        configs = [name for name in self.upload.files if name.suffix in (".yaml", ".yml", ".json", ".toml")]
        return examine(self.directory, self.entry, self.entry_words, configs)

    def command(self, run_directory: str) -> tuple[str, ...]:
        """Return the command that each rank runs: the entry, whatever the run's directory is."""
        return self.entry

    @functools.cached_property
    def upload(self) -> Upload:
        """Return the files to upload. They are listed once, so that the checked files are the packed ones.

        Raises UploadError.
        """
        return survey(self.directory)

    def tree(self, lock: str = "") -> Tree:
        """Pack the files to upload. `lock` is the text of the environment's lock file, to be stored next to them; ""
        for none.

        Raises UsageError if the files are too large to be code, and UploadError for a file that cannot be read.
        """
        found = self.upload
        try:
            sizes = {name: (self.directory / name).lstat().st_size for name in found.files}
            if (size := sum(sizes.values())) > MAX_TREE_BYTES:
                largest = max(sizes, key=sizes.__getitem__)
                rule = f"has {size:,} bytes, more than {MAX_TREE_BYTES:,}; the largest file is {largest}"
                fix = f"copy data with `fab stage-data`, or list files that are not needed in {IGNORE_FILE}"
                raise UsageError("--payload", str(self.directory), f"{rule}; {fix}")
            beside = {LOCK_FILE: lock.encode()} if lock else {}
            return pack(self.directory, found.files, PROGRAM_FOLDER, beside, links=found.links, folders=found.folders)
        except UsageError:
            raise
        except OSError as error:
            raise unreadable(Path(error.filename or self.directory), error) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # packing the file reports the error
        return b""


def _begins_with(path: Path, *starts: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(max(map(len, starts))).startswith(starts)
