"""Runs that are hurt on purpose end by themselves, as well as one that is left alone. `make chaos` tries more seeds.

Every other seed's run is elastic. With the seeds of every `make test` half of the hosts end at once, the host of rank 0
and the master do, a notice comes while a checkpoint is written, and a second fault meets a recovery.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.conftest import EmbeddedCloud, start_cloud
from tests.waiting import eventually

SEEDS: Final = tuple(map(int, os.environ.get("CHAOS_SEEDS", "6 7 8").split()))
"""Seeds to try; without the variable those of every `make test`."""
NODES: Final = int(os.environ.get("CHAOS_NODES", "8"))
KINDS: Final = os.environ.get(
    "CHAOS_KINDS",
    "kill-rank,freeze-rank,kill-host,kill-half,kill-first-host,cut,flip-bit,spot-notice,"
    "kill-supervisor@master,kill-host@master",
)
EPOCHS: Final = 40
CHECKPOINTS: Final = "*/runs/*/checkpoints"
SCHEDULE: Final = (
    *("--kinds", KINDS, "--hosts", "worker", "--supervisor", "supervisor.cli .* supervise "),
    *("--flip", f"{CHECKPOINTS}/step-*/arrays.safetensors", "--writing", f"{CHECKPOINTS}/.partial-step-*"),
    *("--notice", "60"),  # ranks are asked at once: while the checkpoint is written
    *("--first", "5", "--every", "25", "--close", "0.3", "--longest", "40", "--duration", "75"),
)
pytestmark = pytest.mark.timeout(2400)  # The first seed's includes the deployment and a run that is left alone.
POINT: Final = 0.01
LONGEST_S: Final = 1200.0
"""How long a run may take to end once the faults are over, s: it hangs where it takes longer."""


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedCloud]:
    """Start a cloud that other tests do not use, and deploy spot instances on it."""
    with start_cloud(f"c{os.getpid()}") as cloud:
        cloud.fab("up", "--yes", "--set", "spot=true")
        cloud.fab("scale", str(NODES), "--yes")
        yield cloud


def trained(cloud: EmbeddedCloud, *words: str) -> str:
    """Start a run on all hosts and leave it; return its id."""
    run = ("--nodes", str(NODES), "--recipe", "digits", "--epochs", str(EPOCHS))
    said = cloud.fab("train", *run, *words, "--skip-preflight", "--yes", "--detach", "--json").stdout
    return str(json.loads(said)["run_id"])


def ended(cloud: EmbeddedCloud, run: str) -> dict[str, Any]:
    """Wait for the end of a run; return its record."""
    eventually(lambda: cloud.run(run).state in ("succeeded", "failed", "stopped"), LONGEST_S)
    found: dict[str, Any] = json.loads(cloud.fab("show", "--run", run, "--json").stdout)
    return found


@pytest.fixture(scope="module")
def undisturbed(own: EmbeddedCloud) -> float:
    """Return the accuracy of a run that is left alone."""
    found = ended(own, trained(own))
    assert found["state"]["state"] == "succeeded", found["state"]
    return float(found["result"]["test_accuracy"])


def check_samples(cloud: EmbeddedCloud, run: str) -> None:
    """Check that each epoch that counts was made of every image once, and left all ranks with the same weights.

    The part of the images that were right is told to six digits: of another number of them it is no whole one.
    """
    lines = (cloud.run(run).path / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if line.endswith("}")]
    (images,) = {event["train_images"] for event in events if event["event"] == "start"}
    epochs = {event["epoch"]: event for event in events if event["event"] == "epoch"}  # the last of each
    assert sorted(epochs) == list(range(1, EPOCHS + 1))
    for epoch in epochs.values():
        right = epoch["train_accuracy"] * images
        assert math.isclose(right, round(right), abs_tol=images * 1e-6), epoch
        assert epoch["weights_agree"] and not epoch["skipped_records"], epoch


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_with_faults_ends_by_itself_with_the_accuracy_of_one_without(
    own: EmbeddedCloud, undisturbed: float, tmp_path: Path, seed: int
) -> None:
    elastic = () if seed % 2 else ("--elastic", "--min-nodes", str(NODES // 2))
    run = trained(own, "--restarts", "20", *elastic)
    try:
        eventually(lambda: own.run(run).checkpoints)
        record = tmp_path / "chaos.jsonl"
        own.localcloud("chaos", "--seed", str(seed), *SCHEDULE, "--record", str(record), timeout_s=600.0)
        events = [json.loads(line) for line in record.read_text().splitlines()]
        done = [event["kind"] for event in events if "what" in event]
        assert done, events
        assert not [event for event in events if "not_undone" in event], events
        found = ended(own, run)
        course = found["course"]
        story = f"{found['state']['reason']}\n{course.get('restarts')}\n{course.get('reformed')}\n{record.read_text()}"
        print(story)
        log = own.fab("logs", "--run", run).stdout
        assert found["state"]["state"] == "succeeded", f"{story}\n{log[-6000:]}"
        assert found["result"]["epochs"] == EPOCHS
        assert found["result"]["test_accuracy"] >= undisturbed - POINT, story
        assert len(course.get("restarts", [])) <= len(done), story
        check_samples(own, run)
    finally:
        own.fab("stop", "--run", run, "--force", check=False)
        # The faults of the next run are drawn from as many hosts.
        eventually(lambda: len(own.instances("worker")) >= NODES, 300.0)
