"""The launch of a run: its estimate is printed and stored in its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.spec.run import RunSpec
from agent.spec.run_limits import Replacements
from agent.spec.submission import Origin, Submission
from cluster.aws import worker_limits
from cluster.cli import PROJECT
from cluster.runs import launch
from cluster.runs.launch import Following, Launch
from cluster.runs.provenance import Roots
from cluster.runs.recipe_or_program import Training
from cluster.runs.supervisor_client import Begun
from cluster.session import Session
from tests.cluster.runs.test_run_spec import make_launch
from tests.factories import make_instance, make_inventory, make_nodes, make_spec


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launch:
    """Return a launch on a cluster of two workers that asks no questions."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(worker_limits, "read_or_explain", lambda *_: None)
    monkeypatch.setattr(worker_limits, "cautions", lambda *_, **__: [])
    monkeypatch.setattr(launch, "read_roots", lambda *_: Roots(diff="", started_by={}, template_sha256=""))
    monkeypatch.setattr(launch, "origin_of", lambda *_, **__: Origin(stack="one"))
    session = Session(PROJECT, [])
    session.loaded_inventory = make_inventory(2)
    monkeypatch.setattr(session.prices, "begin", lambda _: None)
    return Launch(session, PROJECT, task="fab train", queue=False, yes=False, following=Following())


def test_estimate_is_printed_first_and_stored_with_origin(started: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(started, "progress", said.append)
    started.estimate(Training().settings, 2, "", restarts=3)
    assert said[0].startswith("estimated: ")
    assert said[1].startswith("a fault costs ") and "of training, $" in said[1]
    kept = started.submission(make_launch()).origin
    assert kept.stack == "one"
    assert kept.estimate["seconds"]["value"] > 0


def test_run_is_submitted_with_the_clusters_limit_of_replacements(started: Launch) -> None:
    sent: list[Submission] = []

    def send(submission: Submission) -> Begun:
        sent.append(submission)
        return Begun(hosts=(), position=None)

    started.submit(make_launch(), send)
    wanted = Replacements(group=started.session.stack.worker_group, region="us-east-1", max_per_hour=4)
    assert sent[0].spec.replacements == wanted
    assert RunSpec.from_json(sent[0].spec.to_json()) == sent[0].spec


def test_nodes_that_joined_after_aws_was_asked_have_minimum_speeds(
    started: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = make_inventory(3, instances=tuple(make_instance(index, type="p5.48xlarge") for index in (1, 2, 3)))
    monkeypatch.setattr(launch, "refresh", lambda *_: grown)
    spec = make_spec(hosts=make_nodes(3, kind="x86_64-sm90-py3.12", slots=8))
    assert started.configured(spec).floors.matmul_tflops == 494.5
    assert started.session.load_inventory() is grown


def test_run_without_an_estimate_has_none_in_its_record(started: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(started, "progress", said.append)
    assert started.submission(make_launch()).origin.estimate == {}
    started.estimate(Training(recipe="imagenet-90", arguments=("--data-dir", "/d")).settings, 1 << 13, "", restarts=3)
    assert "no estimate: a step on 8192 ranks uses" in said[0]
    assert started.submission(make_launch()).origin.estimate == {}
