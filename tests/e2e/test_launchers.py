"""Programs started by launchers other than Horovod's, on the deployed cluster: rank identity and joint termination."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

PROGRAM = """\
import json, os, signal, socket, subprocess, sys, time

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
place = {name: os.environ[name] for name in NAMES}
rank, size, word = int(place["RANK"]), int(place["WORLD_SIZE"]), sys.argv[1]

def save(*_):
    print("rank", rank, "saves", flush=True)
    time.sleep(1 + rank)
    open(f"saved-{rank}", "w").close()
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
meeting = (place["MASTER_ADDR"], int(place["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(meeting)
    others = [server.accept()[0] for _ in range(size - 1)]
    for other in others:
        other.sendall(b"go")
else:
    while True:
        try:
            others = [socket.create_connection(meeting, timeout=5)]
            break
        except OSError:
            time.sleep(0.1)
    others[0].settimeout(None)
    others[0].recv(2)
if word == "end":
    subprocess.Popen(["sleep", "3600"], start_new_session=True)
with open(f"rank-{rank}.json", "w") as file:
    json.dump({**place, "words": sys.argv[2:], "greeting": os.environ["GREETING"]}, file)
print("rank", rank, "has met the others", flush=True)
if word == "die" and rank == 2:
    print("a last word", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
if word == "die-once" and rank == 2 and not os.path.exists("died"):
    open("died", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
if word not in ("end", "die-once") or (word == "die-once" and not os.path.exists("died")):
    signal.pause()
"""
WORDS = ("two words", "$(touch /tmp/evaluated)", "line\ntwo")
ALIVE = "grep -lz '^DEEPCDK_RANK=' /proc/[0-9]*/environ 2>/dev/null || true"
"""Lists the environments of rank processes."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("program")
    (root / "train.py").write_text(PROGRAM)
    (root / "start.sh").write_text('#!/bin/bash\npython train.py "$@" 2>&1 | tee -a copy\necho done\n')
    (root / "start.sh").chmod(0o755)
    return root


def train(
    cloud: EmbeddedCloud, program: Path, *words: str, entry: str = "train.py", flags: Sequence[str] = ()
) -> tuple[Any, dict[str, Any]]:
    """Train with two ranks on each of two nodes with `plain`; return fab's output and the run's record."""
    started = ["--payload", str(program), "--entry", entry, "--ranks-per-node", "2", "--launcher", "plain"]
    given = ["--nodes", "2", "--yes", "--env", "GREETING=hello", *flags, *demo.settings(2)]
    done = cloud.laptop("fab", "train", *given, *started, "--", *words, check=False)
    record: dict[str, Any] = json.loads(cloud.fab("show", "--json").stdout)
    return done, record


@pytest.fixture(scope="module")
def ended(cluster: EmbeddedCloud, program: Path) -> Iterator[tuple[EmbeddedCloud, str, dict[str, Any]]]:
    done, record = train(cluster, program, "end", *WORDS)
    assert (done.returncode, record["state"]["state"]) == (0, "succeeded"), done.stdout + done.stderr
    yield cluster, done.stdout, record


def test_each_rank_has_its_place_and_meets_others_on_first_worker(ended: Any) -> None:
    cloud, _, record = ended
    work = cloud.run(record["run_id"]).path / "work"
    told = [json.loads((work / f"rank-{rank}.json").read_text()) for rank in range(4)]
    first = record["spec"]["hosts"][0]["address"]
    for rank, place in enumerate(told):
        node, slot = divmod(rank, 2)
        assert (place["words"], place["greeting"]) == (list(WORDS), "hello")
        assert [place[name] for name in ("RANK", "NODE_RANK", "LOCAL_RANK")] == [str(rank), str(node), str(slot)]
        assert (place["WORLD_SIZE"], place["LOCAL_WORLD_SIZE"], place["MASTER_ADDR"]) == ("4", "2", first)


def test_each_rank_has_its_lines_and_unchecked_parts_are_reported(ended: Any) -> None:
    cloud, output, record = ended
    log = cloud.fab("logs", "--run", record["run_id"], "--rank", "3").stdout
    assert log.strip() == "[3]<stdout>:rank 3 has met the others"
    assert "not checked: PyTorch is not installed" in output


def test_background_processes_do_not_keep_a_run_alive_and_are_listed(ended: Any) -> None:
    """Reported as skypilot #3803."""
    cloud, output, _ = ended
    for rank in range(4):
        assert (
            f"[launcher] rank {rank}: the program has exited; terminating its remaining processes: sleep 3600" in output
        )
    for worker in cloud.instances("worker"):
        assert cloud.on(worker["InstanceId"], "pgrep", "-u", "deepcdk-rank", "-x", "sleep", check=False).stdout == ""


ALONE = """\
import time
for step in range(8):
    print("loss", step)
    time.sleep(1)
"""
EXCHANGE_AT_END = """\
import os, socket, sys, time
rank, size, address, port = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
for step in range(8):
    print("loss", step)
    time.sleep(1)
if rank == 0:
    with socket.create_server((address, port)) as server:
        for _ in range(size - 1):
            server.accept()[0].close()
else:
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
print("nodes", os.environ["DEEPCDK_NODES"], os.environ["DEEPCDK_NODE_RANK"])
"""


def test_ranks_that_train_alone_cause_a_question_and_a_report(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    """Sources: minGPT and pytorch/examples mnist; each node trained the same model, and the run succeeded."""
    (tmp_path / "train.py").write_text(ALONE)
    given = ["--nodes", "2", *demo.settings(2), "--payload", str(tmp_path), "--entry", "train.py", "--skip-preflight"]
    refused = cluster.laptop("fab", "train", *given, check=False)
    assert (refused.returncode, "nothing in train.py joins the ranks" in refused.stderr) == (1, True)
    assert "--together=no" in refused.stderr
    done = cluster.laptop("fab", "train", *given, "--launcher", "plain", "--yes")
    warning = "the ranks do not train together: all ranks print the same lines"
    assert (done.stdout + done.stderr).count(warning) >= 1
    assert warning in json.loads(cluster.fab("show", "--json").stdout)["state"]["reason"]
    assert warning in cluster.fab("show").stdout


def test_ranks_that_communicate_only_at_the_end_are_not_reported(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(EXCHANGE_AT_END)
    entry = "train.py {rank} {world_size} {master_addr} {master_port}"
    given = ["--nodes", "2", *demo.settings(2), "--payload", str(tmp_path), "--entry", entry, "--skip-preflight"]
    done = cluster.laptop("fab", "train", *given, "--launcher", "plain", "--together", "require")
    assert "launcher:" not in done.stdout
    record = json.loads(cluster.fab("show", "--json").stdout)
    assert (record["state"]["state"], record["state"]["reason"]) == ("succeeded", "")
    for rank in (0, 1):
        assert f"[{rank}]<stdout>:nodes deeplearning-worker1,deeplearning-worker2 {rank}" in done.stdout


def test_killed_rank_stops_others_and_is_reported_with_last_lines(cluster: EmbeddedCloud, program: Path) -> None:
    done, record = train(cluster, program, "die", flags=("--skip-preflight", "--restarts", "0"))
    assert (done.returncode, record["state"]["state"]) == (1, "failed")
    assert "rank 2 on deeplearning-worker2 exited first, with signal 9 (Killed)" in done.stderr
    assert "[2]<stderr>:a last word" in record["state"]["last_lines"]
    for worker in cluster.instances("worker"):
        assert cluster.on(worker["InstanceId"], "bash", "-c", ALIVE).stdout == ""


def test_run_with_a_killed_rank_restarts_by_itself(cluster: EmbeddedCloud, program: Path) -> None:
    done, record = train(cluster, program, "die-once", flags=("--skip-preflight",))
    assert (done.returncode, record["state"]["state"], record["attempts"]) == (0, "succeeded", 2), done.stderr
    fault = "rank 2 on deeplearning-worker2 exited first, with signal 9 (Killed)"
    assert [(again["for"], len(again["hosts"])) for again in record["course"]["restarts"]] == [(fault, 2)]
    assert f"restart 1 of 3, because {fault}" in done.stdout


def test_stopped_run_gives_each_rank_below_a_script_its_grace_time(cluster: EmbeddedCloud, program: Path) -> None:
    """Reported as wandb #3667."""
    _, record = train(cluster, program, "wait", entry="./start.sh", flags=("--skip-preflight", "--detach"))
    run = cluster.run(record["run_id"])
    eventually(lambda: len(list((run.path / "work").glob("rank-*.json"))) == 4)
    cluster.fab("stop", "--run", record["run_id"])
    eventually(lambda: run.state == "stopped")
    assert len(list((run.path / "work").glob("saved-*"))) == 4


def test_torchrun_without_pytorch_is_rejected_before_the_ranks_start(cluster: EmbeddedCloud, program: Path) -> None:
    entry = ["--payload", str(program), "--entry", "train.py", "--launcher", "torchrun"]
    failed = cluster.fab("train", "--nodes", "1", "--yes", *entry, check=False)
    assert (failed.returncode, "torchrun is part of PyTorch, which is not installed" in failed.stderr) == (1, True)
    assert "add torch to the program's requirements" in failed.stderr


def test_program_with_conflicting_packages_has_its_own_environment(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    program = tmp_path / "program"  # The wheels are next to it: the laptop uploads them separately.
    program.mkdir()
    (tmp_path / "wheels").mkdir()
    stem = "numpy-1.26.4"
    with zipfile.ZipFile(tmp_path / "wheels" / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("numpy.py", "__version__ = '1.26.4'\n")
        wheel.writestr(f"{stem}.dist-info/METADATA", "Metadata-Version: 2.1\nName: numpy\nVersion: 1.26.4\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    (program / "requirements.txt").write_text("--no-index\n--find-links ../wheels\nnumpy<2\n")
    (program / "train.py").write_text(
        "import importlib.util, numpy\n"
        "print('numpy', numpy.__version__, 'tensorflow', importlib.util.find_spec('tensorflow'), flush=True)\n"
    )
    given = ["--nodes", "2", "--yes", *demo.settings(2), "--payload", str(program), "--entry", "train.py"]
    done = cluster.laptop("fab", "train", *given, "--launcher", "plain")
    assert "the program's own environment (the runtime has numpy " in done.stdout
    for rank in (0, 1):
        assert f"[{rank}]<stdout>:numpy 1.26.4 tensorflow None" in done.stdout
    record = json.loads(cluster.fab("show", "--json").stdout)
    assert record["state"]["state"] == "succeeded"
    assert record["course"]["runtime"]["versions"]["numpy"] == "1.26.4"
    refused = cluster.laptop("fab", "train", *given, check=False)
    assert refused.returncode == 1
    assert "requirements.txt cannot be resolved for " in refused.stderr
    assert "nothing was uploaded or started" in refused.stderr
