"""A run on the deployed cluster from launch to results: the path of every user."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import demo
from tests.e2e.conftest import Deployment, EmbeddedCloud
from tests.waiting import PATIENCE_S, eventually


def runs(cloud: Deployment) -> list[dict[str, Any]]:
    """List the cluster's runs, newest first."""
    listed = json.loads(cloud.fab("runs", "--json").stdout)
    assert isinstance(listed, list)
    return sorted(listed, key=lambda entry: str(entry["run_id"]), reverse=True)


def live_state(cloud: Deployment, run: str) -> str:
    return next(str(entry["state"]) for entry in runs(cloud) if entry["run_id"] == run)


@pytest.fixture(scope="module")
def trained(deployment: Deployment) -> dict[str, Any]:
    """Train the recipe digits on two nodes and fetch it; return result.json and the output of both tasks."""
    output = deployment.fab("train", "--nodes", "2", "--recipe", "digits", "--yes").stdout
    run = runs(deployment)[0]["run_id"]
    fetched = deployment.fab("fetch", "--run", run).stdout
    directory = demo.ROOT / "runs" / run
    result = json.loads((directory / "result.json").read_text())
    return {"output": output, "fetched": fetched, "run": run, "directory": directory, "result": result}


@pytest.mark.aws
def test_two_nodes_train_digits_to_98_percent(trained: dict[str, Any]) -> None:
    assert trained["result"]["test_accuracy"] >= 0.98


@pytest.mark.aws
def test_ranks_ran_on_two_hosts_with_different_addresses(trained: dict[str, Any]) -> None:
    hosts = trained["result"]["hosts"]
    assert len(hosts) == len(set(hosts)) == trained["result"]["ranks"] == 2


@pytest.mark.aws
def test_result_has_its_origin(trained: dict[str, Any]) -> None:
    result = trained["result"]
    assert {"tensorflow", "keras", "horovod", "python"} <= set(result["versions"])
    assert re.fullmatch(r"[0-9a-f]{16,64}", result["payload_hash"])
    assert result["images_per_s"] > 0
    assert result["seconds"] > 0


@pytest.mark.aws
def test_fetch_downloads_metrics_events_and_log(trained: dict[str, Any]) -> None:
    directory: Path = trained["directory"]
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert records[0]["event"] == "start"
    assert records[-1]["event"] == "end"
    assert all(record["weights_agree"] for record in records if record["event"] == "epoch")
    assert list(directory.glob("events/**/*tfevents*"))
    assert (directory / "launcher.log").stat().st_size > 0


@pytest.mark.aws
def test_bucket_has_the_record_and_everything_but_checkpoints(
    deployment: Deployment, trained: dict[str, Any], tmp_path: Path
) -> None:
    run = trained["run"]
    record = json.loads(deployment.fab("show", "--run", run, "--from-bucket", "--json").stdout)
    assert (record["state"]["state"], record["result"]) == ("succeeded", trained["result"])
    assert len(record["origin"]["template_sha256"]) == 64
    assert set(record["origin"]["instance_types"]) == {
        i["InstanceId"] for role in ("master", "worker") for i in deployment.instances(role)
    }
    times = record["course"]["times"]
    assert list(times) == sorted(times, key=times.get) == ["started", "prepared", "inspected", "launched", "ended"]
    assert record["preflight"]["findings"] == []
    deployment.fab("fetch", "--run", run, "--from-bucket", "--into", str(tmp_path))
    copied = {path.name for path in (tmp_path / run).iterdir()}
    assert {"record.json", "result.json", "metrics.jsonl", "launcher.log", "events"} <= copied
    assert not copied & {"checkpoints", "spec.json", "launch.json"}


@pytest.mark.aws
def test_progress_without_a_terminal_is_plain_lines(trained: dict[str, Any]) -> None:
    assert "\x1b" not in trained["output"]
    assert "epoch" in trained["output"]


@pytest.mark.aws
def test_status_names_every_node(deployment: Deployment, trained: dict[str, Any]) -> None:
    status = json.loads(deployment.fab("status", "--json").stdout)
    text = json.dumps(status)
    for role in ("master", "worker"):
        for instance in deployment.instances(role):
            assert instance["InstanceId"] in text
            assert instance["PrivateIpAddress"] in text


@pytest.mark.aws
def test_every_node_reports_its_load(deployment: Deployment, trained: dict[str, Any]) -> None:
    loads = json.loads(deployment.fab("status", "--load", "--json").stdout)["load"]
    assert [each["name"] for each in loads] == [f"deeplearning-{name}" for name in ("master", "worker1", "worker2")]
    assert all(0 <= each["processor"] <= 1 and 0 < each["memory_used"] < each["memory_total"] for each in loads)


