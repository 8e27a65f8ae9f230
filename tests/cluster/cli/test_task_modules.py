"""The modules of the tasks: a task runs with only its own module, and every task is found in one."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.cli.task_modules import MODULES, collection, listing, wanted

PROJECT = Path(__file__).resolve().parents[3]
IMPORTED = "import sys; from cluster.cli.task_modules import listing; listing(); print(*sys.modules)"


def test_without_arguments_all_tasks_are_loaded() -> None:
    assert set(collection().tasks) == {name for names in MODULES.values() for name in names}


@pytest.mark.parametrize(
    ("line", "modules"),
    [
        ("run -- true", {"run"}),
        ("stage-data x --name up", {"stage_data", "deploy"}),
        ("up train", {"deploy", "train"}),
        ("sttaus", set(MODULES)),
        ("--unknown run", set(MODULES)),
    ],
)
def test_only_modules_of_named_tasks_are_loaded_or_all_without_a_task(line: str, modules: set[str]) -> None:
    assert set(wanted(line.split())) == modules


def test_list_shows_each_task_with_its_docstring() -> None:
    tasks = collection().tasks
    assert {name: task.__doc__ for name, task in listing().tasks.items()} == {
        name: inspect.getdoc(task) for name, task in tasks.items()
    }


def test_list_imports_no_task() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if name.startswith("cluster.tasks")] == []
