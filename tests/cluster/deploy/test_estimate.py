"""Facts about what a first deployment is said to start and to cost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cluster.deploy.estimate import describe_deployment
from cluster.session import Session


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session of a cluster of two workers, of unknown price."""
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"cluster": {"workers": 2}}}))
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    made = Session(tmp_path, [])
    monkeypatch.setattr(made.prices, "per_hour", lambda kinds, wait_s: dict.fromkeys(kinds))
    return made


def test_a_deployment_says_which_types_it_may_start_and_how_many_on_spot(task: Session) -> None:
    task.config = dataclasses.replace(
        task.config, workers=4, worker_alternatives=("c5.4xlarge",), spot=True, on_demand_workers=1
    )
    said = describe_deployment(task)
    assert "4 c5.2xlarge or c5.4xlarge workers, 3 of them on spot" in said
