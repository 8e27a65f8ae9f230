"""A run on four hosts without a spare recovers by itself from a killed rank and from a permanently lost host."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud, start_cloud
from tests.e2e.rank_processes import rank_of
from tests.waiting import eventually

NODES: Final = 4
EPOCHS: Final = 60


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedCloud]:
    """Deploy four workers on a separate cloud: the test cuts one of them off."""
    with start_cloud(f"w{os.getpid()}") as cloud:
        four = dataclasses.replace(cloud, settings=tuple(demo.settings(NODES)))
        four.fab("up", "--yes")
        yield four


def replaced_hosts(cloud: EmbeddedCloud, run: str) -> list[dict[str, Any]]:
    """Return the replacements of a run's hosts."""
    found: list[dict[str, Any]] = json.loads((cloud.run(run).path / "course.json").read_text()).get("replaced", [])
    return found


def has_trained(cloud: EmbeddedCloud, run: str, attempt: int) -> bool:
    """Return whether an attempt has completed steps."""
    path = cloud.run(run).path / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    events = [json.loads(line)["event"] for line in lines if line.endswith("}")]
    starts = [place for place, event in enumerate(events) if event == "start"]
    return len(starts) == attempt and "epoch" in events[starts[-1] :]


def test_master_may_have_only_its_own_workers_replaced(own: EmbeddedCloud) -> None:
    (master,) = own.instances("master")
    mark = "aws autoscaling set-instance-health --health-status Healthy --region us-east-1 --instance-id"

    def trouble(instance: str, *where: str) -> str:
        done = own.fab("run", *where, "--", "sh", "-c", f"{mark} {instance}", check=False)
        return done.stdout + done.stderr

    worker = own.instances("worker")[0]["InstanceId"]
    assert "AccessDenied" in trouble(master["InstanceId"], "--master")
    assert "AccessDenied" in trouble(worker, "--nodes", "1")
    assert "error occurred" not in trouble(worker, "--master")


def test_run_continues_after_killed_rank_and_unreachable_host(own: EmbeddedCloud) -> None:
    words = ("train", "--nodes", str(NODES), "--recipe", "digits", "--epochs", str(EPOCHS), "--skip-preflight")
    said = own.fab(*words, "--yes", "--detach").stdout
    (run,) = re.findall(r"run (\S+): 4 ranks", said)
    try:
        eventually(lambda: own.run(run).checkpoints and has_trained(own, run, 1))
        pid = rank_of(run, 1)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: has_trained(own, run, 2))
        hosts = json.loads((own.run(run).path / "spec.json").read_text())["hosts"]
        lost, others = hosts[-1], {host["instance_id"] for host in hosts[:-1]}
        own.localcloud("cut", lost["instance_id"])
        cut = time.time()
        states = [i["State"]["Name"] for i in own.instances("worker") if i["InstanceId"] == lost["instance_id"]]
        assert states == ["running"], "EC2 does not notice"
        replaced = eventually(lambda: replaced_hosts(own, run), timeout_s=900.0)
        marked = time.time()
        eventually(lambda: own.run(run).state in ("succeeded", "failed"), timeout_s=900.0)
        found = json.loads(own.fab("show", "--run", run, "--json").stdout)
        assert (found["state"]["state"], len(found["course"]["restarts"])) == ("succeeded", 2), found["state"]
        last = json.loads((own.run(run).path / "spec.json").read_text())["hosts"]
        assert len(last) == NODES and {host["instance_id"] for host in last} > others
        assert [(each["instance_id"], each["trouble"]) for each in replaced] == [(lost["instance_id"], "")]
        assert lost["instance_id"] not in {i["InstanceId"] for i in own.instances("worker")}
        group = own.outputs()["WorkerGroupName"]
        activities = own.ask("autoscaling", "describe_scaling_activities", AutoScalingGroupName=group)["Activities"]
        causes = {each["Description"]: each["Cause"] for each in activities}
        cause = causes[f"Terminating EC2 instance: {lost['instance_id']}"]
        assert "user health-check" in cause
        line = f"{lost['name']} ({lost['instance_id']}) was replaced at "
        for task in (("status",), ("show", "--run", run)):
            assert line in " ".join(own.fab(*task).stdout.split())
        assert marked - cut >= 120.0
        print(f"replaced {marked - cut:.0f} s after the cut; the run ended {time.time() - marked:.0f} s later")
    finally:
        own.fab("stop", "--run", run, "--force", check=False)
