"""A rank that computes longer than the others is reported while the run continues."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final

from cluster import demo
from tests.e2e.conftest import ROOT, EmbeddedCloud
from tests.e2e.hostile.nodes import Cluster
from tests.waiting import eventually

WORKER: Final = "deeplearning-worker2"
"""The node of rank 1."""
EVEN: Final = "/tmp/no-more-hindrance"
HINDER: Final = f"""\
rm -f {EVEN}
until pgrep -f '[-]m payload.train' >/dev/null; do sleep 0.2; done
echo found
until [ -e {EVEN} ]; do
    pkill -STOP -f '[-]m payload.train'; sleep 0.3
    pkill -CONT -f '[-]m payload.train'; sleep 0.1
done
rm {EVEN}
"""
"""Stops a rank for three quarters of the time, like a noisy neighbor, heat or a bad disk."""


@contextlib.contextmanager
def hindered(nodes: Cluster) -> Iterator[None]:
    """Slow down the ranks of one node for the duration of a block."""
    command = demo.localcloud("exec", "--name", nodes.cloud.name, nodes.ids[WORKER], "--", "sh", "-c", HINDER)
    with subprocess.Popen(command, cwd=ROOT, env=demo.environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "found\n"
            yield
        finally:
            nodes.shell(WORKER, f"touch {EVEN}")
            process.wait(timeout=60)


def events(cluster: EmbeddedCloud, run: str) -> list[dict[str, Any]]:
    """Return the stragglers that rank 0 has reported so far."""
    metrics = cluster.run(run).path / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return [record for record in records if record["event"] == "straggler"]


def test_straggler_is_reported_during_the_run(cluster: EmbeddedCloud) -> None:
    nodes = Cluster(cluster)
    words = ("--nodes", "2", "--epochs", "3000", "--skip-preflight", "--detach", "--yes", "--json")
    run = str(json.loads(cluster.fab("train", *words).stdout)["run_id"])
    try:
        with hindered(nodes):
            (told,) = eventually(lambda: events(cluster, run))
            assert (told["rank"], told["host"], told["is_over"]) == (1, WORKER, False)
            assert told["own_s"] > 1.5 * told["median_s"] > 0
            assert 0.1 < told["lost"] <= 1
            (listed,) = (each for each in json.loads(cluster.fab("runs", "--json").stdout) if each["run_id"] == run)
            assert (listed["state"], listed["reason"]) == ("running", f"straggler: rank 1 ({WORKER})")
        log = cluster.fab("logs", "--run", run).stdout
        assert f"payload.train: warning: rank 1 ({WORKER}) is a straggler: its own part of a step takes " in log
    finally:
        cluster.fab("stop", "--run", run, "--force", check=False)
