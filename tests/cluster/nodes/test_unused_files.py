"""`fab clean` on the laptop: its list, its questions, and its requests to the nodes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agent.spec.laptop_requests import RemoteCommand
from cluster.cli import PROJECT
from cluster.cli.program import make_program
from cluster.master_answers import AnswerError
from cluster.nodes import unused_files
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.unused_files import SHARED, Leftover, Leftovers, summary, unused
from cluster.session import Session
from tests.factories import make_inventory, make_master, make_node, make_program_spec, make_stack


class Cluster:
    """A master and worker 1 with commands that run on this machine, separate homes and a shared file system."""

    def __init__(self, root: Path) -> None:
        self.root, self.where = root, "admin@198.51.100.7"
        self.mount = root / "efs"
        self.calls: list[Sequence[str]] = []
        for folder in ("runs", "payloads"):
            (self.mount / folder).mkdir(parents=True)

    def run(self, home: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        words = list(command[command.index("-m") :])
        self.calls.append(words)
        text = "from agent.supervisor import clean; import sys; clean.own_addresses = lambda: {ADDRESS: 'eth0'}; "
        text = text.replace("ADDRESS", repr(make_master().address if home == "master" else make_node().address))
        text += "sys.exit(clean.main(sys.argv[1:]))"
        environment = {**os.environ, "HOME": str(self.root / home), "PYTHONPATH": str(PROJECT)}
        return subprocess.run(
            [sys.executable, "-c", text, *words[2:]], env=environment, capture_output=True, text=True, check=True
        )

    def check(self, command: Sequence[str], **_: Any) -> Any:
        return mock.Mock(text=self.run("master", command).stdout)


def make_host_result(stdout: str) -> Any:
    result = mock.Mock(failed=False, stdout=stdout.encode())
    result.name = make_node().name
    return result


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)

    def fan_out(_master: object, _directory: str, request: RemoteCommand, _listener: None) -> list[Any]:
        return [make_host_result(made.run("worker", request.command).stdout)]

    monkeypatch.setattr("cluster.ssh.command_on_nodes.run", fan_out)
    monkeypatch.setattr(unused_files, "RANK_HOME", str(tmp_path / "rank"))
    return made


def fill(cluster: Cluster) -> tuple[Path, Path, Path, Path]:
    """Create a kept run, an unused tree, an unused environment and an unused data set."""
    spec = make_program_spec(efs_mount=str(cluster.mount))
    run = cluster.mount / "runs" / spec.run_id
    run.mkdir()
    (run / "state.json").write_text("{}")
    (run / "spec.json").write_text(spec.to_json())
    kept = cluster.mount / "payloads" / spec.program
    tree = cluster.mount / "payloads" / ("1" * 16)
    layer = cluster.root / "worker" / ".cache" / "deepcdk" / "layers" / ("2" * 16)
    data = cluster.root / "rank" / "data" / "digits"
    for path in (kept / "program", tree / "program", layer, data):
        path.mkdir(parents=True)
        (path / "file").write_bytes(b"x" * 2_000_000)
    (data.parent / "digits.manifest").touch()
    return kept, tree, layer, data


def test_unused_files_are_found_and_removed_on_all_nodes(cluster: Cluster) -> None:
    """Source: ray-project/ray #55898."""
    kept, tree, layer, data = fill(cluster)
    nodes = [make_master(), make_node()]
    asked = Leftovers(cluster, make_stack(efs_mount=str(cluster.mount)), "/tree", "/shared")  # type: ignore[arg-type]
    found = unused(asked.all(nodes))
    worker = nodes[1].name
    assert {(each.place, each.path) for each in found} == {
        *((SHARED, str(tree)), (worker, str(layer)), (worker, str(data))),
    }
    assert summary(asked.shared()) == ("uploads on the shared file system: program 4.0 MB; `fab clean` frees 2.0 MB")
    assert {each.path for each in asked.remove(found, nodes)} == {str(tree), str(layer), str(data)}
    assert kept.exists() and not tree.exists() and not layer.exists() and not data.exists()
    assert unused(asked.all(nodes)) == []


def test_node_that_fails_is_reported_and_left_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    failed = mock.Mock(failed=True, reason="not reached: no route")
    failed.name = node.name
    monkeypatch.setattr("cluster.ssh.command_on_nodes.run", lambda *_: [failed])
    asked = Leftovers(cluster, make_stack(efs_mount=str(cluster.mount)), "/tree", "/shared")  # type: ignore[arg-type]
    data = Leftover(place=node.name, kind="data", path=str(cluster.root / "rank" / "data" / "x"), size=1)
    assert asked.remove([data], [make_master(), node]) == []
    said = "warning: worker1: unused files were not removed; to try again, repeat `fab clean`: not reached: no route"
    assert said in " ".join(capsys.readouterr().err.split())


def test_task_asks_and_skips_master_and_nodes_of_live_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, tree, layer, _ = fill(cluster)
    masters = cluster.root / "master" / ".cache" / "deepcdk" / "environments" / ("3" * 16)
    masters.mkdir(parents=True)
    stack = make_stack(efs_mount=str(cluster.mount))
    supervisor = mock.Mock(directory="/tree")
    supervisor.hold.return_value = contextlib.nullcontext()
    supervisor.occupancy.return_value = Occupancy(hosts={"x": (make_node().name,)})
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(Session, "load_inventory", lambda _: make_inventory(1))
    monkeypatch.setattr(Session, "stack", stack)
    monkeypatch.setattr(Session, "connect", lambda _: contextlib.nullcontext(cluster))
    monkeypatch.setattr(Session, "nodes", lambda *_: (make_master(), make_node()))
    monkeypatch.setattr(Session, "supervisor", lambda *_: supervisor)

    def fab(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fab", "clean", *words])
        status = 0
        try:
            make_program().run(exit=True)
        except SystemExit as error:
            status = int(error.code or 0)
        return status, *capsys.readouterr()

    status, out, err = fab("--dry-run")
    assert status == 0 and str(tree) in out and "2.0 MB" in out
    assert str(layer) not in out and str(masters) not in out
    assert "because runs are live: the disks of master, worker1" in err
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123
    status, _, err = fab()
    assert (status, "remove 1 directories, 2.0 MB" in err, "give --yes" in err) == (1, True, True)
    assert tree.exists()
    supervisor.occupancy.return_value = Occupancy()
    assert fab("--yes")[1].endswith("removed: 4 directories, 6.0 MB\n")
    supervisor.hold.assert_called_once_with("fab clean", {make_node().name: make_node().instance_id})
    assert json.loads(fab("--json", "--yes")[1]) == {"unused": [], "removed": []}


def test_malformed_answer_is_ignored(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Leftovers(cluster, make_stack(efs_mount=str(cluster.mount)), "/tree", "/shared")  # type: ignore[arg-type]
    for text in ("[]", '{"items": [{"kind": "x", "path": 3, "size": 1, "used": false}]}', "x"):
        monkeypatch.setattr(cluster, "check", mock.Mock(return_value=mock.Mock(text=text)))
        with pytest.raises(AnswerError):
            asked.shared()


def test_empty_sizes_are_described() -> None:
    assert summary([]) == "uploads on the shared file system: none"
    used = Leftover(place=SHARED, kind="wheels", path="/w", size=5, used=True)
    assert summary([used]) == "uploads on the shared file system: wheels 5 bytes"
