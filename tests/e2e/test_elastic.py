"""An elastic run: rank 0 is killed, and the others go on within seconds, without a restart; its host joins again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.e2e.documented import program
from tests.e2e.rank_processes import rank_of
from tests.waiting import eventually

NODES: Final = 3


@pytest.fixture
def three(cluster: EmbeddedCloud) -> Iterator[EmbeddedCloud]:
    """Have a third worker for the time of a test."""
    cluster.fab("scale", str(NODES), "--yes")
    try:
        yield cluster
    finally:
        cluster.fab("scale", "2", "--yes")


def events(cloud: EmbeddedCloud, run: str, name: str) -> list[dict[str, Any]]:
    lines = (cloud.run(run).path / "metrics.jsonl").read_text().splitlines()
    return [event for line in lines if line.endswith("}") and (event := json.loads(line))["event"] == name]


def test_the_others_go_on_without_a_restart_where_rank_0_is_killed_and_its_host_joins_them_again(
    three: EmbeddedCloud,
) -> None:
    words = ("--nodes", str(NODES), "--recipe", "digits", "--epochs", "600", "--elastic", "--min-nodes", "2")
    started = json.loads(three.fab("train", *words, "--notify", "cat >> told", "--detach", "--yes", "--json").stdout)
    run = str(started["run_id"])
    try:
        eventually(lambda: three.run(run).last_epoch() >= 3)
        pid = rank_of(run, 0, variable="DEEPCDK_MEMBER")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        killed = time.time()
        lost = eventually(lambda: events(three, run, "reformed"))[0]
        assert (lost["ranks"], lost["lost_ranks"], lost["lost"]) == (2, "0", "deeplearning-worker1")
        print(f"from the kill to the next step {lost['time'] - killed:.1f} s")
        assert lost["time"] - killed < 30.0
        joined = eventually(lambda: events(three, run, "reformed")[1:])[0]
        assert (joined["ranks"], joined["joined"], joined["steps_lost"]) == (3, "deeplearning-worker1", 0)
        print(
            f"a host joined {joined['time'] - killed:.1f} s after the kill; the others stood {joined['seconds']:.1f} s"
        )
        three.fab("stop", "--run", run)
        record = json.loads(three.fab("show", "--run", run, "--json").stdout)
        log = three.fab("logs", "--run", run).stdout
        assert (record["state"]["state"], record["attempts"]) == ("stopped", 1), log[-6000:]
        course = record["course"]
        assert not course.get("restarts")
        first, second = course["reformed"]
        assert (first["lost"], first["ranks"]) == (["deeplearning-worker1"], 2)
        assert first["steps_lost"] in (0, 1) and first["seconds"] > 0
        assert (second["joined"], second["ranks"], second["steps_lost"]) == (["deeplearning-worker1"], 3, 0)
        shown = " ".join(three.fab("show", "--run", run).stdout.split())
        assert "for rank 0 on deeplearning-worker1 was killed; after" in shown
        told = [json.loads(line) for line in (three.run(run).path / "told").read_text().splitlines() if line]
        assert [event["event"] for event in told] == ["reformed", "reformed", "ended"]
        assert len(events(three, run, "start")) == 1, "it has read no checkpoint"
        assert three.run(run).checkpoints
    finally:
        three.fab("stop", "--run", run, "--force", check=False)


def slower(source: str) -> str:
    """Return a program that tells its steps, of which each lasts until there is a file called `quick`."""
    step = "        state.step += 1"
    lasting = '        if not os.path.exists("quick"):\n            time.sleep(0.05)'
    changed = source.replace(step, f'{lasting}\n{step}\n        print("step", state.step, flush=True)')
    assert "STEPS = 2000" in changed and changed.count("print") == 1
    return f"import os, time\n{changed}"


def test_a_program_of_ones_own_goes_on_without_its_rank_0_and_with_a_host_that_joins(
    three: EmbeddedCloud, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(slower(program("Going on without a restart")))
    words = ("train", "--nodes", str(NODES), "--payload", str(tmp_path), "--elastic", "--skip-preflight", "--yes")
    refused = three.fab(*words, "--entry", "sleep 1", check=False)
    assert refused.returncode == 1, refused.stderr
    assert "let the script of --entry import deepcdk_elastic" in " ".join(refused.stderr.split())
    run = str(json.loads(three.fab(*words, "--entry", "train.py", "--detach", "--json").stdout)["run_id"])
    try:
        eventually(lambda: "]<stdout>:step 20\n" in (three.run(run).path / "launcher.log").read_text())
        pid = rank_of(run, 0, word="train.py", variable="DEEPCDK_MEMBER")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        course = three.run(run).path / "course.json"
        eventually(lambda: len(json.loads(course.read_text()).get("reformed", ())) == 2)
        (three.run(run).path / "work/quick").touch()
        eventually(lambda: three.run(run).state in ("succeeded", "failed"))
        record = json.loads(three.fab("show", "--run", run, "--json").stdout)
        log = three.fab("logs", "--run", run).stdout
        assert (record["state"]["state"], record["attempts"]) == ("succeeded", 1), log[-6000:]
        lost, joined = record["course"]["reformed"]
        assert (lost["lost"], lost["ranks"]) == (["deeplearning-worker1"], 2)
        assert (joined["joined"], joined["ranks"]) == (["deeplearning-worker1"], 3)
        assert lost["steps_lost"] in (0, 1) and joined["steps_lost"] == 0
        weights = np.load(three.run(run).path / "work/weights.npy")
        np.testing.assert_allclose(weights, np.arange(8.0), atol=1e-6)
    finally:
        three.fab("stop", "--run", run, "--force", check=False)
