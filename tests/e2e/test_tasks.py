"""Tasks for nodes and ended runs on the deployed cluster: size, commands, shells, records and resuming."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import demo
from tests.cluster.report.recorded_runs import DIGITS
from tests.e2e.conftest import Deployment, EmbeddedCloud
from tests.waiting import PATIENCE_S, eventually
from tests.words import LONG, NASTIEST


@pytest.fixture(autouse=True, scope="module")
def joined(deployment: Deployment) -> None:
    """Wait until the master lists both workers, which takes seconds after a deployment."""
    eventually(lambda: "worker2 |" in run(deployment, "--", "echo", "here", check=False).stdout)


@pytest.fixture(autouse=True)
def two_workers(deployment: Deployment) -> Iterator[None]:
    """Restore two workers on the shared cluster, even after a failed test."""
    yield
    if len(deployment.instances("worker")) != 2:
        deployment.fab("scale", "--nodes", "2", "--force", "--yes", check=False)


def ssh_config(cloud: EmbeddedCloud) -> str:
    """Have the ssh_config written; return its path."""
    written = json.loads(cloud.fab("ssh-config", "--json").stdout)
    assert set(written["hosts"]) == {"deepcdk-master", "deepcdk-worker1", "deepcdk-worker2"}
    return str(written["config"])


def run(cloud: Deployment, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `fab run` with these words; the cluster's settings come before the dashes."""
    at = words.index("--")
    return cloud.laptop("fab", "run", *words[:at], *cloud.settings, *words[at:], check=check)


@pytest.mark.aws
def test_command_runs_on_every_worker_with_its_words_unchanged(deployment: Deployment) -> None:
    words, value = [*NASTIEST, LONG], "".join(NASTIEST)
    echo = ["python3", "-c", "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['NASTY']]))"]
    answer = json.loads(run(deployment, "--json", "--env", f"NASTY={value}", "--", *echo, *words).stdout)
    assert [host["name"] for host in answer["hosts"]] == ["deeplearning-worker1", "deeplearning-worker2"]
    assert [json.loads(host["stdout"]) for host in answer["hosts"]] == [[words, value]] * 2
    assert answer["failed"] == []


def test_failure_is_reported_as_host_and_last_lines(cluster: EmbeddedCloud) -> None:
    script = 'echo on $(hostname); test "$(hostname)" != "$0"'
    victim = run(cluster, "--nodes", "1", "--", "hostname").stdout.split()[-1]
    done = run(cluster, "--", "sh", "-c", script, victim, check=False)
    assert done.returncode == 1
    assert f"worker1 | on {victim}" in done.stdout
    assert "failed on 1 of 2 nodes\n  deeplearning-worker1: exit code 1" in done.stderr


@pytest.mark.aws
def test_command_on_the_master_runs_once_and_its_status_is_passed_on(deployment: Deployment) -> None:
    done = run(deployment, "--master", "--env", "SECRET=a b", "--", "sh", "-c", 'echo "$SECRET"; exit 7', check=False)
    assert (done.returncode, done.stdout) == (7, "master | a b\n")


