"""The program in docs/scripts.md that saves its own state: killed twice, it ends like an undisturbed run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.e2e.documented import program
from tests.e2e.rank_processes import rank_of
from tests.waiting import eventually

EVERY: Final = 20
STEPS: Final = 1200
KILLS: Final = 2
"""One kill per rank."""


def documented() -> str:
    """Return the program with slow steps, until a file named `quick` exists, and with more checkpoints."""
    found = program("Restarts and checkpoints").replace(
        "STEPS, EVERY, SAVED = 2000, 100,", f"STEPS, EVERY, SAVED = {STEPS}, {EVERY},"
    )
    lasting = '    if not os.path.exists("quick"):\n        time.sleep(0.05)'
    changed = found.replace("    error = x", f"{lasting}\n    error = x")
    changed = changed.replace("0.05 * gradient", "0.0005 * gradient")  # otherwise all variants end equal
    assert changed.count("sleep") == 1 and f"= {STEPS}, {EVERY}" in changed and "0.0005" in changed
    return changed


def hurry(cloud: EmbeddedCloud, run: str) -> None:
    """Make the steps as short as possible."""
    eventually(lambda: (cloud.run(run).path / "work").is_dir())
    (cloud.run(run).path / "work/quick").touch()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "train.py").write_text(documented())
    yield tmp_path


def start(cloud: EmbeddedCloud, project: Path) -> str:
    """Start the program on two nodes; return the run's id."""
    words = ("--payload", str(project), "--entry", "train.py", "--restarts", str(KILLS), "--skip-preflight")
    said = cloud.fab("train", "--nodes", "2", *words, "--yes", "--detach", "--json").stdout
    return str(json.loads(said)["run_id"])


def events(cloud: EmbeddedCloud, run: str) -> list[dict[str, Any]]:
    path = cloud.run(run).path / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def saved(cloud: EmbeddedCloud, run: str) -> tuple[int, bytes]:
    with np.load(cloud.run(run).path / "work/saved.npz") as found:
        return int(found["step"]), found["weights"].tobytes()


def test_program_with_killed_ranks_has_same_result_as_undisturbed_one(cluster: EmbeddedCloud, project: Path) -> None:
    undisturbed, run = start(cluster, project), ""
    try:
        hurry(cluster, undisturbed)
        eventually(lambda: cluster.run(undisturbed).state == "succeeded")
        run = start(cluster, project)
        for kill in range(KILLS):

            def has_gone_on(attempt: int = kill + 1) -> bool:
                """Return whether this attempt has made a few steps since its last checkpoint."""
                told = events(cluster, run)
                starts = [place for place, event in enumerate(told) if event["event"] == "start"]
                return len(starts) == attempt and len(told) - starts[-1] > EVERY + 5

            eventually(has_gone_on)
            pid = rank_of(run, kill % 2, word="train.py")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        hurry(cluster, run)
        eventually(lambda: cluster.run(run).state in ("succeeded", "failed"))
        record = json.loads(cluster.fab("show", "--run", run, "--json").stdout)
        assert (record["state"]["state"], record["attempts"]) == ("succeeded", KILLS + 1), record["state"]
        assert saved(cluster, run) == saved(cluster, undisturbed)
        assert saved(cluster, run)[0] == STEPS
        faults = [restart["for"] for restart in record["course"]["restarts"]]
        assert [fault.split()[1] for fault in faults] == [str(kill % 2) for kill in range(KILLS)]
        assert all("status 137" in fault for fault in faults), faults
        costs = record["restart_costs"]
        assert [cost["went_on_at"] % EVERY for cost in costs] == [0] * KILLS
        steps = [event["total_steps"] for event in events(cluster, run) if event["event"] == "step"]
        assert len(steps) == STEPS + sum(cost["steps_lost"] for cost in costs), "each is told, and the lost ones twice"
        assert sorted({*steps}) == list(range(1, STEPS + 1))
        assert all(0 <= cost["steps_lost"] < 2 * EVERY and cost["seconds"] > 0 and cost["usd"] > 0 for cost in costs)
        shown = " ".join(cluster.fab("show", "--run", run).stdout.split())
        assert shown.count("without a step, about $") == KILLS
        print(
            f"without a step: {[cost['seconds'] for cost in costs]} s; lost: {[cost['steps_lost'] for cost in costs]}"
        )
    finally:
        for each in filter(None, (undisturbed, run)):
            cluster.fab("stop", "--run", each, "--force", check=False)
