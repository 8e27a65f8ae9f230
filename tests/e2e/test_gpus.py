"""A node is rejected before its ranks start if TensorFlow cannot see its GPUs: they would compute on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

# The hosts have no GPU driver. This fake nvidia-smi answers as on a machine with one T4.
SMI = "#!/bin/sh\necho 'Tesla T4, 570.86.15, 15360 MiB, 0'\n"
PLACE = "/usr/local/bin/nvidia-smi"


@pytest.fixture
def made_up_gpu(cluster: EmbeddedCloud) -> Iterator[str]:
    """Give a worker's host a fake nvidia-smi for one test; return the name of the node."""
    (master,) = cluster.instances("master")

    def workers() -> list[list[str]]:
        listed = cluster.on(master["InstanceId"], "cat", "/opt/deeplearning/nodes").stdout
        return [line.split() for line in listed.splitlines() if line.startswith("deeplearning-worker")]

    eventually(lambda: len(workers()) == 2)
    name, _, instance, *_ = workers()[0]
    cluster.on(instance, "sh", "-c", f'printf %s "$0" >{PLACE} && chmod 755 {PLACE}', SMI)
    yield name
    cluster.on(instance, "rm", PLACE)


def test_run_is_rejected_if_tensorflow_does_not_see_gpus(cluster: EmbeddedCloud, made_up_gpu: str) -> None:
    done = cluster.fab("train", "--nodes", "2", "--recipe", "digits", "--yes", check=False)
    assert done.returncode == 1
    newest = max(json.loads(cluster.fab("runs", "--json").stdout), key=lambda entry: str(entry["run_id"]))
    assert newest["state"] == "failed"
    reason = str(newest["reason"])
    assert f"{made_up_gpu}: TensorFlow sees 0 of 1 GPUs (nvidia-smi shows 1 x Tesla T4, driver 570.86.15)" in reason
    assert "at its boot, the node had no GPUs, so it has TensorFlow's build for CPUs" in reason
    assert "TensorFlow sees 0 of 1 GPUs" in done.stdout + done.stderr
    assert "epoch" not in done.stdout


def test_allow_degraded_is_required_and_recorded(cluster: EmbeddedCloud, made_up_gpu: str) -> None:
    recipe = ("--recipe", "digits", "--epochs", "1", "--yes")
    done = cluster.fab("train", "--nodes", "2", *recipe, "--allow-degraded")
    assert "degraded, but permitted by --allow-degraded" in " ".join(done.stdout.split())
    record = json.loads(cluster.fab("show", "--json").stdout)
    assert record["state"]["state"] == "succeeded"
    assert record["spec"]["allow_degraded"] is True
    runtime = record["course"]["runtime"]
    assert (runtime["versions"]["driver"], runtime["kind"].startswith("x86_64-py3")) == ("570.86.15", True)
    allowed = [(each["node"], each["check"], each["what"]) for each in record["preflight"]["allowed"]]
    assert (made_up_gpu, "gpus", "TensorFlow sees 0 of 1 GPUs") in allowed
    # Every node reports that the CPU averages gradients: the runtime for CPUs does not contain NCCL.
    on_cpu = [node for node, check, what in allowed if what == "the allreduce runs on the CPU, not with NCCL"]
    assert sorted(on_cpu) == sorted(each["name"] for each in record["spec"]["hosts"])
    assert f"{made_up_gpu}: TensorFlow sees 0 of 1" in " ".join(cluster.fab("show").stdout.split())


def test_gpu_workers_are_announced_before_a_deployment(cluster: EmbeddedCloud) -> None:
    words = ("--set", "worker_instance_type=p5.48xlarge", "--set", "worker_volume_gib=200")
    warning = "the runtime for the 8 H100 GPUs"
    up = cluster.fab("up", "--plan", *words, check=False)
    assert f"warning: cluster.worker_instance_type = 'p5.48xlarge': {warning}" in " ".join(up.stderr.split())
    doctor = json.loads(cluster.fab("doctor", "--json", *words, check=False).stdout)
    found = [each for each in doctor["findings"] if warning in each["what"]]
    assert [each["state"] for each in found] == ["warn"]