def test_ctrl_c_stops_the_command_on_all_nodes(cluster: EmbeddedCloud) -> None:
    command = demo.localcloud("run", "--name", cluster.name, "--", "fab", "run", *demo.settings(2))
    script = "echo up; exec sleep 4242"
    running = subprocess.Popen(
        [*command, "--", "sh", "-c", script],
        cwd=demo.ROOT, env=demo.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    assert sorted(running.stdout.readline() for _ in range(2)) == ["worker1 | up\n", "worker2 | up\n"]
    running.send_signal(2)
    assert running.wait(timeout=PATIENCE_S) == 130
    look = ("--", "pgrep", "-f", "^sleep 4242")
    eventually(lambda: run(cluster, *look, check=False).stdout == "")


def test_plain_ssh_and_scp_reach_a_worker_with_verified_keys(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    config = ssh_config(cluster)
    cluster.laptop("scp", "-q", "-F", config, __file__, "deepcdk-worker2:copied")
    copied = cluster.laptop("ssh", "-F", config, "deepcdk-worker2", "cat", "copied").stdout
    assert copied == Path(__file__).read_text()
    forged = tmp_path / "known_hosts"
    known = Path(config).with_suffix(".known_hosts").read_text().splitlines()
    key = known[0].split()[1:3]
    forged.write_text("".join(f"{line.split()[0]} {' '.join(key)}\n" for line in known))
    refused = cluster.laptop(
        "ssh", "-F", config, "-o", f"UserKnownHostsFile={forged}", "deepcdk-worker2", "true", check=False
    )
    assert refused.returncode == 255
    assert "HOST IDENTIFICATION HAS CHANGED" in refused.stderr


def test_changed_host_key_is_rejected_with_both_fingerprints(cluster: EmbeddedCloud) -> None:
    run(cluster, "--master", "--", "true")
    (master,) = (i["InstanceId"] for i in cluster.instances("master"))
    folder = "$HOME/.local/state/deepcdk/host-keys/*/*"
    kept = cluster.laptop("sh", "-c", f"stat -c '%a %n' {folder}/{master}").stdout
    mode, path = kept.split()
    assert mode == "600"
    # Replace the key: the console then shows a different one.
    forge = 'ssh-keygen -q -t ed25519 -N "" -f "$1.new"; printf "%s %s\\n" "$2" "$(cut -d" " -f1,2 "$1.new.pub")" >"$1"'
    cluster.laptop("sh", "-c", forge, "sh", path, master)
    refused = run(cluster, "--master", "--", "true", check=False)
    forged = cluster.laptop("ssh-keygen", "-lf", f"{path}.new.pub").stdout.split()[1]
    cluster.laptop("sh", "-c", 'rm -f "$1" "$1".new*', "sh", path)
    assert refused.returncode == 1
    assert f"SSH host key of {master} HAS CHANGED" in refused.stderr
    assert forged in refused.stderr
    assert refused.stderr.count("SHA256:") == 2
    assert run(cluster, "--master", "--", "true").returncode == 0


def test_shell_opens_on_a_worker_by_its_number(cluster: EmbeddedCloud) -> None:
    shell = demo.localcloud("run", "--name", cluster.name, "--", "fab", "ssh", "--node", "2", *demo.settings(2))
    done = subprocess.run(
        shell, cwd=demo.ROOT, env=demo.environment(), input="hostname; exit 5\n", capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    (worker,) = (i for i in cluster.instances("worker") if i["PrivateDnsName"].split(".")[0] == done.stdout.strip())
    assert (done.returncode, worker["InstanceId"] != "") == (5, True)


@pytest.fixture(scope="module")
def stopped(cluster: EmbeddedCloud) -> Iterator[str]:
    """Start a run on both workers, check that its nodes are reserved, and stop it; return its id."""
    cluster.fab("train", "--nodes", "2", "--epochs", "3000", "--skip-preflight", "--detach", "--yes")
    run_id = str(json.loads(cluster.fab("show", "--json").stdout)["run_id"])
    eventually(lambda: cluster.run(run_id).last_epoch())
    refused = cluster.fab("scale", "--nodes", "1", "--yes", check=False)
    assert (refused.returncode, f"from run {run_id}" in refused.stderr) == (1, True)
    kept = cluster.fab("rm", "--run", run_id, "--yes", check=False)
    assert (kept.returncode, "is live" in kept.stderr) == (1, True)
    cluster.fab("stop", "--run", run_id)
    yield run_id
    cluster.fab("rm", "--run", run_id, "--yes", check=False)


def test_stopped_run_continues_from_checkpoint_on_fewer_nodes(
    cluster: EmbeddedCloud, stopped: str, tmp_path: Path
) -> None:
    before = json.loads(cluster.fab("show", "--run", stopped, "--json").stdout)
    assert (before["state"]["state"], len(before["checkpoints"]) > 0) == ("stopped", True)
    last_epoch = cluster.run(stopped).last_epoch()
    many = cluster.fab("resume", "--run", stopped, "--nodes", "99", "--detach", check=False)
    assert (many.returncode, "the deployed cluster allows at most 16" in many.stderr) == (1, True)
    resumed = cluster.fab("resume", "--run", stopped, "--nodes", "1", "--skip-preflight", "--detach", "--json")
    assert f"continues from {before['checkpoints'][-1]}: 1 rank on deeplearning-worker1" in resumed.stderr
    document = json.loads(resumed.stdout)
    assert (document["run_id"], document["state"], document["position"]) == (stopped, "starting", None)
    try:
        eventually(lambda: cluster.run(stopped).last_epoch() > last_epoch)
        assert json.loads(cluster.fab("show", "--run", stopped, "--json").stdout)["attempts"] == 2
        log = cluster.fab("logs", "--run", stopped).stdout
        assert "continuing with 64 images per step, as before; a new run on 1 ranks would use 32" in log
    finally:
        cluster.fab("stop", "--run", stopped)
    # Compare with a run recorded elsewhere, given by its directory.
    words = ("compare", stopped, str(DIGITS), "--into", f"{tmp_path}/", "--json")
    compared = json.loads(cluster.fab(*words).stdout)
    assert (set(compared), compared["runs"][0]) == ({"runs", "files"}, stopped)
    page = Path(compared["files"]["html"]).read_text()
    assert stopped in page and "resumed from" not in page


def test_ended_run_is_removed_for_good(cluster: EmbeddedCloud, stopped: str) -> None:
    cluster.fab("rm", "--run", stopped, "--yes")
    gone = cluster.fab("show", "--run", stopped, check=False)
    assert (gone.returncode, f"unknown run {stopped}" in gone.stderr) == (1, True)


@pytest.mark.aws
def test_group_grows_and_removes_newest_workers_first(deployment: Deployment) -> None:
    before = {i["InstanceId"] for i in deployment.instances("worker")}
    fewer = ("--set", "max_workers=2")  # only in the local cdk.json; the deployed limit of 16 applies
    grown = json.loads(deployment.fab("scale", "--nodes", "3", "--yes", "--json", *fewer).stdout)
    assert (grown["before"], grown["after"], grown["added"]) == (2, 3, ["deeplearning-worker3"])
    assert "deeplearning-worker3" in deployment.fab("train", "--nodes", "3", "--dry-run", *fewer).stdout
    shrunk = json.loads(deployment.fab("scale", "--nodes", "2", "--yes", "--json").stdout)
    assert (shrunk["after"], shrunk["removed"]) == (2, ["deeplearning-worker3"])
    assert {i["InstanceId"] for i in deployment.instances("worker")} == before


@pytest.mark.parametrize("task", ["scale", "train"])
def test_more_nodes_than_deployed_maximum_are_rejected_with_both_numbers(cluster: EmbeddedCloud, task: str) -> None:
    many = cluster.fab(task, "--nodes", "17", "--yes", "--set", "max_workers=64", check=False)
    assert many.returncode == 1
    assert "the deployed cluster allows at most 16; max_workers in cdk.json is 64" in many.stderr
    assert "deploy cdk.json with `fab up`" in many.stderr
    assert len(cluster.instances("worker")) == 2


def test_stopped_benchmark_continues_and_draws_a_plot(cluster: EmbeddedCloud) -> None:
    rounds = 20  # more than fit into the time before the stop takes effect
    cells = ("--nodes", "1,2", "--networks", "lenet", "--batch-sizes", "1", "--image-size", "16", "--steps", "8")
    others = ("--message-bytes", "1024,1048576", "--input-size", "32", "--storage-mib", "1", "--repeats", str(rounds))
    begun = cluster.fab("bench", *cells, *others, "--skip-preflight", "--yes", "--json", "--detach").stdout
    run_id = json.loads(begun)["run_id"]
    measured = cluster.run(run_id).path / "bench.jsonl"
    eventually(lambda: measured.exists() and '"type": "cell"' in measured.read_text())
    assert json.loads(cluster.fab("stop", run_id, "--json").stdout)["state"] == "stopped"
    assert 0 < measured.read_text().count('"type": "cell"') < 14 * rounds
    resumed = cluster.fab("resume", run_id, "--skip-preflight")
    assert "continues with the remaining measurements" in resumed.stdout
    shown = json.loads(cluster.fab("bench", "--run", run_id, "--against", run_id, "--json").stdout)
    assert measured.read_text().count('"type": "cell"') == 14 * rounds
    assert {len(row["rounds_s"]) for kind in ("training", "allreduce") for row in shown[kind]} == {rounds}
    assert [(row["network"], row["nodes"], row["ranks"]) for row in shown["training"]] == [
        ("lenet", 1, 1),
        ("lenet", 2, 2),
    ]
    assert [(row["message_bytes"], row["ranks"]) for row in shown["allreduce"]] == [(1024, 2), (1 << 20, 2)]
    assert [(row["nodes"], row["image_size"]) for row in shown["input"]] == [(1, 32), (2, 32)]
    files = {(row["place"], row["operation"], row["nodes"]) for row in shown["storage"]}
    assert files == {(place, does, n) for place in ("shared", "local") for does in ("write", "read") for n in (1, 2)}
    assert min(row["bytes_per_s"] for row in shown["storage"]) > 0
    assert not list(cluster.run(run_id).path.glob(".bench-*"))
    one, two = shown["training"]
    assert two["efficiency"] == pytest.approx(two["images_per_s"] / 2 / one["images_per_s"])
    assert len(set(shown["origin"]["hosts"])) == 2
    document, picture = (demo.ROOT / file for file in shown["files"])
    assert json.loads(document.read_text())["training"] == shown["training"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert shown["comparison"]["against"] == run_id
    table = cluster.fab("bench", "--run", run_id, "--against", run_id).stdout
    assert "no difference beyond the spread" in table
    assert "busbw GB/s" in table
