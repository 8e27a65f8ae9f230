"""A sweep end to end: 18 trainings are queued, run concurrently, and are compared by their parameters."""

from __future__ import annotations

import csv
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

PROGRAM: Final = """\
import os, sys

rate = float(sys.argv[1])
if rate > 1:
    sys.exit(f"rate {rate} is too large")
print("rate", rate, "seed", os.environ["DEEPCDK_SEED"])
"""
"""A program that rejects some values."""


@pytest.fixture(autouse=True)
def two_workers(cluster: EmbeddedCloud) -> Iterator[None]:
    """Restore two workers and no runs on the shared cluster, even after a failed test."""
    yield
    for run in runs(cluster):
        if run["state"] in ("queued", "starting", "running"):
            cluster.fab("stop", str(run["run_id"]), "--force", check=False)
    if len(cluster.instances("worker")) != 2:
        cluster.fab("scale", "--nodes", "2", "--force", "--yes", check=False)


@pytest.fixture
def name() -> str:
    """Return a sweep name that the cluster does not have, even if its cloud keeps running."""
    return f"sweep-{secrets.token_hex(3)}"


def runs(cloud: EmbeddedCloud, *words: str) -> list[dict[str, Any]]:
    """Return the state of all runs, oldest first."""
    found: list[dict[str, Any]] = json.loads(cloud.fab("runs", "--json", *words).stdout)
    return found


def ended(cloud: EmbeddedCloud, name: str) -> list[dict[str, Any]] | None:
    """Return the runs of a sweep once all of them have ended."""
    found = runs(cloud, "--sweep", name)
    return found if all(run["state"] in ("succeeded", "failed", "stopped") for run in found) else None


def test_eighteen_trainings_are_compared_by_environment_and_augmented_epochs(
    cluster: EmbeddedCloud, tmp_path: Path, name: str
) -> None:
    """Repeat the protocol of the Fashion-MNIST benchmark: three environments, three numbers of epochs, two runs each.

    Batch sizes replace the environments, which differ in speed.
    """
    grid = ("--grid", "batch-per-rank=64,128,256", "--grid", "augmented-epochs=0,1,2", "--repeats", "2")
    limits = ("--epochs", "1", "--skip-preflight", "--", "--train-limit", "256", "--rotation-deg", "10")
    asked = cluster.fab("sweep", "--recipe", "digits", *grid, *limits, check=False)
    assert asked.returncode == 1
    assert "18 runs, 2 at a time: about " in asked.stderr and "for their workers" in asked.stderr

    started = json.loads(cluster.fab("sweep", "--name", name, "--json", "--yes", *grid, *limits).stdout)
    assert [run["seed"] for run in started["runs"]] == [1] * 9 + [2] * 9
    found = eventually(lambda: ended(cluster, name), timeout_s=900)
    assert [run["state"] for run in found] == ["succeeded"] * 18

    page = tmp_path / "compared"
    printed = cluster.fab("compare", name, "--format", "html,md,json,csv", "--into", f"{page}/").stdout
    assert printed.count("2 of 2") == 9
    lines = [*csv.DictReader((page / f"{name}.csv").read_text().splitlines())]
    by_parameters: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        by_parameters.setdefault((line["batch-per-rank"], line["augmented-epochs"]), set()).add(line["seed"])
        assert 0 < float(line["test_accuracy"]) <= 1 and float(line["seconds"]) > 0
    assert by_parameters == {(batch, epochs): {"1", "2"} for batch in ("64", "128", "256") for epochs in "012"}
    document = json.loads((page / f"{name}.json").read_text())
    epochs = {run["trial"]["parameters"][1][1]: len(run["curves"]["epochs"]) for run in document["succeeded"]["runs"]}
    assert epochs == {"0": 1, "1": 2, "2": 3}
    html = (page / f"{name}.html").read_text()
    assert "Time by augmented-epochs" in html and "Test accuracy by batch-per-rank" in html

    nothing = cluster.fab("sweep", "--resume", name, "--yes", check=False)
    assert f"sweep {name} has no missing runs" in nothing.stderr
    named = cluster.fab("sweep", "--name", name, "--yes", *grid, *limits, check=False)
    assert "is the name of an earlier sweep" in named.stderr


def test_value_that_the_program_rejects_holds_the_others_until_they_are_resumed(
    cluster: EmbeddedCloud, tmp_path: Path, name: str
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ("--payload", str(tmp_path), "--entry", "train.py {rate}", "--skip-preflight", "--yes")
    cluster.fab("sweep", "--name", name, "--grid", "rate=5,0.1,0.2,7", *words)
    first, *others = eventually(lambda: ended(cluster, name))
    assert (first["state"], first["trial"]["parameters"]) == ("failed", [["rate", "5"]])
    assert {run["state"] for run in others} == {"stopped"}
    why = f"{first['run_id']}, the first run of sweep {name}, failed immediately"
    assert all(why in run["reason"] for run in others)

    cluster.fab("sweep", "--resume", name, "--yes")
    again = eventually(lambda: ended(cluster, name))[4:]
    assert [(run["trial"]["parameters"][0][1], run["state"]) for run in again] == [
        ("0.1", "succeeded"), ("0.2", "succeeded"), ("7", "failed"), ("5", "failed"),
    ]  # fmt: skip
    log = cluster.fab("logs", again[0]["run_id"]).stdout
    assert "rate 0.1 seed 1" in log
    compared = cluster.fab("compare", name, "--into", f"{tmp_path}/").stdout
    assert "1 of 1" in compared and "rate=7" in compared


def test_runs_that_no_longer_fit_are_reported_and_a_sweep_stops_as_a_whole(
    cluster: EmbeddedCloud, tmp_path: Path, name: str
) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(3600)\n")
    words = ("--payload", str(tmp_path), "--entry", "train.py {x}", "--skip-preflight", "--together", "no", "--yes")
    cluster.fab("sweep", "--name", name, "--grid", "x=1,2,3", "--nodes-each", "2", *words)
    eventually(lambda: runs(cluster, "--sweep", name)[0]["state"] == "running")
    cluster.fab("scale", "--nodes", "1", "--force", "--yes")
    found = eventually(
        lambda: [run["reason"] for run in runs(cluster, "--sweep", name) if "2 nodes requested" in run["reason"]]
    )
    assert found[0].startswith("waiting: ")
    cluster.fab("stop", "--sweep", name, "--force")
    assert {run["state"] for run in runs(cluster, "--sweep", name)} == {"stopped"}
