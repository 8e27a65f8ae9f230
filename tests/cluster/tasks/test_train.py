"""Facts about `fab train`: a dry run starts nothing, and shows what would be added and launched."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from cluster.aws import limits
from cluster.cli.program import make_program
from cluster.session import Session
from cluster.tasks import launch
from tests.factories import make_inventory, make_master, make_nodes


def test_a_dry_run_shows_added_nodes_and_the_launchers_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed = make_inventory(2)
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(Session, "load_inventory", lambda _: deployed)
    monkeypatch.setattr(Session, "stack", deployed.stack)
    monkeypatch.setattr(Session, "connect", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(Session, "nodes", lambda *_: (make_master(), *make_nodes(2)))
    monkeypatch.setattr("cluster.aws.prices.Prices.begin", lambda *_: None)
    monkeypatch.setattr(limits, "read_or_explain", lambda *_: None)
    monkeypatch.setattr(launch, "read_roots", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["fab", "train", "--nodes", "3", "--dry-run", "--", "--seed", "7"])
    make_program().run(exit=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# 2 nodes are ready; these would be added first: deeplearning-worker3"
    assert "-H deeplearning-worker1:1,deeplearning-worker2:1,deeplearning-worker3:1" in lines[2]
    assert lines[-1].endswith("--seed 7")
