"""Runs side by side on disjoint nodes of one cluster: each has its own nodes, and its record tells its own story."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

HOLD: Final = """\
import pathlib, platform, time
print("holding", platform.node(), flush=True)
while not pathlib.Path("../go").exists():
    time.sleep(0.2)
print("let go", flush=True)
"""
"""A program whose ranks work until a file appears in the run's directory."""


@pytest.fixture
def four_workers(cluster: EmbeddedCloud) -> Iterator[EmbeddedCloud]:
    """Give the shared cluster four workers; leave it with two, and no run."""
    cluster.fab("scale", "4", "--yes")
    yield cluster
    for run_id, run in runs(cluster).items():
        if run["state"] in ("queued", "starting", "running"):
            cluster.fab("stop", run_id, "--force", check=False)
    cluster.fab("scale", "2", "--force", "--yes")


def runs(cloud: EmbeddedCloud) -> dict[str, dict[str, Any]]:
    """Return the state of each run by its id."""
    return {str(run["run_id"]): run for run in json.loads(cloud.fab("runs", "--json").stdout)}


def record(cloud: EmbeddedCloud, run: str) -> dict[str, Any]:
    """Return what is known of a run."""
    found: dict[str, Any] = json.loads(cloud.fab("show", run, "--json").stdout)
    return found


def start(cloud: EmbeddedCloud, nodes: int, *words: str) -> str:
    """Start a run on so many nodes and leave it; return its id."""
    flags = ("--nodes", str(nodes), "--skip-preflight", "--restarts", "0", "--yes", "--detach")
    said = cloud.fab("train", *flags, *words).stdout
    found = re.search(r"run (\S+): \d+ ranks?", said)
    assert found is not None, said
    return found[1]


def test_of_three_runs_one_is_stopped_one_loses_its_node_and_a_fourth_waits(
    four_workers: EmbeddedCloud, tmp_path: Path
) -> None:
    cloud = four_workers
    (tmp_path / "hold.py").write_text(HOLD)
    hold = ("--payload", str(tmp_path), "--entry", "hold.py")
    pair = start(cloud, 2, *hold)
    steady = start(cloud, 1, *hold)
    unlucky = start(cloud, 1, *hold)
    three = (pair, steady, unlucky)
    eventually(lambda: {cloud.run(run).state for run in three} == {"running"}, what=lambda: runs(cloud))
    hosts = {run: tuple(runs(cloud)[run]["hosts"]) for run in three}
    assert [len(hosts[run]) for run in three] == [2, 1, 1]
    assert sorted(sum(hosts.values(), ())) == [f"deeplearning-worker{index}" for index in range(1, 5)]

    refused = cloud.fab("train", "--nodes", "2", "--yes", *hold, check=False)
    assert refused.returncode == 1
    for run in three:
        assert f"run {run} is live on {', '.join(hosts[run])}" in refused.stderr.replace("\n", " ")
    assert "wait your turn with --queue, add nodes with `fab scale 6`" in refused.stderr
    waiting = start(cloud, 2, "--queue", *hold)
    assert (cloud.run(waiting).state, runs(cloud)[waiting]["position"]) == ("queued", 1)
    unnamed = cloud.fab("stop", check=False)
    assert (unnamed.returncode, "3 runs are live, name one of them" in unnamed.stderr) == (1, True), unnamed.stderr
    loads = json.loads(cloud.fab("status", "--load", "--json").stdout)["load"]
    shown = {each["name"]: each["run"] for each in loads if each["run"]}
    assert shown == {name: run for run, names in hosts.items() for name in names}
    kept = cloud.fab("scale", "3", "--yes", check=False)
    assert (kept.returncode, "would take nodes from run" in kept.stderr) == (1, True), kept.stderr

    address = next(host["address"] for host in record(cloud, unlucky)["spec"]["hosts"])
    lost = next(i["InstanceId"] for i in cloud.instances("worker") if i["PrivateIpAddress"] == address)
    cloud.aws("ec2", "terminate-instances", "--instance-ids", lost)
    eventually(lambda: cloud.run(unlucky).state == "failed", what=lambda: runs(cloud)[unlucky])
    assert cloud.run(waiting).state == "queued", "one node less is no node free for it"
    cloud.fab("stop", pair)
    eventually(lambda: cloud.run(waiting).state == "running", what=lambda: runs(cloud)[waiting])
    assert cloud.run(steady).state == "running"
    held = [cloud.run(run) for run in (steady, waiting)]
    for run_files in held:
        (run_files.path / "go").touch()
    eventually(lambda: {each.state for each in held} == {"succeeded"}, what=lambda: runs(cloud))

    records = {run: record(cloud, run) for run in (*three, waiting)}
    told = {run: (found["state"]["state"], found["state"]["reason"]) for run, found in records.items()}
    assert told[pair] == ("stopped", "stopped on request")
    assert told[steady] == told[waiting] == ("succeeded", "")
    assert told[unlucky][0] == "failed" and hosts[unlucky][0] in told[unlucky][1], told[unlucky]
    assert not [name for run in (pair, steady) for name in hosts[run] if name in told[unlucky][1]]
    assert [found["attempts"] for found in records.values()] == [1, 1, 1, 1]
    assert records[waiting]["state"]["started"] >= records[pair]["course"]["times"]["ended"]
    assert not set(records[waiting]["state"]["hosts"]) & set(hosts[steady])
    for run, others in ((steady, (pair, unlucky, waiting)), (waiting, (pair, steady, unlucky))):
        log = (cloud.run(run).path / "launcher.log").read_text()
        assert log.count("let go") == len(records[run]["state"]["hosts"])
        assert not [other for other in others if other in log]
