"""A laptop's task holds part of the cluster on the master: nodes to terminate, every node, or the size of the group."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.runs.node_claims import ClaimedNode, LiveRunError, Runs
from agent.supervisor import node_reservation as holding
from tests.agent.supervisor.live_runs import Call, spec
from tests.factories import AGENT, make_node

ONE, TWO = "deeplearning-worker1=i-00000001", "deeplearning-worker2=i-00000002"


def command(efs: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "agent.supervisor.cli", "--root", str(efs / "runs"), "hold", *words]


@contextmanager
def held(efs: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Take the hold that the words describe for the duration of the block. Like a laptop's, it ends with its input."""
    process = subprocess.Popen(
        command(efs, *words),
        cwd=efs / "payloads" / AGENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        assert json.loads(process.stdout.readline()) == {"holding": True}
        yield process
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def refused(efs: Path, *words: str) -> list[dict[str, Any]]:
    """Return the current holders as reported by a rejected hold."""
    done = subprocess.run(
        command(efs, *words), cwd=efs / "payloads" / AGENT, input="", capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["held"]
    return [{key: value for key, value in each.items() if key != "run_id"} for each in found]


def test_no_run_starts_or_queues_while_all_nodes_are_reserved(efs: Path, supervisor: Call) -> None:
    with held(efs, "--every", "fab down"):
        for flags in ((), ("--queue",)):
            start = supervisor("start", *flags, stdin=spec(efs, "one", "true"))
            assert (start.returncode, "`fab down` is in progress; `fab down` uses every node" in start.stderr) == (
                3,
                True,
            )
            assert [each["task"] for each in json.loads(start.stdout)["held"]] == ["fab down"]
        assert not (efs / "runs" / "one").exists()
        assert json.loads(supervisor("status", "--live").stdout) == {"live": [], "queued": []}
        assert supervisor("status").returncode == 4, "what a task holds is no run"
        other = refused(efs, "fab scale", TWO)
        assert other == [{"hosts": [], "task": "fab down", "every": True}]
    assert supervisor("start", stdin=spec(efs, "one", "true")).returncode == 0


def test_nodes_of_runs_cannot_be_reserved(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))  # without hosts it has every node
    assert refused(efs, "fab replace", ONE) == [{"hosts": []}]
    supervisor("stop", "one", "--grace", "0")
    with held(efs, "fab replace", ONE):  # even while the run still clears its nodes
        pass


def test_reservation_waits_for_ended_run_to_clear_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fab down --force` failed if the clean-up of a run took longer than 20 s."""
    runs, waited = Runs(root=tmp_path), list[str]()
    runs.claim("one", None)
    monkeypatch.setattr(holding, "PASSING_S", 0.0)
    monkeypatch.setattr(Runs, "is_over", lambda self, run_id: run_id == "one")

    def on_wait() -> None:
        waited.append("")
        if len(waited) == 3:
            runs.release("one")

    assert holding.claim(runs, "fab down", None, on_wait)
    assert len(waited) == 3
    monkeypatch.setattr(holding, "CLEARING_S", 0.0)
    runs.release(runs.claims()[0].run_id)
    runs.claim("one", None)
    with pytest.raises(LiveRunError):
        holding.claim(runs, "fab down", None, on_wait)


def test_run_gets_only_unreserved_nodes(tmp_path: Path) -> None:
    runs = Runs(root=tmp_path)
    holding.claim(runs, "fab scale", [ClaimedNode(name="deeplearning-worker2", instance_id="i-00000002")])
    with pytest.raises(LiveRunError, match="`fab scale` is in progress; `fab scale` uses deeplearning-worker2"):
        runs.claim("one", [make_node(1), make_node(2)])
    runs.claim("one", [make_node(1)])
    assert runs.live() == ["one"]


def test_group_size_is_reserved_by_one_task_at_a_time(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    got: list[int] = []

    def second() -> None:
        with held(efs, "fab scale"):
            got.append(2)

    with held(efs, "fab train"):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(timeout=2)
        assert (waiting.is_alive(), got) == (True, [])
    waiting.join(timeout=60)
    assert got == [2]
    supervisor("stop", "one", "--grace", "0")


def test_task_that_keeps_changing_the_group_size_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "PASSING_S", 0.0)
    holding.claim(Runs(root=tmp_path), "fab train", ())
    with pytest.raises(LiveRunError, match="`fab train` is in progress"):
        holding.claim(Runs(root=tmp_path), "fab scale", ())


def test_reservation_of_killed_laptop_is_released(efs: Path) -> None:
    process = subprocess.Popen(
        command(efs, "--every", "fab down"),
        cwd=efs / "payloads" / AGENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        process.stdout.readline()
        process.kill()
        process.wait()
    runs = Runs(root=efs / "runs")
    assert (runs.held(), runs.lost(), len(runs.claims())) == ([], [], 1)
    runs.claim("one", None)
    assert [claim.run_id for claim in runs.claims()] == ["one"]
