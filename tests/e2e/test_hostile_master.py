"""A compromised master: the laptop rejects and reports unexpected answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from cluster.ssh.push import package_tree
from tests.e2e.conftest import ROOT, EmbeddedCloud

SUMMARY: Final = {
    "run_id": "./..", "state": "succeeded", "reason": "\x1b[2J", "started": 1.0, "updated": 2.0, "hosts": [],
    "last_lines": [], "position": None, "epoch": None, "last": None,
}  # fmt: skip


@contextmanager
def answering(cluster: EmbeddedCloud, document: object) -> Iterator[None]:
    """Make the pushed supervisor on the master answer every request with this document."""
    cluster.fab("runs")  # once it has been pushed
    (master,) = cluster.instances("master")
    supervisor = f"/home/ec2-user/.deepcdk/trees/{package_tree(ROOT / 'agent').name}/agent/supervisor/cli.py"
    program = f"print({json.dumps(document)!r})\n"

    def on_master(*words: str) -> None:
        cluster.on(master["InstanceId"], *words)

    on_master("cp", "-p", supervisor, f"{supervisor}.kept")
    try:
        on_master("sh", "-c", 'printf %s "$1" >"$2"', "sh", program, supervisor)
        yield
    finally:
        on_master("mv", f"{supervisor}.kept", supervisor)


def tree(directory: Path) -> dict[str, str | None]:
    """Return the text of every file below a directory, and every directory."""
    found = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_text() if path.is_file() else None for path in found}


def test_newest_run_cannot_have_the_name_of_a_package_of_the_laptop(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "session.py").write_text("mine")
    before = tree(tmp_path)
    with answering(cluster, {**SUMMARY, "run_id": "cluster"}):
        done = cluster.fab("fetch", "--into", str(tmp_path), check=False)
    assert done.returncode == 1
    assert "'cluster' is not the id of a run that deepcdk started" in done.stderr
    assert "Traceback" not in done.stderr
    assert tree(tmp_path) == before


@pytest.mark.parametrize("words", [(), ("--run", "20261120-121314-digits-ab12")], ids=["newest", "named"])
def test_fetched_run_stays_in_its_directory_with_any_name_from_master(
    cluster: EmbeddedCloud, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "fabfile.py").write_text("mine")
    (tmp_path / "runs").mkdir()
    before = tree(tmp_path)
    with answering(cluster, SUMMARY):
        done = cluster.fab("fetch", *words, "--into", str(tmp_path / "runs"), check=False)
    assert done.returncode == 1
    assert "the master's answer to `status` is invalid: run_id must be a run's id" in done.stderr
    assert "'run_id': './..'" in done.stderr
    assert "where: ec2-user@" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert tree(tmp_path) == before
    assert isinstance(json.loads(cluster.fab("runs", "--json").stdout), list)
