"""`fab train`: a dry run starts nothing, and shows what would be added and launched."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.aws import worker_limits
from cluster.cli import CODE
from cluster.cli.program import make_program
from cluster.errors import DeepcdkError
from cluster.runs import launch, train_request
from cluster.session import Session
from cluster.tasks import bench, resume, train
from stacks.config import ClusterConfig
from tests.factories import make_inventory, make_master, make_nodes

DryRun = Callable[..., tuple[list[str], str]]


@pytest.fixture
def dry_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> DryRun:
    """Return a function that calls `fab train --dry-run` with two workers; it returns output lines and stderr."""
    deployed = make_inventory(2)
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(Session, "load_inventory", lambda _: deployed)
    monkeypatch.setattr(Session, "stack", deployed.stack)
    monkeypatch.setattr(Session, "connect", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(Session, "nodes", lambda *_: (make_master(), *make_nodes(2)))
    monkeypatch.setattr("cluster.aws.prices.Prices.begin", lambda *_: None)
    monkeypatch.setattr(worker_limits, "read_or_explain", lambda *_: None)
    monkeypatch.setattr(launch, "read_roots", lambda *_: None)

    def call(*words: str) -> tuple[list[str], str]:
        monkeypatch.setattr("sys.argv", ["fab", "train", "--dry-run", *words])
        with contextlib.suppress(SystemExit):
            make_program().run()
        printed = capsys.readouterr()
        return printed.out.splitlines(), printed.err

    return call


def test_dry_run_shows_added_nodes_and_the_launchers_command(dry_run: DryRun) -> None:
    lines, _ = dry_run("--nodes", "3", "--", "--seed", "7")
    assert lines[0] == "# 2 of 3 nodes are ready; these would be added first: deeplearning-worker3"
    assert "-H deeplearning-worker1:1,deeplearning-worker2:1,deeplearning-worker3:1" in lines[2]
    assert lines[-1].endswith("--seed 7")


@pytest.mark.parametrize("kind", ["project", "home", "root", "checkout"])
def test_payload_is_the_project_if_an_entry_is_given(
    dry_run: DryRun, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = {"root": Path("/"), "home": tmp_path}.get(kind, tmp_path / "project")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("import horovod.tensorflow as hvd\nhvd.init()\n")
    config = ClusterConfig()
    monkeypatch.setattr("cluster.session.read_config", lambda *_, **__: config)
    monkeypatch.setattr("cluster.tasks.train.PROJECT", project)
    if kind == "checkout":
        monkeypatch.setattr("cluster.tasks.train.CODE", project)
    lines, message = dry_run("--nodes", "2", "--entry", "train.py --seed 7")
    if kind == "project":
        assert lines[0] == f"--payload is not given, so the program is in the project {project}", message
        assert lines[-1].endswith("train.py --seed 7")
    else:
        assert "--entry = 'train.py --seed 7': needs --payload" in message


def test_dry_run_prints_the_warnings_of_the_start(
    dry_run: DryRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = (make_master(), *make_nodes(2, kind="x86_64-py3.12"))
    monkeypatch.setattr(Session, "nodes", lambda *_: there)
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("import os, torch\nos.environ['RANK']\ntorch.cuda.set_device(0)\n")
    lines, message = dry_run("--payload", str(project), "--entry", "train.py", "--launcher", "plain")
    assert "warning: train.py:3 uses torch.cuda.set_device, but the nodes have no GPU." in lines, (lines, message)
    assert lines[-1].endswith("train.py")


@pytest.mark.parametrize(
    "words",
    ["train --nodes 2", "train --nodes 2 --payload . --entry train.py", "bench", "resume 20261120-121314-digits-ab12"],
)
def test_record_describes_the_code_that_runs(
    dry_run: DryRun, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project around a recipe or a benchmark contains code that the run does not use."""
    (tmp_path / "train.py").write_text("import horovod.tensorflow as hvd\nhvd.init()\n")
    monkeypatch.chdir(tmp_path)
    config, found = ClusterConfig(), list[Path]()
    monkeypatch.setattr("cluster.session.read_config", lambda *_, **__: config)

    def launched(_: Session, source: Path, **__: object) -> None:
        found.append(source)
        raise DeepcdkError("stopped here")

    for module in (resume, bench, train):
        monkeypatch.setattr(module, "PROJECT", tmp_path)
    for module in (resume, bench, train_request):
        monkeypatch.setattr(module, "Launch", launched)
    monkeypatch.setattr("sys.argv", ["fab", *words.split()])
    with contextlib.suppress(SystemExit):
        make_program().run()
    assert found == [tmp_path if "--payload" in words else CODE]
