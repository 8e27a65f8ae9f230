"""Ranks run as a separate user without sudo that can write only to its run, to node-local data and to scratch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud

AS_ROOT = "/usr/local/bin/id-of-root"
PROGRAM = """\
import glob, json, os, shutil, subprocess, sys, tempfile

def outcome(action, *words):
    try:
        action(*words)
    except OSError as error:
        return type(error).__name__
    return "done"

def append(path):
    with open(path, "a") as file:
        file.write("a rank was here")

def replace(path):
    with open(f"{run}/mine", "w"):
        pass
    os.replace(f"{run}/mine", path)

run, efs = os.path.dirname(os.getcwd()), "/mnt/efs"
(agent,) = {path for path in sys.path if path.endswith("program_hooks")}
supervisors = [f"{run}/{name}" for name in ("spec.json", "state.json", "launcher.log", "launch.json", "course.json")]
login = "/home/ec2-user"
nodes = glob.glob(f"{efs}/.cluster/nodes/*")
forbidden = {
    **{f"append {path}": outcome(append, path) for path in [
        *supervisors, *nodes, f"{efs}/.cluster/list", f"{efs}/.cluster/master.pub", f"{agent}/sitecustomize.py",
        f"{efs}/.cluster/new", f"{efs}/.cluster/nodes/deeplearning-worker9", f"{efs}/payloads/new", f"{efs}/data/new",
        f"{efs}/runs/new", f"{efs}/runs/.master",
        f"{efs}/runs/{sys.argv[1]}/metrics.jsonl", f"{efs}/runs/{sys.argv[1]}/new",
        "/etc/new", "/opt/deepcdk/new", "/opt/deepcdk/runtime/new", sys.executable,
        f"{login}/new", f"{login}/.ssh/authorized_keys", "/home/deepcdk-rank/new",
        "/home/deepcdk-rank/.ssh/authorized_keys",
    ]},
    **{f"replace {path}": outcome(replace, path) for path in [*supervisors, *nodes]},
    **{f"remove {path}": outcome(os.unlink, path) for path in [*supervisors, *nodes]},
    **{f"list {path}": outcome(os.listdir, path) for path in [f"{efs}/runs/{sys.argv[1]}", login, f"{login}/.ssh"]},
    "rename the run": outcome(os.rename, run, f"{run}-mine"),
    "open the run": outcome(os.chmod, run, 0o777),
    "signal sshd": outcome(os.kill, int(subprocess.check_output(["pgrep", "-o", "sshd"])), 0),
}
allowed = {path: outcome(append, path) for path in [
    "train.py", "new", f"{run}/new", os.path.expanduser("~/new"), os.path.expanduser("~/other"),
    f"{tempfile.gettempdir()}/of-a-rank", "/dev/shm/of-a-rank",
]}
os.makedirs("deep/er", mode=0o700)
descriptor, path = tempfile.mkstemp(dir="deep")
os.write(descriptor, b"weights")
os.rename(path, "deep/er/model")
# Nothing shows that they belong to a run.
left = tempfile.mkdtemp()
shutil.copy("/usr/bin/sleep", f"{left}/systemd")
null = {"env": {}, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
for command in ("sleep", f"{left}/systemd"):
    subprocess.Popen(["setsid", "-f", command, "7654"], **null)
subprocess.check_call(["ipcmk", "-M", "4096"])
met = [path for path in (os.path.expanduser("~/.bashrc"), "/dev/shm/an-earlier-run") if os.path.exists(path)]
for path in (os.path.expanduser("~/.bashrc"), "/dev/shm/an-earlier-run"):
    append(path)
with open("told.json", "w") as file:
    json.dump({
        "ids": [os.getuid(), os.geteuid(), os.getgid(), *os.getgroups()], "home": os.environ["HOME"],
        "user": os.environ["USER"], "forbidden": forbidden, "met": met, "allowed": allowed,
        "secret": os.environ["TOKEN"], "as_root": subprocess.check_output(["id-of-root", "-u"], text=True),
        "su": subprocess.run(["su", "-c", "true"], capture_output=True, stdin=subprocess.DEVNULL).returncode,
    }, file)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "train.py").write_text(PROGRAM)
    (root / "token").write_text("swordfish")
    return root


def train(cloud: EmbeddedCloud, project: Path, *words: str, check: bool = True) -> Any:
    """Run the program on the first node, started by the agent alone; return the output of the task."""
    flags = ["--launcher", "plain", "--skip-preflight", "--yes", "--payload", str(project), "--entry", "train.py"]
    secret = ["--secret", f"TOKEN=@{project / 'token'}"]
    return cloud.laptop("fab", "train", "--nodes", "1", *demo.settings(2), *flags, *secret, *words, check=check)


def shell(cloud: EmbeddedCloud, script: str, node: str = "deeplearning-worker1") -> str:
    """Run a shell program as root on a node; return its output."""
    (master,) = cloud.instances("master")
    listed = cloud.on(master["InstanceId"], "cat", "/opt/deeplearning/nodes").stdout
    ids = {line.split()[0]: line.split()[2] for line in listed.splitlines()}
    return cloud.on(ids[node], "sh", "-c", script).stdout


