"""The commands `fab` and `deepcdk`: Fabric's program with three additions for deepcdk's tasks.

A word without a flag gets one (`fab ssh worker3`). For an unknown word, the closest known one is suggested. Only the
modules of the named tasks are imported. Set-up installs the program as `.venv/bin/fab` and `.venv/bin/deepcdk`, and the
wheel as `deepcdk`. Fabric's own `fab` runs the same tasks from fabfile.py, with every flag written out.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fabric import Config
from fabric import __version__ as fabric_version
from fabric.executor import Executor
from fabric.main import Fab
from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError

from cluster.cli import (
    INTERRUPTED,
    INTERRUPTED_STATUS,
    PROJECT,
    VERSION,
    completion,
    drop_output,
    mistyped_words,
    task_modules,
)
from cluster.cli.flags import with_flags
from cluster.errors import SystemRefusedError
from cluster.terminal.wrap import fitted


def provide_user() -> None:
    """Set USER to `uidN`, with the user's number N, if the password database lacks the user and USER is not set.

    This is common in containers, and many libraries need a user name. Exits with a message if HOME is missing too.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        os.environ.setdefault("USER", f"uid{os.getuid()}")
        if not os.environ.get("HOME"):
            remedy = "set HOME to a directory in which you may write"
            print(f"deepcdk: user {os.getuid()} has no home directory\n  do: {remedy}", file=sys.stderr)
            sys.exit(1)


def provide_streams() -> None:
    """Replace standard streams that are closed, as after `<&-`, with /dev/null. Python represents them as None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115  # open until the process exits


LIST_FORMATS: Final = ("flat", "nested", "json")


@contextlib.contextmanager
def settings_errors() -> Iterator[None]:
    """Raise Exit with a message if the block cannot read Fabric's settings. An OSError is raised unchanged."""
    try:
        yield
    except (Exit, OSError):
        raise
    except Exception as error:  # settings may be a Python file
        text = f"deepcdk: Fabric's settings cannot be read: {str(error) or type(error).__name__}"
        remedy = "correct the file of -f, fabric.yaml or ~/.fabric.yaml, and variables that begin with FABRIC_"
        raise Exit(fitted(f"{text}\n  do: {remedy}", sys.stderr), code=1) from None


class WordsExecutor(Executor):  # type: ignore[misc]  # fabric has no types
    """Execute tasks like Fabric, except for the words after `--`, which Fabric would run on the hosts of -H."""

    def execute(self, *tasks: Any) -> Any:
        """Execute the tasks. Raises Exit if there are words after `--` that none of the tasks accepts."""
        if self.core is not None and self.core.remainder:
            named = [self.collection[task.name] for task in tasks]
            if not any(getattr(task, "takes_words", False) for task in named):
                accepting = "`fab run`, `fab train`, `fab sweep` and `fab plan`"
                text = f"deepcdk: only {accepting} accept words after --\n  do: leave out -- and the words after it"
                raise Exit(fitted(text, sys.stderr), code=1)
            self.core.remainder = ""
        return super().execute(*tasks)


class TasksConfig(Config):  # type: ignore[misc]  # fabric has no types
    """Fabric's configuration, which does not read ssh_config. A checkout's fabric.yaml says the same for Fabric's own
    `fab`.
    """

    @staticmethod
    def global_defaults() -> Any:
        """Return Fabric's defaults, but with ssh_config off, because Fabric rejects lines that OpenSSH accepts."""
        return {**Config.global_defaults(), "load_ssh_configs": False}


