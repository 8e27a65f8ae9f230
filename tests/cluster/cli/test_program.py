"""The command line itself: Ctrl-C at any time, another program's tasks, and Fabric's own `fab`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.cli import find_project

PROJECT = Path(__file__).resolve().parents[3]
INTERRUPTED = 130
# Ctrl-C arrives exactly when the import of a module begins.
CODE = """
import atexit, os, runpy, signal, sys
atexit.register(print, "the interpreter has ended")  # Paramiko's threads have crashed it at that.
signal.signal(signal.SIGINT, signal.{before})
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["fab", "recipes", "nonsense"]
runpy.run_path("tools/fab.py", run_name="__main__")
"""
OWN_TASKS = "from invoke.tasks import task\n\n@task\ndef ssh(c, node):\n    print('mine', node)\n"
FABRIC = "import sys; from fabric.main import program; sys.argv[0] = 'fab'; program.run()"


def ended(module: str, before: str = "default_int_handler") -> tuple[int, str]:
    code = CODE.format(module=module, before=before)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == ("" if done.returncode == INTERRUPTED else "the interpreter has ended\n")
    return done.returncode, done.stderr


@pytest.mark.parametrize("module", ["fabric.main", "cluster.cli.task", "cluster.runs.recipe_tables"])
def test_ctrl_c_ends_with_130_and_one_line_while_anything_is_imported(module: str) -> None:
    assert ended(module) == (INTERRUPTED, "\ninterrupted\n")


def test_ctrl_c_is_ignored_if_shell_requested_it() -> None:
    status, said = ended("cluster.cli.task_modules", "SIG_IGN")
    assert (status, "interrupted" in said) == (1, False)


def run(folder: Path, *command: str) -> tuple[int, str]:
    done = subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_in_another_project_fab_is_plain_fabric(tmp_path: Path) -> None:
    (tmp_path / "fabfile.py").write_text(OWN_TASKS)
    status, text = run(tmp_path, sys.executable, str(PROJECT / "tools" / "fab.py"), "ssh", "here")
    assert (status, text) == (0, "mine here\n")


def test_named_collection_is_loaded_like_in_fabric(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(OWN_TASKS)
    fab = (sys.executable, str(PROJECT / "tools" / "fab.py"), "--search-root", str(tmp_path), "--collection", "other")
    assert run(PROJECT, *fab, "ssh", "here") == (0, "mine here\n")


def test_fabrics_own_program_runs_the_same_tasks_with_their_flags() -> None:
    status, text = run(PROJECT, sys.executable, "-c", FABRIC, "recipes", "--recipe", "digts")
    assert (status, "did you mean digits?" in text) == (1, True)
    status, text = run(PROJECT, sys.executable, "-c", FABRIC, "status", "--", "true")
    assert (status, "`fab sweep` and `fab plan` accept words after --" in text) == (1, True)


def test_python_m_deepcdk_calls_itself_deepcdk() -> None:
    status, text = run(PROJECT, sys.executable, "-m", "deepcdk", "--help")
    assert (status, text.partition(" [")[0]) == (0, "Usage: deepcdk")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--nosuch", "No idea what '--nosuch' is!"),
        ("-T x recipes", "invalid literal for int"),
        ("--list-depth x --list", "invalid literal for int"),
        ("--list-format nosuch --list", "give one of flat, nested, json"),
        ("-f {folder} recipes", "are not supported"),
        ("-f {folder}/bad.yaml recipes", "bad.yaml"),
        ("-f {folder}/bad.py recipes", "division by zero"),
        ("status --set=--json", "needs a value after --set; --json is a flag"),
    ],
)
def test_invalid_flags_and_settings_of_fabric_are_reported_with_fix(tmp_path: Path, words: str, says: str) -> None:
    (tmp_path / "bad.yaml").write_text("{")
    (tmp_path / "bad.py").write_text("1 / 0")
    status, text = run(PROJECT, sys.executable, "-m", "deepcdk", *words.format(folder=tmp_path).split())
    text = " ".join(text.split())
    assert (status, "Traceback" in text, "deepcdk: " in text, " do: " in text) == (1, False, True, True), text
    assert says in text


def test_reader_that_has_exited_causes_no_traceback() -> None:
    fab = f"{sys.executable} tools/fab.py --list --list-format=json"
    assert run(PROJECT, "bash", "-c", f"({fab}; echo $? >&2) | true") == (0, "1\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["--list", "--help train", "recipes digits"])
def test_short_output_to_a_full_disk_is_reported_with_fix(words: str) -> None:
    status, text = run(PROJECT, "bash", "-c", f"{sys.executable} -m deepcdk {words} > /dev/full")
    assert (status, text.startswith("deepcdk: the output cannot be written: No space left")) == (1, True), text
    assert "do: free some space" in text


@pytest.mark.parametrize(
    ("cdk_json", "found"),
    [
        (b'{"context": {"cluster": {}}}', True),
        (b'\xef\xbb\xbf{"context": {"cluster": {"name": "x"}}}', True),
        (b'{"context": {"cluster": {"name": "x",}}}', True),  # an extra comma
        (b'{"context": {"cluster": "\xff"}}', True),  # not UTF-8
        (b'{"app": "node website.js", "context": {"cluster": "prod"}}', False),
        (b'{"context": {"cluster": ["a", "b"], "stage": {"cluster": {}}}}', False),
        (b'{"context": "cluster", "cluster": {}}', False),
        (b'["cluster"]', False),
        pytest.param(b"[" * 100_000, False, id="too deep"),
        (b"", False),
    ],
)
def test_project_has_an_object_as_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cdk_json: bytes, found: bool
) -> None:
    below = tmp_path / "website"
    below.mkdir()
    (tmp_path / "cdk.json").write_text('{"context": {"cluster": {}}}')
    (below / "cdk.json").write_bytes(cdk_json)
    monkeypatch.chdir(below)
    assert find_project() == (below if found else tmp_path)


def test_unreadable_file_is_the_projects_and_its_error_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "project"
    (below / "cdk.json").mkdir(parents=True)
    (tmp_path / "cdk.json").write_text('{"context": {"cluster": {}}}')
    monkeypatch.chdir(below)
    assert find_project() == below