@pytest.fixture(scope="module")
def told(cluster: EmbeddedCloud, project: Path) -> Iterator[tuple[EmbeddedCloud, str, dict[str, Any]]]:
    """Run the program twice, the second time against the files of the first run; fetch the results."""
    # A replacement for `sudo`, which this machine may lack: a setuid program that runs as root unless this is denied.
    shell(cluster, f"cp -p /usr/bin/id {AS_ROOT} && chmod 4755 {AS_ROOT}")
    as_rank = "setpriv --reuid 60900 --regid 60900 --clear-groups"
    assert shell(cluster, f"{as_rank} {AS_ROOT} -u") == "0\n"
    train(cluster, project, "--", "no-run")
    # Processes that outlived their run, as if the parent of their rank had been killed before it could kill them.
    assert shell(cluster, "pgrep -c -u deepcdk-rank || true") == "0\n"
    shell(cluster, "cp /usr/bin/sleep /opt/systemd")
    for command in ("sleep", "/opt/systemd"):
        shell(cluster, f"{as_rank} setsid -f {command} 7654 </dev/null >/dev/null 2>&1")
    assert shell(cluster, "pgrep -c -u deepcdk-rank") == "2\n"
    earlier = json.loads(cluster.fab("show", "--json").stdout)["run_id"]
    train(cluster, project, "--", earlier)
    run_id = json.loads(cluster.fab("show", "--json").stdout)["run_id"]
    cluster.fab("fetch", "--run", run_id)
    yield cluster, run_id, json.loads((demo.ROOT / "runs" / run_id / "work" / "told.json").read_text())
    shell(cluster, f"rm {AS_ROOT} /opt/systemd")
    for each in (earlier, run_id):
        cluster.fab("rm", "--run", each, "--yes")
        (master,) = cluster.instances("master")
        kept = ["sh", "-c", f"ls -d /mnt/efs/runs/*{each}* /mnt/efs/runs/.removed* 2>/dev/null || true"]
        assert cluster.on(master["InstanceId"], *kept).stdout == ""


def test_rank_has_its_own_user_without_sudo(told: Any) -> None:
    _, _, rank = told
    assert (rank["user"], rank["home"]) == ("deepcdk-rank", "/home/deepcdk-rank/files")
    assert set(rank["ids"]) == {60900, 60901}, "its own number and the group of its run"
    assert rank["as_root"] == "60900\n"
    assert rank["su"] != 0
    assert rank["secret"] == "swordfish"


def test_rank_cannot_change_files_of_supervisor_or_other_programs(told: Any) -> None:
    _, _, rank = told
    refused = {"PermissionError", "FileNotFoundError"}
    assert {action: end for action, end in rank["forbidden"].items() if end not in refused} == {}
    # These paths exist, so only permissions protect them.
    for path in (
        "spec.json",
        "state.json",
        "deeplearning-worker1",
        "sitecustomize.py",
        "/.master",
        "bin/python",
        "sshd",
    ):
        found = {end for action, end in rank["forbidden"].items() if action.endswith(path)}
        assert found == {"PermissionError"}, path


def test_rank_can_write_its_run_directory_and_local_disks(told: Any) -> None:
    _, _, rank = told
    assert set(rank["allowed"].values()) == {"done"}, rank["allowed"]


def test_files_readable_only_by_a_rank_are_fetched(told: Any) -> None:
    _, run_id, _ = told
    assert (demo.ROOT / "runs" / run_id / "work" / "deep" / "er" / "model").read_text() == "weights"


def test_hidden_process_is_killed_before_next_run(told: Any) -> None:
    cloud, _, _ = told
    assert shell(cloud, "pgrep -l -u deepcdk-rank || true") == ""


def test_shared_memory_and_files_of_an_earlier_run_do_not_reach_the_next_one(told: Any) -> None:
    cloud, _, rank = told
    assert rank["met"] == []
    assert shell(cloud, "ipcs -mc | grep -c deepcdk-rank") == "1\n"


def test_master_can_run_only_one_command_as_root(told: Any) -> None:
    cloud, _, _ = told
    (master,) = cloud.instances("master")
    login = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "ssh", "-o", "BatchMode=yes"]
    done = cloud.on(master["InstanceId"], *login, "-l", "root", "deeplearning-worker1", "touch /root/here")
    assert (done.stdout, shell(cloud, "ls /root")) == ("", "")
    assert shell(cloud, "pgrep -c -u deepcdk-rank || true") == "0\n"


def test_old_node_is_reported_with_fix(told: Any, project: Path) -> None:
    cloud, _, _ = told
    shell(cloud, "sed -i.kept /^deepcdk-rank:/d /etc/passwd")
    try:
        failed = train(cloud, project, "--", "no-run", check=False)
    finally:
        shell(cloud, "mv /etc/passwd.kept /etc/passwd")
    assert failed.returncode == 1
    assert "deeplearning-worker1 has no user deepcdk-rank for ranks" in failed.stderr
    assert "`fab replace worker1`" in failed.stderr
    cloud.fab("rm", "--run", json.loads(cloud.fab("show", "--json").stdout)["run_id"], "--yes")


def test_directories_writable_by_ranks_are_mounted_nosuid_and_nodev(cluster: EmbeddedCloud) -> None:
    for node in ("deeplearning-master", "deeplearning-worker1"):
        options = shell(cluster, "findmnt --noheadings --output VFS-OPTIONS /mnt/efs", node).strip().split(",")
        assert {"rw", "nosuid", "nodev"} <= set(options)