class Program(Fab):  # type: ignore[misc]  # fabric has no types
    """Fabric's program for deepcdk's tasks."""

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        """Run the command line. Ctrl-C exits with 130 and a message at any time; Fabric alone exits with 1 and no
        message.

        If the reader of its output exits early, as `head` does, it exits with 1 and no message. For an error of the
        operating system, it exits with 1 and a message.
        """
        try:
            provide_streams()
            provide_user()
            try:
                super().run(argv, exit=exit)
            finally:
                sys.stdout.flush()  # Python would report an error only at exit, without a remedy
        except BrokenPipeError:
            drop_output()
            sys.exit(1)
        except OSError as error:  # Fabric reads settings in the home and prints its help
            drop_output()
            print(f"deepcdk: {SystemRefusedError(error)}", file=sys.stderr)
            sys.exit(1)
        except SystemExit as ended:
            if not isinstance(ended.__context__, KeyboardInterrupt):
                raise
            print(INTERRUPTED, file=sys.stderr)
            sys.exit(INTERRUPTED_STATUS)

    def create_config(self) -> None:
        """Read Fabric's settings of the system and of the user. Raises Exit if they are invalid."""
        with settings_errors():
            super().create_config()

    def update_config(self) -> None:
        """Add the settings of Fabric's own flags. Raises Exit if they are invalid."""
        with settings_errors():
            super().update_config()

    def parse_core_args(self) -> None:
        """Parse Fabric's own flags. For a flag of shell completion, print its answer and raise Exit.

        Also raises Exit for invalid flags.
        """
        try:
            super().parse_core_args()
        except (ParseError, ValueError) as error:  # ValueError: a number is expected
            text = f"deepcdk: invalid flag before the task: {error}\n  do: `fab --help` lists these flags"
            raise Exit(fitted(text, sys.stderr), code=1) from None
        if (listed := self.args["list-format"].value) not in LIST_FORMATS:
            text = f"deepcdk: --list-format = {listed!a}: unknown format\n  do: give one of {', '.join(LIST_FORMATS)}"
            raise Exit(text, code=1)
        if shell := self.args["print-completion-script"].value:
            if shell not in completion.SCRIPTS:
                raise Exit(
                    f"deepcdk: --print-completion-script = {shell!a}: there is no completion for this shell\n"
                    f"  do: give one of {', '.join(completion.SCRIPTS)}",
                    1,
                )
            print(completion.SCRIPTS[shell], end="")
            raise Exit
        if self.args.complete.value and not self._names_collection():
            _, *typed = self.core.remainder.split(" ")  # the first word is the program's name
            print("\n".join(completion.next_words(typed, self.core[0].flags)))
            raise Exit

    def _names_collection(self) -> bool:
        """Return whether the command line selects another collection of tasks."""
        return bool(self.args.collection.value or self.args["search-root"].value)

    def print_version(self) -> None:
        """Print deepcdk's version before Fabric's."""
        print(f"deepcdk {VERSION}")
        super().print_version()

    def load_collection(self) -> None:
        """Load the tasks on the command line, or all if it begins with none. `--list` reads only their docstrings.

        A collection that is chosen with -c or -r is loaded by Fabric. Raises Exit for `--help` with an unknown task.
        """
        if self._names_collection() or self._remainder_only:
            super().load_collection()
            return
        with settings_errors():
            self.config.set_project_location(str(PROJECT))
            self.config.load_project()
        asked_help = self.args.help.value
        if self.args.list.value and not self.core.unparsed:
            self.collection = task_modules.listing()
        else:
            named = [asked_help] if isinstance(asked_help, str) else []
            self.collection = task_modules.collection([*named, *self.core.unparsed])
        if isinstance(asked_help, str) and asked_help not in self.collection.task_names:
            unknown = mistyped_words.unknown_task(asked_help, list(self.collection.task_names))
            raise Exit(fitted(unknown, sys.stderr), code=1)

    def parse_tasks(self) -> None:
        """Parse the tasks and their flags. Raises Exit for an unknown word, with the closest known one."""
        # Tasks loaded by Fabric or for `--list` are Invoke's own class and have no flag for a word without one.
        if all(hasattr(task, "word") for task in self.collection.tasks.values()):
            typed, complaint = self._read(self.collection)
            if complaint:
                # Look for the closest word among all tasks.
                raise Exit(fitted(self._read(task_modules.collection())[1], sys.stderr), code=1)
            self.core.unparsed = typed
        try:
            super().parse_tasks()
        except ParseError as error:
            name = error.context.name if error.context else ""
            text = f"deepcdk: {error}\n  do: read `fab --help{f' {name}' if name else ''}`"
            raise Exit(fitted(text, sys.stderr), code=1) from None

    def _read(self, tasks: Collection) -> tuple[list[str], str]:
        """Return the command line with the missing flags inserted, and a message about the first unknown word.

        For example, `ssh worker3` becomes `ssh --node worker3`. The message is "" if all words are known.
        """
        contexts, flag_of = tasks.to_contexts(), task_modules.flags_of_words(tasks)
        typed = with_flags(self.core.unparsed, contexts, flag_of)
        return typed, mistyped_words.complaint(typed, contexts, flag_of, self.core[0].flags)


def make_program() -> Program:
    """Return a new program that has not read a command line. `python -m deepcdk` calls itself deepcdk."""
    binary = "deepcdk" if Path(sys.argv[0]).name == "__main__.py" else None
    return Program(
        name="Fabric", version=fabric_version, executor_class=WordsExecutor, config_class=TasksConfig, binary=binary
    )