def test_tensorboard_shows_run_through_tunnel_and_exits_with_it(
    cluster: EmbeddedCloud, trained: dict[str, Any]
) -> None:
    command = demo.localcloud("run", "--name", cluster.name, "--", "fab", "tensorboard", trained["run"])
    with subprocess.Popen(command, cwd=demo.ROOT, env=demo.environment(), stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None
        lines = iter(shown.stdout.readline, "")
        url = next(line for line in lines if line.startswith("http://localhost:")).split()[0]
        assert json.loads(cluster.laptop("curl", "--silent", f"{url}data/runs").stdout) == ["events"]
        shown.send_signal(signal.SIGINT)
        assert shown.wait(timeout=PATIENCE_S) == 0
    looking = ("fab", "run", "--master", "--", "pgrep", "-af", "[t]ensorboard.main")
    eventually(lambda: cluster.laptop(*looking, check=False).stdout == "")


@pytest.mark.aws
def test_unchanged_payload_uploads_nothing(deployment: Deployment, trained: dict[str, Any]) -> None:
    assert "unchanged" in deployment.fab("push").stdout


def test_private_key_of_the_user_is_on_no_node(cluster: EmbeddedCloud, trained: dict[str, Any]) -> None:
    private = cluster.laptop("cat", f"{laptop_home(cluster)}/.ssh/id_ed25519").stdout
    secret = private.splitlines()[3]  # the lines before it contain the format and the public half
    nodes = [*cluster.instances("master"), *cluster.instances("worker")]
    for node in nodes:
        search = ["grep", "-rlF", secret, "/home", "/root", "/mnt/efs", "/etc/ssh", "/opt/deeplearning", "/tmp"]
        assert cluster.on(node["InstanceId"], *search, check=False).stdout == ""


def test_key_of_cluster_is_only_on_the_master(cluster: EmbeddedCloud, trained: dict[str, Any]) -> None:
    (master,) = cluster.instances("master")
    key = cluster.on(master["InstanceId"], "cat", "/home/ec2-user/.ssh/id_ed25519").stdout
    secret = key.splitlines()[3]
    for worker in cluster.instances("worker"):
        search = ["grep", "-rlF", secret, "/home", "/root", "/mnt/efs", "/etc", "/opt/deeplearning", "/tmp"]
        assert cluster.on(worker["InstanceId"], *search, check=False).stdout == ""


def test_changed_host_key_is_rejected(cluster: EmbeddedCloud, trained: dict[str, Any]) -> None:
    (master,) = cluster.instances("master")
    shell = (master["InstanceId"], "bash", "-c")
    cluster.on(*shell, "cp -a /etc/ssh /etc/ssh.kept && rm /etc/ssh/ssh_host_*key* && ssh-keygen -A")
    try:
        done = cluster.fab("push", check=False)
    finally:
        cluster.on(*shell, "cp -a /etc/ssh.kept/. /etc/ssh/ && rm -r /etc/ssh.kept")
    assert done.returncode == 1
    assert "host key" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def waiting(cluster: EmbeddedCloud, trained: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a run that only waits, because a training run would take CPU time from other tests; return its id."""
    program = tmp_path_factory.mktemp("program")
    (program / "wait.py").write_text("import time\ntime.sleep(3600)\n")
    words = ("--payload", str(program), "--entry", "wait.py", "--skip-preflight", "--detach", "--yes")
    cluster.fab("train", "--nodes", "2", *words)
    run = runs(cluster)[0]["run_id"]
    yield run
    cluster.fab("stop", "--run", run, check=False)
    cluster.fab("rm", "--run", run, "--yes")


def test_second_run_is_rejected_and_first_continues_without_laptop(cluster: EmbeddedCloud, waiting: str) -> None:
    second = cluster.fab("train", "--nodes", "2", "--recipe", "digits", "--yes", check=False)
    assert second.returncode != 0
    assert waiting in second.stdout + second.stderr
    eventually(lambda: cluster.run(waiting).state == "running")


def test_tasks_that_would_stop_a_live_run_are_rejected(cluster: EmbeddedCloud, waiting: str) -> None:
    shrunk = cluster.fab("up", "--yes", "--set", "workers=1", check=False)
    assert "1 of 2 nodes ARE TERMINATED" in shrunk.stdout
    destroyed = cluster.fab("down", "--yes", check=False)
    for refused in (shrunk, destroyed):
        assert refused.returncode == 1
        assert f"run {waiting} is live" in refused.stderr
        assert "--force" in refused.stderr
    assert live_state(cluster, waiting) == "running"
    assert len(cluster.instances("worker")) == 2


def test_stopped_run_is_reported_as_stopped_and_keeps_the_results_of_other_runs(
    cluster: EmbeddedCloud, trained: dict[str, Any], waiting: str
) -> None:
    cluster.fab("stop", "--run", waiting)
    assert [(run["run_id"], run["state"]) for run in runs(cluster)[:1]] == [(waiting, "stopped")]
    assert (demo.ROOT / "runs" / trained["run"] / "result.json").exists()


def test_run_survives_ctrl_c_and_restarts_after_killed_ranks(cluster: EmbeddedCloud, trained: dict[str, Any]) -> None:
    command = demo.localcloud("run", "--name", cluster.name, "--", "fab", "train", "--nodes", "2", "--epochs", "5000")
    following = subprocess.Popen(
        [*command, "--restarts", "1", "--skip-preflight", "--yes", *demo.settings(2)],
        cwd=demo.ROOT,
        env=demo.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert following.stdout is not None
        for line in following.stdout:
            if re.search(r"epoch\W+1", line):
                break
        following.send_signal(2)
        rest = following.stdout.read()
        assert following.wait(timeout=PATIENCE_S) == 130
        assert "attach" in rest
        run = str(runs(cluster)[0]["run_id"])
        assert live_state(cluster, run) == "running"
        kill = (cluster.instances("worker")[1]["InstanceId"], "pkill", "-KILL", "-f", "payload.train")
        cluster.on(*kill)
        course = cluster.run(run).path / "course.json"
        (again,) = eventually(lambda: json.loads(course.read_text()).get("restarts"))
        killed = r"rank [01] on deeplearning-worker\d exited first, with status 137 \(Killed\)"
        assert re.fullmatch(killed, again["for"])
        eventually(lambda: cluster.on(*kill, check=False).returncode == 0)
        eventually(lambda: cluster.run(run).state == "failed")
        entry = next(entry for entry in runs(cluster) if entry["run_id"] == run)
        assert entry["reason"] == f"{again['for']} (after 1 restart)"
    finally:
        following.kill()
        following.wait()
        cluster.fab("stop", check=False)


def laptop_home(cloud: EmbeddedCloud) -> str:
    return str(json.loads(cloud.localcloud("status", "--json").stdout)["laptop_home"])
