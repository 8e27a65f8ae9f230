"""Facts about Ctrl-C before a task has begun: it ends with the tasks' own status and words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
# Ctrl-C comes at the very moment at which a module begins to be imported.
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.{before})
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from fabric.main import program
sys.argv = ["fab", "recipes", "nonsense"]
program.run()
"""


def ended(module: str, before: str = "default_int_handler") -> tuple[int, str]:
    code = PROGRAM.format(module=module, before=before)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("module", ["cluster.cli.loader", "cluster.cli.task", "cluster.runs.recipe_tables"])
def test_it_ends_with_130_and_one_line_while_the_tasks_are_loaded_and_then(module: str) -> None:
    assert ended(module) == (130, "\ninterrupted\n")


def test_it_is_ignored_where_a_shell_has_said_so() -> None:
    status, said = ended("cluster.cli.loader", "SIG_IGN")
    assert (status, "interrupted" in said) == (1, False)
