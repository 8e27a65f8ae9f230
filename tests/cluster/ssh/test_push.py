"""The push: the same files give the same bytes, and they arrive completely or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from cluster.errors import RemoteError
from cluster.master_answers import AnswerError
from cluster.ssh import push as push_module
from cluster.ssh.master import Completed
from cluster.ssh.push import (
    BrokenPackageError,
    Tree,
    bootstrap_command,
    find_pushed,
    pack,
    package_tree,
    push,
)
from tests.waiting import eventually

PAYLOAD = Path(__file__).resolve().parents[3] / "payload"
AGENT = PAYLOAD.with_name("agent")


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    root = tmp_path / "payload"
    (root / "data").mkdir(parents=True)
    (root / "__init__.py").write_text('"""A payload."""\n')
    (root / "data" / "table.txt").write_text("1 2 3\n")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o700)
    return root


class LocalMaster:
    """Run the master's commands here, with this Python."""

    where = "here"

    def __init__(self) -> None:
        self.commands: list[str] = []

    def check(self, argv: list[str], *, stdin: bytes = b"", doing: str) -> Completed:
        is_shell = argv[0] == "sh"
        self.commands.append("look" if is_shell else argv[3])  # python -c SCRIPT COMMAND
        words = argv if is_shell else [sys.executable, *argv[1:]]
        done = subprocess.run(words, input=stdin, capture_output=True, check=False)
        if done.returncode != 0:
            raise RemoteError(doing, status=done.returncode, output=done.stderr.decode())
        return Completed(status=0, stdout=done.stdout, stderr="")

    def blocks(self, argv: list[str], *, feed: Iterable[bytes], silence_s: float) -> Iterator[bytes]:
        yield self.check(argv, stdin=b"".join(feed), doing="a command on the master").stdout


def push_to(master: LocalMaster, root: Path, tree: Tree) -> object:
    return push(master, str(root), tree)  # type: ignore[arg-type]  # stands in for the master


def test_same_files_give_same_archive_with_any_times(payload: Path) -> None:
    first = package_tree(payload)
    for path in payload.rglob("*"):
        os.utime(path, (1, 1))
    (payload / "__pycache__").mkdir()
    (payload / "__pycache__" / "x.pyc").write_bytes(b"x")
    (payload / ".DS_Store").write_bytes(b"x")
    (payload / "secret").symlink_to("/etc/passwd")
    assert package_tree(payload) == first
    assert first.files == 3


def test_changed_byte_or_mode_changes_the_name(payload: Path) -> None:
    first = package_tree(payload).name
    (payload / "run").chmod(0o600)
    second = package_tree(payload).name
    (payload / "data" / "table.txt").write_text("1 2 4\n")
    assert len({first, second, package_tree(payload).name}) == 3


def test_missing_or_unreadable_package_is_reported(payload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(push_module, "open_regular", denied)
    with pytest.raises(BrokenPackageError, match=r"payload/__init__\.py cannot be read: Permission denied"):
        package_tree(payload)
    with pytest.raises(BrokenPackageError, match="the package nowhere is missing at "):
        package_tree(payload / "nowhere")


def test_push_is_complete_and_second_push_uploads_nothing(payload: Path, tmp_path: Path) -> None:
    tree, master, root = package_tree(payload), LocalMaster(), tmp_path / "payloads"
    root.mkdir()
    first = push_to(master, root, tree)
    second = push_to(master, root, tree)
    assert master.commands == ["look", "receive", "look"]
    assert (root / tree.name / "payload" / "data" / "table.txt").read_text() == "1 2 3\n"
    assert os.access(root / tree.name / "payload" / "run", os.X_OK)
    assert "bytes uploaded" in str(first)
    assert "nothing uploaded" in str(second)
    assert [entry.name for entry in root.iterdir()] == [tree.name]


def test_master_runs_its_own_agent_even_if_the_shared_one_was_modified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root, master, tree = tmp_path / "home", tmp_path / "payloads", LocalMaster(), package_tree(AGENT)
    home.mkdir()
    monkeypatch.chdir(home)  # where SSH sessions start
    monkeypatch.setenv("HOME", str(home))
    pushed = push(master, str(root), tree)  # type: ignore[arg-type]  # stands in for the master
    file = Path("agent/supervisor/cli.py")
    (root / tree.name / file).write_text("raise SystemExit('planted')\n")
    own = home / pushed.tree.masters_directory
    assert (own / file).read_bytes() == (AGENT.parent / file).read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "agent.supervisor.cli", "--root", str(tmp_path / "runs"), "status", "--list"],
        cwd=pushed.tree.masters_directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_agent_is_uploaded_even_if_the_shared_file_system_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root, master, tree = tmp_path / "home", tmp_path / "payloads", LocalMaster(), package_tree(AGENT)
    (root / tree.name / "agent").mkdir(parents=True)
    (root / tree.name / "agent" / "planted.py").write_text("")
    home.mkdir()
    monkeypatch.chdir(home)
    pushed = push(master, str(root), tree)  # type: ignore[arg-type]  # as above
    assert master.commands == ["look", "receive"]
    assert not (home / pushed.tree.masters_directory / "agent" / "planted.py").exists()
    assert push(master, str(root), tree).uploaded_bytes == 0  # type: ignore[arg-type]  # as above


