"""Map tasks to modules, so that only the modules of the tasks on the command line are imported. Imports take time."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from invoke.collection import Collection
from invoke.tasks import Task

TASKS: Final = Path(__file__).resolve().parents[1] / "tasks"

MODULES: Final = {
    "bench": ("bench",),
    "clean": ("clean",),
    "dashboard": ("dashboard",),
    "demo": ("demo",),
    "deploy": ("up", "down"),
    "doctor": ("doctor",),
    "init": ("init",),
    "nodes": ("release", "replace", "scale"),
    "notebook": ("notebook",),
    "plan": ("plan",),
    "prices": ("prices",),
    "push": ("push",),
    "recipes": ("recipes",),
    "report": ("compare", "report"),
    "resume": ("resume",),
    "run": ("run",),
    "runs": ("attach", "fetch", "logs", "rm", "runs", "show", "stop"),
    "ssh": ("ssh", "ssh-config"),
    "stage_data": ("stage-data",),
    "status": ("status",),
    "sweep": ("sweep",),
    "tensorboard": ("tensorboard",),
    "train": ("train",),
}
"""Tasks, as they are typed, by their module in `cluster.tasks`."""


def flags_of_words(tasks: Collection) -> dict[str, str]:
    """Return, by task name, the flag that receives a word without a flag (`fab ssh worker3`)."""
    return {name: task.word for name, task in tasks.tasks.items() if task.word}


def wanted(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the modules to load, with their tasks: each module that has a task among the words.

    If the first word is not a task, all modules are returned. A flag's value that equals a task's name costs only an
    unneeded import.
    """
    known = {name for names in MODULES.values() for name in names}
    if not words or words[0] not in known:
        return dict(MODULES)
    return {module: names for module, names in MODULES.items() if set(words) & set(names)}


def collection(words: Sequence[str] = ()) -> Collection:
    """Import the modules that `wanted` selects for the words of a command line, and return their tasks.

    Without words, all tasks are returned.
    """
    found = Collection()
    for module, names in wanted(words).items():
        bodies = importlib.import_module(f"..tasks.{module}", __package__)
        for name in names:
            found.add_task(getattr(bodies, name.replace("-", "_")))
    return found


def listing() -> Collection:
    """Return all tasks for `--list`, with name and docstring, which are read from the source without importing it."""
    found = Collection()
    for module, names in MODULES.items():
        source = ast.parse((TASKS / f"{module}.py").read_bytes())
        docstrings = {node.name: ast.get_docstring(node) for node in source.body if isinstance(node, ast.FunctionDef)}
        for name in names:
            found.add_task(Task(_Listed(docstrings[name.replace("-", "_")]), name=name, positional=()))
    return found


class _Listed:
    """Placeholder for the body of a task that is only listed."""

    def __init__(self, docstring: str | None) -> None:
        self.__doc__ = docstring

    def __call__(self, context: object) -> None:
        """Do nothing, because a listed task is not run."""
