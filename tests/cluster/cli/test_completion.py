"""Shell completion of tasks, flags, runs and recipes, in bash, zsh and fish."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.spec.launchers import LAUNCHERS
from cluster.cli import completion, task_modules
from cluster.cli.program import make_program

PROJECT = Path(__file__).resolve().parents[3]
EVERYWHERE = make_program().initial_context.flags
RUNS = ("20261120-121314-digits-ab12", "20261121-121314-digits-cd34")
TASKS = sorted(name for names in task_modules.MODULES.values() for name in names)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*RUNS, "Not a run"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(line: str) -> list[str]:
    return completion.next_words(line.split(" "), EVERYWHERE)


@pytest.mark.parametrize("line", ["", "tr", "--no-dedupe ", "nonsense "])
def test_tasks_are_offered(line: str) -> None:
    assert offered(line) == TASKS


@pytest.mark.parametrize("task", TASKS)
def test_flags_of_each_task_are_offered(task: str) -> None:
    (context,) = [each for each in task_modules.collection().to_contexts() if each.name == task]
    flags = offered(f"{task} --")
    assert flags == sorted(name for name in context.flags if name.startswith("--"))
    assert flags == offered(f"status --json {task} --"), "the last task counts"


def test_fabrics_own_flags_are_offered_before_a_task() -> None:
    assert {"--list", "--help", "--version"} <= set(offered("--"))


@pytest.mark.parametrize(
    "line", ["show ", "show --run ", "logs -f ", "resume ", "report one ", "train --yes --run= show --run = 2026"]
)
def test_fetched_runs_are_offered(project: Path, line: str) -> None:
    assert offered(line) == sorted(RUNS, reverse=True)


def test_value_behind_an_equals_sign_is_offered(project: Path) -> None:
    assert offered("show --run=2") == [f"--run={run}" for run in sorted(RUNS, reverse=True)]


def test_recipes_and_launchers_are_offered() -> None:
    assert "digits" in offered("train --nodes 2 --recipe ")
    assert offered("recipes d") == offered("train --recipe d")
    assert offered("train --launcher ") == list(LAUNCHERS)


@pytest.mark.parametrize(
    "line", ["train --payload ", "train --entry ", "init ", "run -- python ", "stage-data ", "status --json ", "ssh "]
)
def test_file_names_are_left_to_the_shell(line: str) -> None:
    assert offered(line) == []


@pytest.mark.parametrize("command", ["fab", "deepcdk"])
def test_command_answers_a_shell(project: Path, command: str) -> None:
    (project / "cdk.json").write_text("{")
    (project / "cluster" / "cli").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", ANSWER, command, "--complete", "--", command, "show", ""],
        cwd=project, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (sorted(RUNS, reverse=True), "")


ANSWER = "import sys; sys.argv = sys.argv[1:]; from deepcdk.__main__ import main; main()"


def test_unknown_shell_is_rejected() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ANSWER, "fab", "--print-completion-script", "tcsh"],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "give one of bash, zsh, fish" in done.stderr) == (1, True)


TYPED = {
    "bash": """
{script}
COMP_WORDS=(deepcdk {words}) COMP_CWORD={count}
_deepcdk_complete deepcdk "{last}" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """
compdef() {{ : }}
compadd() {{ printf '%s\\n' "${{(@)found}}" }}
{script}
words=(deepcdk {words}) CURRENT={count}+1
_deepcdk_complete
""",
    "fish": """
{script}
complete --do-complete 'deepcdk {typed}' | string replace --regex '\\t.*' ''
""",
}
"""Programs that complete a line as each shell does."""


@pytest.mark.parametrize("shell", [shell for shell in completion.SCRIPTS if shutil.which(shell)])
@pytest.mark.parametrize("typed", ["sho", "show 2026", "show --js", "show "])
def test_shell_completes(project: Path, shell: str, typed: str) -> None:
    words = typed.split(" ")
    code = TYPED[shell].format(
        script=completion.SCRIPTS[shell], typed=typed, count=len(words), last=words[-1],
        words=" ".join(word or "''" for word in words),
    )  # fmt: skip
    program = project / "bin" / "deepcdk"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{ANSWER}' deepcdk \"$@\"\n")
    program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [shell, "-c", code], cwd=project, env={**environment, "HOME": str(project)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    found = set(done.stdout.split())
    wanted = {"sho": {"show"}, "show --js": {"--json"}}.get(typed, set(RUNS))
    assert (wanted <= found, done.stderr) == (True, ""), done.stdout
    if shell != "zsh":  # zsh's own compadd, which is not called here, filters them
        assert found == wanted
