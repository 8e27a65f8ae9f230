"""Facts about the spec of a new run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.spec.nodes import Node, parse_nodes
from cluster.aws.inventory import Inventory
from cluster.aws.stack import Stack
from cluster.errors import DeepcdkError
from cluster.runs.launch import RunOptions, Training
from cluster.runs.run_spec import specify
from cluster.session import Session

STACK = Stack(
    name="deepcdk", status="CREATE_COMPLETE", master_group="m", worker_group="w", efs_mount="/mnt/efs", bucket="b",
    login_user="ec2-user", max_workers=16,
)  # fmt: skip


def nodes_of(count: int) -> tuple[Node, ...]:
    return parse_nodes(
        "".join(f"deeplearning-worker{n} 10.0.1.{n} i-{n:08x} 1 eth0 us-east-1a\n" for n in range(1, count + 1)),
        pytest.fail,
    )


def test_too_few_nodes_are_told_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"cluster": {"workers": 2}}}))
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "__init__.py").write_text("")
    session = Session(tmp_path, [])
    session.inventory = Inventory(stack=STACK, desired_workers=2, instances=())
    with pytest.raises(DeepcdkError, match="3 nodes wanted, 2 ready") as caught:
        specify(session, Training(), nodes_of(2), 3, tree="0123456789abcdef", options=RunOptions())
    assert "fab status" in caught.value.remedy
