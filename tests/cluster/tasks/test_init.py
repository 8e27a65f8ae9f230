"""`deepcdk init`: it writes a working project and overwrites nothing."""

from __future__ import annotations

import ast
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.cli.program import make_program
from cluster.programs.files_to_push import survey
from cluster.tasks import init
from stacks.config import ClusterConfig

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that calls `deepcdk init` in a new directory; it returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["deepcdk", "init", *words])
        try:
            make_program().run()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        return status, *capfd.readouterr()

    return call


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files of a project by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_new_project_has_valid_configuration_and_short_programs(run: Run, tmp_path: Path) -> None:
    status, text, _ = run("my Project_1")
    project = tmp_path / "my Project_1"
    assert (status, "in cdk.json set ssh_cidr" in text) == (0, True)
    assert set(contents(project)) == {"cdk.json", *init.FILES}
    config = ClusterConfig.from_file(project / "cdk.json")
    assert config == ClusterConfig(name="my-project-1", key_name="my-project-1")
    assert [len(ast.parse((project / name).read_bytes()).body) for name in ("app.py", "fabfile.py")] == [3, 2]
    assert json.loads((project / "cdk.json").read_text())["app"] == "python3 app.py"


@pytest.mark.parametrize(
    ("directory", "name"),
    [("x" * 40, "x" * 32), ("a" * 31 + "-b", "a" * 31), ("42", "deepcdk"), ("sg", "deepcdk"), ("-ü-", "deepcdk")],
)
def test_cluster_is_named_after_the_directory_if_aws_allows_the_name(directory: str, name: str) -> None:
    assert json.loads(init.cdk_json(directory))["context"]["cluster"]["name"] == name


def test_second_call_changes_nothing_and_succeeds(run: Run, tmp_path: Path) -> None:
    run()
    before = contents(tmp_path)
    assert run()[:2] == (0, f"{tmp_path}: nothing to write\n{init.NEXT}\n")
    assert contents(tmp_path) == before


def test_existing_files_are_kept_and_differences_shown(run: Run, tmp_path: Path) -> None:
    own = {
        "cdk.json": b'{"app": "node website.js"}\n',
        "app.py": b"print('mine')\r\n",
        ".gitignore": b"/data/\n/runs/\n",
        "fabfile.py": b"not UTF-8: \xff\n",
    }
    for name, content in own.items():
        (tmp_path / name).write_bytes(content)
    status, text, message = run()
    assert contents(tmp_path).items() >= own.items()
    assert (tmp_path / "fabric.yaml").is_file()
    assert (status, "exist: cdk.json, app.py, fabfile.py, .gitignore\n" in message, "do: " in message) == (
        1,
        True,
        True,
    )
    lines = text.splitlines()
    assert {'-{"app": "node website.js"}', '+  "app": "python3 app.py",', "-print('mine')", "+/cdk.out*/"} <= {*lines}
    assert "-/data/" not in lines, "the user's lines in .gitignore stay"
    assert f"{tmp_path}: wrote fabric.yaml, .deepcdkignore" in lines


def test_files_that_differ_only_in_line_ends_or_ignore_more_are_right(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_bytes(init.FILES["app.py"].replace("\n", "\r\n").encode())
    (tmp_path / ".gitignore").write_text(f"/data/\n{init.FILES['.gitignore']}")
    assert run()[0] == 0


def test_directories_and_broken_links_in_the_place_of_a_file_stay(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").mkdir()
    (tmp_path / "cdk.json").symlink_to(tmp_path / "elsewhere")
    status, text, _ = run()
    assert (status, (tmp_path / "elsewhere").exists()) == (1, False)
    assert f"{tmp_path}/cdk.json is not a file\n{tmp_path}/app.py is not a file\n" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("file",), "DIR = 'file': is a file"),
        (("file/below",), "Not a directory"),
        (("x" * 300,), "File name too long"),
        (("/proc/x",), "No such file or directory"),
        (("one", "two"), "unexpected word 'two'"),
    ],
)
def test_directory_that_cannot_be_written_is_reported(
    run: Run, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "file").touch()
    status, _, message = run(*words)
    assert (status, says in message, "Traceback" in message) == (1, True, False), message
    assert "do: " in message or "give a directory" in message


def test_half_a_file_is_removed(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        init.write_new(tmp_path / "app.py", "not UTF-8: \udcff")
    assert list(tmp_path.iterdir()) == []


def test_results_and_templates_are_not_uploaded_with_the_project(run: Run, tmp_path: Path) -> None:
    run()
    for name in ("runs/a/model.keras", "cdk.out/tree.json", "train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    uploaded = {str(path) for path in survey(tmp_path).files}
    assert "train.py" in uploaded
    assert not any(path.startswith(("runs/", "cdk.out/")) for path in uploaded)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "do: free some space there, then repeat"), (errno.EROFS, "do: give a directory in which you may")],
)
def test_unwritable_project_has_the_remedy_of_its_cause(
    monkeypatch: pytest.MonkeyPatch, run: Run, number: int, remedy: str
) -> None:
    def refuse(path: Path, _: str) -> bool:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(init, "write_new", refuse)
    status, _, error = run("new")
    assert (status, f"cannot write the project: {os.strerror(number)}" in error, remedy in error) == (1, True, True)
