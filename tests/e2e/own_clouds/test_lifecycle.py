"""The life of a cluster on a separate cloud: deploy, scale, break, repair and destroy it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud, check_answered, start_cloud
from tests.waiting import PATIENCE_S, eventually

TOLD = """\
import os, signal, time

def end(number, frame):
    print(os.environ["HOROVOD_HOSTNAME"], "was asked to end", flush=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

signal.signal(signal.SIGTERM, end)
print("waits to be asked", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedCloud]:
    """Start a second cloud with a small shared disk next to the shared one, and deploy on it."""
    with start_cloud(f"l{os.getpid()}", "--efs-size", "48m") as cloud:
        cloud.fab("up", "--yes")
        cloud.fab("run", "--", "true")  # `fab up` waits until the master can log in to the workers
        yield cloud


def registered(cloud: EmbeddedCloud) -> dict[str, str]:
    """Return the master's list of workers: names by instance id."""
    (master,) = cloud.instances("master")
    nodes = cloud.on(master["InstanceId"], "cat", "/opt/deeplearning/nodes").stdout
    rows = [line.split() for line in nodes.splitlines()]
    return {row[2]: row[0] for row in rows if row[0].startswith("deeplearning-worker")}


def settled(cloud: EmbeddedCloud) -> dict[str, str]:
    """Return the workers' names once the master lists exactly the running ones, even after an earlier failed test."""
    return eventually(
        lambda: (
            found
            if (found := registered(cloud)).keys() == {i["InstanceId"] for i in cloud.instances("worker")}
            else None
        )
    )


@contextlib.contextmanager
def waiting_run(cloud: EmbeddedCloud, nodes: int, *program: str) -> Iterator[str]:
    """Start a program on this number of nodes and stop it at the end of the block; yield the run's id."""
    words = ("--nodes", str(nodes), "--skip-preflight", "--detach", "--yes", "--json")
    run = str(json.loads(cloud.fab("train", *words, *program).stdout)["run_id"])
    try:
        yield run
    finally:
        cloud.fab("stop", "--run", run, "--force", check=False)


def scale(cloud: EmbeddedCloud, count: int) -> None:
    cloud.laptop(
        "aws",
        "autoscaling",
        "set-desired-capacity",
        "--auto-scaling-group-name",
        cloud.outputs()["WorkerGroupName"],
        "--desired-capacity",
        str(count),
    )


def test_doctor_finds_nothing_wrong_with_a_deployed_cluster(own: EmbeddedCloud) -> None:
    examined = json.loads(own.fab("doctor", "--json").stdout)
    states = {each["check"]: each["state"] for each in examined["findings"]}
    assert examined["failed"] == 0
    assert states["key pair"] == states["worker image"] == states["zones for c5.2xlarge"] == "ok"
    assert [each for each in examined["findings"] if each["state"] == "unknown"] == []


def test_deployed_cluster_is_unchanged_by_a_second_deployment(own: EmbeddedCloud) -> None:
    before = {i["InstanceId"] for role in ("master", "worker") for i in own.instances(role)}
    again = own.fab("up", "--yes")
    assert "no changes" in again.stdout + again.stderr
    assert {i["InstanceId"] for role in ("master", "worker") for i in own.instances(role)} == before


def test_scaling_from_two_to_four_keeps_first_two_with_their_names(own: EmbeddedCloud) -> None:
    eventually(lambda: len(registered(own)) == 2)
    before = registered(own)
    scale(own, 4)
    eventually(lambda: len(registered(own)) == 4)
    after = registered(own)
    assert {instance: after[instance] for instance in before} == before
    assert sorted(after.values()) == [f"deeplearning-worker{index}" for index in range(1, 5)]


def test_one_of_two_concurrent_deployments_is_executed_and_the_other_rejected(
    own: EmbeddedCloud,
) -> None:
    """The first deployment waits for its answer on a terminal while the second one is compared and executed."""
    before = registered(own)
    first = ("env", "CDK_VALIDATION=false", "fab", "up", "--set", "worker_volume_gib=110", *demo.settings(2))
    keyboard, terminal = os.openpty()
    waiting = subprocess.Popen(
        demo.localcloud("run", "--name", own.name, "--", *first),
        cwd=demo.ROOT, env=demo.environment(), stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    try:
        eventually(lambda: bool(change_sets(own)) or waiting.poll() is not None)
        (own_set,) = change_sets(own)
        second = own.fab("up", "--yes", "--set", "worker_volume_gib=120").stdout
        os.write(keyboard, b"y\n")
        output, _ = waiting.communicate(timeout=PATIENCE_S)
    finally:
        waiting.kill()
        os.close(keyboard)
        os.close(terminal)
    assert "VolumeSize 100 -> 120" in second
    assert {i["InstanceId"] for i in own.instances("worker")} == set(before)
    assert registered(own) == before
    assert (waiting.returncode, "VolumeSize 100 -> 110" in output) == (1, True), output
    assert "stack deepcdk was changed by another deployment" in output
    assert "repeat `fab up`" in output
    (stack,) = own.ask("cloudformation", "describe_stacks", StackName="deepcdk")["Stacks"]
    assert (stack["StackStatus"], stack["ChangeSetId"] != own_set) == ("UPDATE_COMPLETE", True)
    assert change_sets(own) == []


def change_sets(cloud: EmbeddedCloud) -> list[str]:
    """Return the ARNs of the cluster's change sets."""
    listed = cloud.ask("cloudformation", "list_change_sets", StackName="deepcdk")["Summaries"]
    return [each["ChangeSetId"] for each in listed]


def test_dead_node_is_replaced_and_unregistered(own: EmbeddedCloud) -> None:
    before = registered(own)
    victim = next(instance for instance, name in before.items() if name == "deeplearning-worker2")
    own.localcloud("kill", victim)
    eventually(lambda: victim not in {i["InstanceId"] for i in own.instances("worker")})
    (master,) = own.instances("master")
    entry = "/mnt/efs/.cluster/nodes/deeplearning-worker2"
    # Age the last heartbeat instead of waiting: after one minute any node may take the name.
    own.on(master["InstanceId"], "touch", "--date", "-61 seconds", entry)
    eventually(lambda: victim not in registered(own) and len(registered(own)) == len(before))
    survivors = {instance: name for instance, name in before.items() if instance != victim}
    assert survivors.items() <= registered(own).items()


def record(cloud: EmbeddedCloud, run: str) -> dict[str, Any]:
    """Return a run's record through a task: files on a size-limited file system are visible only inside the cloud."""
    return dict(json.loads(cloud.fab("show", "--run", run, "--json").stdout))


def restarted(cloud: EmbeddedCloud, run: str) -> dict[str, Any]:
    """Return the record of a run once it runs again."""

    def again() -> dict[str, Any] | None:
        found = record(cloud, run)
        return found if found["course"].get("restarts") and found["state"]["state"] == "running" else None

    return eventually(again)


def test_interrupted_spot_worker_is_replaced_and_run_continues(own: EmbeddedCloud, tmp_path: Path) -> None:
    before = set(settled(own))
    own.fab("up", "--yes", "--set", "worker_volume_gib=120", "--set", "spot=true")
    assert set(registered(own)) == before, "what runs stays as it was bought"
    scale(own, len(before) + 1)
    eventually(lambda: len(registered(own)) == len(before) + 1)
    (spot,) = set(registered(own)) - before
    refused = own.localcloud("interrupt", next(iter(before)), check=False)
    assert "only spot instances can be interrupted" in refused.stderr
    (tmp_path / "train.py").write_text(TOLD)
    program = ("--payload", str(tmp_path), "--entry", "train.py")
    with waiting_run(own, len(before) + 1, *program) as run:

        def log() -> str:
            return own.fab("logs", "--run", run).stdout

        eventually(lambda: log().count("waits to be asked") == len(before) + 1)
        name = registered(own)[spot]
        own.localcloud("interrupt", spot, "--notice", "30")
        eventually(lambda: f"{name} was asked to end" in log())
        assert spot in {i["InstanceId"] for i in own.instances("worker")}, "its rank has had its time"
        eventually(lambda: spot not in {i["InstanceId"] for i in own.instances("worker")})
        (master,) = own.instances("master")
        told = own.on(master["InstanceId"], "cat", f"/mnt/efs/.cluster/leaving/{spot}").stdout
        assert "EC2 interrupts this spot instance" in told
        found = restarted(own, run)
        (again,) = found["course"]["restarts"]
        assert again["for"] == f"{name} is leaving the cluster (EC2 interrupts this spot instance)"
        hosts = {host["instance_id"] for host in found["spec"]["hosts"]}
        assert spot not in hosts
        assert before <= hosts <= set(registered(own))


def test_spot_worker_at_risk_is_replaced_early_and_run_continues(own: EmbeddedCloud, tmp_path: Path) -> None:
    before = set(settled(own))
    settings = ("worker_volume_gib=120", "spot=true", "capacity_rebalance=true", "termination_notice_s=120")
    own.fab("up", "--yes", *(word for setting in settings for word in ("--set", setting)))
    found = [each["InstanceId"] for each in own.instances("worker") if each.get("InstanceLifecycle") == "spot"]
    victim = next(iter(before & set(found)))
    (tmp_path / "empty").touch()
    with waiting_run(own, len(before), "--payload", str(tmp_path), "--entry", "sleep 600") as run:
        eventually(lambda: record(own, run)["state"]["state"] == "running")
        name = registered(own)[victim]
        said = own.localcloud("interrupt", victim, "--recommendation").stdout
        assert "has a rebalance recommendation in its metadata" in said
        changed = restarted(own, run)
        (again,) = changed["course"]["restarts"]
        assert again["for"] == f"{name} is leaving the cluster (its group terminates this instance)"
        hosts = {host["instance_id"] for host in changed["spec"]["hosts"]}
        (successor,) = hosts - before
        assert before - hosts == {victim} and successor in registered(own)
        assert victim in {each["InstanceId"] for each in own.instances("worker")}, "its two minutes are not over"


def test_full_shared_disk_stops_push_with_clear_error(own: EmbeddedCloud) -> None:
    (master,) = own.instances("master")
    shell = master["InstanceId"]
    own.on(shell, "sh", "-c", "rm -rf /mnt/efs/payloads/*; cat /dev/zero >/mnt/efs/ballast 2>/dev/null; true")
    try:
        done = own.fab("push", check=False)
    finally:
        own.on(shell, "rm", "/mnt/efs/ballast")
    assert done.returncode == 1
    assert "No space left" in done.stdout + done.stderr
    assert "fab rm" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "uploaded" in own.fab("push").stdout


def test_destroy_leaves_no_instance_and_no_stack(own: EmbeddedCloud) -> None:
    destroyed = json.loads(own.fab("down", "--yes", "--json").stdout)
    assert (destroyed["stack"], destroyed["stopped_runs"]) == ("deepcdk", [])
    assert {(each["type"], each["kept"]) for each in destroyed["data"]} >= {("AWS::S3::Bucket", False)}
    stacks = own.aws("cloudformation", "describe-stacks")["Stacks"]
    assert [stack["StackName"] for stack in stacks] == ["CDKToolkit"]
    assert own.instances("master") == own.instances("worker") == []
    eventually(lambda: not json.loads(own.localcloud("status", "--json").stdout)["hosts"])
    assert own.aws("efs", "describe-file-systems")["FileSystems"] == []
    cidrs = [vpc["CidrBlock"] for vpc in own.aws("ec2", "describe-vpcs")["Vpcs"] if not vpc["IsDefault"]]
    assert cidrs == []
    done = own.fab("status", check=False)
    assert done.returncode == 1
    assert "fab up" in done.stdout + done.stderr


def test_failed_boot_rolls_the_deployment_back(own: EmbeddedCloud) -> None:
    done = own.fab("up", "--yes", "--set", "boot_commands=no-such-program", check=False)
    assert done.returncode == 1
    assert "Workers/Group/ASG (AWS::AutoScaling::AutoScalingGroup): " in done.stderr
    assert "failed: boot_commands: no-such-program (exit status 127)" in done.stderr
    assert "do: fix the cause, then repeat `fab up`" in done.stderr
    assert "_IN_PROGRESS" not in done.stdout + done.stderr
    stacks = own.aws("cloudformation", "describe-stacks")["Stacks"]
    assert [s["StackStatus"] for s in stacks if s["StackName"] == "deepcdk"] in (["ROLLBACK_COMPLETE"], [])
    assert own.instances("worker") == []


def test_stop_leaves_nothing_on_the_machine(own: EmbeddedCloud) -> None:
    check_answered(own.log())
    own.localcloud("stop")
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert own.name not in namespaces
    assert f"/localcloud/{own.name}/" not in Path("/proc/mounts").read_text()
    assert not Path("/run/localcloud", own.name).exists()