def test_one_command_checks_which_trees_exist(payload: Path, tmp_path: Path) -> None:
    trees, master = [package_tree(payload), pack(payload, [Path("run")], "payload")], LocalMaster()
    (tmp_path / trees[1].name).mkdir()
    there = find_pushed(master, str(tmp_path), trees)  # type: ignore[arg-type]  # stands in for the master
    assert there == {trees[1].name}
    push(master, str(tmp_path), trees[1], there=there)  # type: ignore[arg-type]  # as above
    assert master.commands == ["look"]


def test_long_upload_reports_progress_and_failure(payload: Path, tmp_path: Path) -> None:
    (payload / "weights").write_bytes(os.urandom(5_000_000))
    tree, told = package_tree(payload), list[str]()
    push(LocalMaster(), str(tmp_path / "there"), tree, told.append)  # type: ignore[arg-type]  # as above
    assert told == ["uploading: 4 files, 5.0 MB"]
    assert (tmp_path / "there" / tree.name / "payload" / "weights").stat().st_size == 5_000_000
    (tmp_path / "file").write_text("")
    with pytest.raises(RemoteError, match=r"(?s)pushing the payload failed.*Not a directory"):
        push(LocalMaster(), str(tmp_path / "file"), tree, told.append)  # type: ignore[arg-type]  # as above


def test_corrupted_upload_leaves_nothing(payload: Path, tmp_path: Path) -> None:
    tree = package_tree(payload)
    command = bootstrap_command("receive", tree.sha256, str(tmp_path / tree.name))
    done = subprocess.run([sys.executable, *command[1:]], input=tree.archive[:-1], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"the upload is damaged" in done.stderr
    assert not list(tmp_path.glob(f"{tree.name}*"))


def test_ranks_find_byte_code_of_the_agent_and_the_payload_that_they_cannot_write(
    payload: Path, tmp_path: Path
) -> None:
    (payload / "model.py").write_text("x = 1\n")
    packed = package_tree(payload), pack(payload, [Path("model.py")], "program")
    for tree in packed:
        push(LocalMaster(), str(tmp_path / "there"), tree)  # type: ignore[arg-type]  # as above
    found = eventually(lambda: list((tmp_path / "there").rglob("model.*.pyc")))
    assert [path.relative_to(tmp_path / "there").parts[:2] for path in found] == [(packed[0].name, "payload")]


@pytest.mark.parametrize("said", ["", "yes", "yes no yes", "yes maybe", "yes \x1b[2J"])
def test_answer_must_have_one_word_per_tree(payload: Path, tmp_path: Path, said: str) -> None:
    class Answering:
        where = "ec2-user@198.18.1.2"

        def check(self, *_: object, **__: object) -> Completed:
            return Completed(status=0, stdout=said.encode(), stderr="")

    trees = [package_tree(payload), pack(payload, [Path("run")], "payload")]
    with pytest.raises(AnswerError, match="must be yes or no, 2 times") as caught:
        find_pushed(Answering(), str(tmp_path), trees)  # type: ignore[arg-type]  # stands in for the master
    assert (caught.value.where, "\x1b" in str(caught.value)) == ("ec2-user@198.18.1.2", False)
