"""A dry run: it shows the nodes that would be added, and the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.spec.nodes import NODE_PYTHON, Node
from cluster.programs.user_program import Program
from cluster.runs.dry_run import dry_run_lines, with_planned
from cluster.runs.run_options import RankOptions, RunOptions
from tests.cluster.runs.test_run_spec import NODES, make_launch


def shown(nodes: tuple[Node, ...], count: int = 2, **launch: Any) -> list[str]:
    return list(dry_run_lines(nodes, make_launch(with_planned(nodes, count), count, **launch)))


def test_dry_run_names_the_nodes_that_would_be_added() -> None:
    lines = shown(NODES, 4)
    assert "2 of 4 nodes are ready" in lines[0]
    assert lines[0].endswith("deeplearning-worker3, deeplearning-worker4")
    assert "-H deeplearning-worker1:4,deeplearning-worker2:4,deeplearning-worker3:4" in lines[2]
    assert len(shown(NODES)) == 4


@pytest.mark.parametrize("nodes", [NODES[:1], ()])
def test_dry_run_works_without_nodes_and_shows_no_network(nodes: tuple[Node, ...]) -> None:
    lines = shown(nodes, options=RunOptions(ranks=RankOptions(controller="mpi")))
    assert "-H deeplearning-worker1:1,deeplearning-worker2:1" in lines[2]
    assert "0.0.0.0" not in " ".join(lines)
    assert "--network-interfaces" not in lines[2]


def test_dry_run_shows_command_and_place_of_each_rank(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    where, what = shown(NODES, training=Program(directory=tmp_path, entry=("train.py", "--name", "two words")))[-2:]
    assert "in /mnt/efs/runs/20261120-121314-train-ab12/work" in where
    assert what == "RUNTIME/bin/python train.py --name 'two words'"


def test_dry_run_shows_another_launchers_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    program, options = Program(directory=tmp_path, entry=("train.py",)), RunOptions(ranks=RankOptions(launcher="plain"))
    lines = shown(NODES, training=program, options=options)
    assert lines[1].startswith(f"{NODE_PYTHON} -m agent.launch.ssh_launcher RUNTIME/bin/python /mnt/efs/runs/")
