"""Facts about a run's origin: what differs from the commit, and a hash that stands for the template."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cluster.runs.provenance import git_commit, read_diff, template_sha256


def git(directory: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)


def test_a_diff_is_of_this_directory_alone(tmp_path: Path) -> None:
    for name in ("code", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("a = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    assert read_diff(tmp_path / "code") == ""
    for name in ("code", "other"):
        (tmp_path / name / "train.py").write_text("a = 2\n")
    diff = read_diff(tmp_path / "code")
    assert ("-a = 1\n+a = 2\n" in diff, "other" in diff) == (True, False)


def test_without_git_there_is_no_diff(tmp_path: Path) -> None:
    assert read_diff(tmp_path / "nowhere") == ""
    assert read_diff(tmp_path) == ""


def test_a_template_keeps_its_hash_whatever_the_order_of_its_keys() -> None:
    one, two = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert template_sha256(one) == template_sha256(two) != template_sha256({**one, "a": 2})


def test_a_commit_with_changes_is_marked(tmp_path: Path) -> None:
    assert git_commit(tmp_path) == ""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    (tmp_path / "f").write_text("1")
    for arguments in (["init", "-q"], ["add", "f"], ["commit", "-q", "-m", "One"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True, capture_output=True)
    commit = git_commit(tmp_path)
    assert len(commit) == 40
    (tmp_path / "f").write_text("2")
    assert git_commit(tmp_path) == commit + "+"
